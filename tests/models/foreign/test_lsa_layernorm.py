"""The linear-attention blocks with two layer norms, against the same network written with torch's own modules."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models import checkpoints, foreign
from models.foreign import ForeignError
from models.prompts import StandardRegression


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.W_q, self.W_k = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.W_v, self.W_o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, z: Tensor) -> Tensor:
        u = self.norm1(z)
        scores = torch.einsum("bih,bkh->bik", self.W_q(u), self.W_k(u)) / self.W_q.out_features**0.5
        seen = torch.ones(scores.shape[1:]).tril()
        return self.norm2(z + 0.1 * self.W_o(torch.einsum("bik,bkv->biv", scores * seen, self.W_v(u))))


class Network(nn.Module):
    def __init__(self, d: int, layers: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(d + 1, hidden) for _ in range(layers))
        self.pred_head = nn.Linear(d + 1, 1, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        for layer in self.layers:
            z = layer(z)
        return self.pred_head(z[:, -1])


def network(d: int = 5, layers: int = 3, hidden: int = 4) -> Network:
    torch.manual_seed(0)
    made = Network(d, layers, hidden)
    for name, parameter in made.named_parameters():
        if "norm" in name:
            nn.init.normal_(parameter)
    return made


def stored(tmp_path: Path, **changes: Tensor | None) -> Path:
    state = {**network().state_dict(), **changes}
    path = tmp_path / "theirs.pt"
    torch.save({"model_state_dict": {k: v for k, v in state.items() if v is not None}, "num_layers": 3}, path)
    return path


@pytest.mark.parametrize("hidden", [4, 9])
def test_it_is_the_same_function(hidden: int, tmp_path: Path):
    theirs = network(hidden=hidden)
    torch.save({"model_state_dict": theirs.state_dict(), "d": 5}, tmp_path / "theirs.pt")
    ours = foreign.load(tmp_path / "theirs.pt")
    prompts = StandardRegression(n=7, d=5).sample(16, seed=0)
    expected = theirs.double()(prompts.tokens)
    assert torch.allclose(ours.predict(prompts)[:, 0], expected, rtol=0, atol=1e-12 * expected.abs().max().item())


def test_it_survives_the_disk_and_more_rows(tmp_path: Path):
    ours = foreign.load(stored(tmp_path))
    record = checkpoints.save(ours.model, tmp_path, "ours", ours.metadata())
    again, prompts = checkpoints.load(record), StandardRegression(n=11, d=5).sample(4, seed=0)
    assert torch.equal(again.predict(ours.tokens(prompts)), ours.predict(prompts))
    source = checkpoints.read_metadata(record)["source"]
    assert source["file"] == "theirs.pt" and len(source["sha256"]) == 64 and source["loader"] == "lsa-layernorm"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers.1.W_v.weight": None}, "'layers.1.W_v.weight' is missing"),
        ({"layers.1.W_k.weight": torch.zeros(4, 5)}, r"'layers.1.W_k.weight' has the shape \[4, 5\], and \[4, 6\]"),
        ({"layers.1.mlp.weight": torch.zeros(4)}, "'layers.1.mlp.weight' has no place in a lsa-layernorm model"),
        ({"layers.9.norm1.bias": torch.zeros(6)}, r"layers of the file are \[0, 1, 2, 9\]"),
        ({"pred_head.weight": torch.zeros(2, 6)}, r"'pred_head.weight' has the shape \[2, 6\]"),
        ({"layers.0.norm1.bias": torch.full((6,), torch.nan)}, "'layers.0.norm1.bias' of theirs.pt holds NaN"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Tensor | None], message: str, tmp_path: Path):
    with pytest.raises(ForeignError, match=message):
        foreign.load(stored(tmp_path, **changes))
