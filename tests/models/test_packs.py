"""Packs: every model comes back, and nothing else does."""

import pytest
import safetensors.torch
import torch

from interp.layout import BlockLayout
from models.checkpoints import CheckpointError
from models.packs import digest, read_pack, write_pack
from models.transformer import HookedTransformer, TransformerConfig


def model(seed: int, n_layers: int = 2) -> HookedTransformer:
    built = HookedTransformer(TransformerConfig(n_layers, 1, 4, 4), BlockLayout.standard(x=3, y=1))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(seed))
    return built


def test_models_come_back_by_number_in_rising_order(tmp_path):
    given = {30: model(1), 0: model(2), 4: model(3)}
    write_pack(tmp_path / "pack.safetensors", given)
    read = read_pack(tmp_path / "pack.safetensors", given[0])
    assert list(read) == [0, 4, 30]
    for number, found in read.items():
        for name, tensor in found.state_dict().items():
            assert torch.equal(tensor, given[number].state_dict()[name])


def test_models_of_several_architectures_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="one config and layout, got 2"):
        write_pack(tmp_path / "pack.safetensors", {0: model(1), 1: model(1, n_layers=3)})
    with pytest.raises(CheckpointError, match="got 0"):
        write_pack(tmp_path / "pack.safetensors", {})
    assert not list(tmp_path.iterdir())


DAMAGES = ("missing", "truncated", "another architecture", "a weight too few", "bad number", "a flipped bit")


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_pack_that_is_not_whole_is_refused(tmp_path, damage):
    path = tmp_path / "pack.safetensors"
    write_pack(path, {0: model(1), 1: model(2)})
    like = model(0, n_layers=3) if damage == "another architecture" else model(0)
    tensors = safetensors.torch.load(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "a weight too few":
        tensors.pop("1/blocks.0.attn.W_Q")
        safetensors.torch.save_file(tensors, path, {"sha256": digest(tensors)})
    elif damage == "bad number":
        renamed = {f"x{name}": tensor for name, tensor in tensors.items()}
        safetensors.torch.save_file(renamed, path, {"sha256": digest(renamed)})
    elif damage == "a flipped bit":
        content = bytearray(path.read_bytes())
        content[-5] ^= 1
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match="is no pack of such models"):
        read_pack(path, like)
