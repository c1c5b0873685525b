"""GPT-2 for in-context regression, against the same classes built with transformers from a config (no download)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

from models import checkpoints, foreign
from models.foreign import ForeignError
from models.prompts import Prompts, StandardRegression

D, POINTS, HEADS = 4, 8, 2


class Network(nn.Module):
    """The in-context-learning model: read in, GPT-2, read out."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        config = GPT2Config(
            vocab_size=11,
            n_positions=2 * POINTS,
            n_embd=12,
            n_layer=3,
            n_head=HEADS,
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._read_in, self._read_out = nn.Linear(D, 12), nn.Linear(12, 1)
            self._backbone = GPT2Model(config)
            for parameter in self.parameters():
                parameter.data += 0.3 * torch.randn_like(parameter)

    def forward(self, xs: Tensor, ys: Tensor) -> Tensor:
        """The answers at every x, [batch, point]."""
        rows = []
        for i in range(xs.shape[1]):
            label = torch.zeros_like(xs[:, 0])
            label[:, 0] = ys[:, i]
            rows += [xs[:, i], label]
        hidden = self._backbone(inputs_embeds=self._read_in(torch.stack(rows, dim=1))).last_hidden_state
        return self._read_out(hidden)[:, 0::2, 0]


@pytest.fixture(scope="module")
def network() -> Network:
    return Network()


@pytest.fixture(scope="module")
def prompts() -> Prompts:
    return StandardRegression(n=POINTS - 1, d=D).sample(5, seed=0)


def save(path: Path, network: Network, **changes: Any) -> Path:
    state = {name: value for name, value in {**network.state_dict(), **changes}.items() if value is not None}
    torch.save({"model_state_dict": state, "train_step": 7}, path)
    return path


def answers(network: nn.Module, prompts: Prompts) -> Tensor:
    """At every x of the prompts, the query last; its own label is not seen."""
    xs = torch.cat([prompts.A, prompts.B], dim=1)
    ys = torch.cat([prompts.C[..., 0], torch.full((prompts.count, 1), 99.0, dtype=xs.dtype)], dim=1)
    with torch.no_grad():
        return network(xs, ys)


def test_it_is_the_same_function(network: Network, prompts: Prompts, tmp_path: Path):
    ours = foreign.load(save(tmp_path / "state.pt", network), heads=HEADS)
    expected = answers(Network().double(), prompts)
    tokens = ours.tokens(prompts)
    assert tokens.shape == (5, 2 * POINTS - 1, D)
    everywhere = ours.model(tokens)[:, ::2, 0].detach()
    scale = expected.abs().max().item()
    assert (everywhere - expected).abs().max().item() < 1e-12 * scale
    assert torch.equal(ours.predict(prompts)[:, 0, 0], everywhere[:, -1])
    assert ours.parity is not None and ours.parity.error < 1e-12 and "GPT2Model" in str(ours.parity)
    single = ours.model.float()(tokens.float())[:, ::2, 0]
    assert (single - answers(network, prompts.to(dtype=torch.float32))).abs().max().item() < 1e-5 * scale


def test_a_bare_state_dict_and_other_spellings(network: Network, prompts: Prompts, tmp_path: Path):
    expected = foreign.load(save(tmp_path / "state.pt", network), heads=HEADS).predict(prompts)
    plain = network.state_dict()
    spellings = [
        plain,
        {f"module.{k}": v for k, v in plain.items()},
        {k.removeprefix("_"): v for k, v in plain.items()},
    ]
    for state in spellings:
        torch.save(state, tmp_path / "other.pt")
        assert torch.equal(foreign.load(tmp_path / "other.pt", heads=HEADS).predict(prompts), expected)


def test_the_buffers_of_older_versions_are_tolerated(network: Network, tmp_path: Path):
    mask = torch.ones(16, 16, dtype=torch.uint8).tril()[None, None]
    buffers = {f"_backbone.h.{i}.attn.{n}": v for i in range(3) for n, v in (("bias", mask), ("masked_bias", mask[0]))}
    ours = foreign.load(save(tmp_path / "state.pt", network, **buffers), heads=HEADS)
    assert ours.parity is not None and ours.parity.holds


def test_the_heads_come_from_the_config_beside_the_file(network: Network, prompts: Prompts, tmp_path: Path):
    path = save(tmp_path / "state.pt", network)
    with pytest.raises(ForeignError, match=r"do not tell the number of heads.*give --heads"):
        foreign.load(path)
    (tmp_path / "config.yaml").write_text("model:\n  family: gpt2\n  n_embd: 12\n  n_head: 2\n")
    assert foreign.load(path).model.cfg.n_heads == 2
    assert not torch.allclose(foreign.load(path, heads=4).predict(prompts), foreign.load(path).predict(prompts))
    (tmp_path / "config.yaml").write_text("model:\n  family: relu_attn\n  n_head: 2\n")
    with pytest.raises(ForeignError, match="names the family relu_attn; only gpt2 is read"):
        foreign.load(path)


def test_it_survives_the_disk(network: Network, prompts: Prompts, tmp_path: Path):
    ours = foreign.load(save(tmp_path / "state.pt", network), heads=HEADS)
    again = checkpoints.load(checkpoints.save(ours.model, tmp_path, "ours", ours.metadata()))
    assert torch.equal(again.predict(ours.tokens(prompts)), ours.predict(prompts))


def test_half_precision_is_upcast_and_said(network: Network, tmp_path: Path):
    half = {name: value.half() for name, value in network.state_dict().items()}
    ours = foreign.load(save(tmp_path / "state.pt", network, **half), heads=HEADS)
    assert "float16 weights, upcast to float64" in ours.notes and ours.parity is not None and ours.parity.holds


def test_loading_leaves_the_global_generator_alone(network: Network, tmp_path: Path):
    path, before = save(tmp_path / "state.pt", network), torch.random.get_rng_state()
    foreign.load(path, heads=HEADS)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("changes", "heads", "message"),
    [
        ({"_backbone.h.1.crossattention.bias": torch.zeros(2)}, 2, r"'backbone.h.1.crossattention.bias' has no place"),
        ({"_backbone.h.1.mlp.c_fc.bias": None}, 2, r"'backbone.h.1.mlp.c_fc.bias' is missing"),
        ({"_backbone.h.2.attn.c_attn.weight": torch.zeros(36, 12)}, 2, r"has the shape \[36, 12\], and \[12, 36\]"),
        ({"_read_out.bias": torch.zeros(1, dtype=torch.int64)}, 2, r"'read_out.bias' of state.pt is of type int64"),
        ({"_read_out.bias": torch.zeros(1, dtype=torch.complex64)}, 2, r"is of type complex64; weights are float"),
        ({"_read_in.bias": torch.full((12,), torch.inf)}, 2, r"'read_in.bias' of state.pt holds NaN or infinite"),
        ({}, 5, r"5 heads do not divide the width 12"),
        ({"_read_in.weight": None}, 2, r"state.pt is a model of a vocabulary"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict, heads: int, message: str, network: Network, tmp_path: Path):
    with pytest.raises(ForeignError, match=message):
        foreign.load(save(tmp_path / "state.pt", network, **changes), heads=heads)
