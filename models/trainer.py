"""One optimisation, step by step: a function of recipe, seed and step number, with nothing hidden in between.

The prompts of a step are seeded by (seed, step, rollbacks), so the state of the run is its parameters, the optimiser's
moments and three counters, and a run that goes on from a stored state takes the same steps, bit for bit on a CPU.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from models.seeds import derived_seed
from models.training_settings import TrainingSettings
from models.transformer import HookedTransformer

TRAINING, EVALUATION = 0, 1
"""What a seed is used for; prompts of different purposes never coincide by construction."""
KEEP_EVERY = 100
"""Steps between the good states that a rollback returns to."""
MAX_ROLLBACKS = 30


class DivergedError(ValueError):
    """Training kept producing non-finite steps."""


class Trainer:
    """Parameters, optimiser and counters of a run of `recipe`; `advance` takes one step."""

    def __init__(self, recipe: TrainingSettings, seed: int, device: torch.device) -> None:
        self.recipe, self.seed, self.device = recipe, seed, device
        self.parameters = recipe.parameters(derived_seed(seed)).to(device, recipe.dtype)
        self.optimiser = _optimiser(self.parameters, recipe)
        self.step, self.rollbacks = 0, 0
        self.good = self._state()

    def advance(self) -> float:
        """One step of the optimiser, or a rollback; the loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate()
        self.optimiser.zero_grad()
        loss = self._loss()
        loss.backward()
        if not self._is_finite(loss, *self._gradients()):
            return self._roll_back()
        if self.recipe.clip is not None:
            nn.utils.clip_grad_norm_(self.parameters.parameters(), self.recipe.clip)
        self.optimiser.step()
        if not self._is_finite(*self.recipe.watched(self.parameters)):
            return self._roll_back()
        self.step += 1
        if self.step % KEEP_EVERY == 0:
            self.good = self._state()
        return loss.item()

    def rate(self) -> float:
        """The learning rate of the next step: warm-up, cosine, halved at each rollback."""
        recipe, progress = self.recipe, self.step / self.recipe.steps
        cosine = (1 + math.cos(math.pi * progress)) / 2
        share = recipe.final_rate + (1 - recipe.final_rate) * cosine
        return recipe.rate * min(1.0, (self.step + 1) / recipe.warmup) * share / 2**self.rollbacks

    def model(self) -> HookedTransformer:
        """The model as it is now, in float32 on the CPU."""
        return self.recipe.to_model(self.parameters)

    def state(self) -> dict[str, Tensor]:
        """All of the run: the current state, and the good one to roll back to."""
        counters = {"rollbacks": torch.tensor(self.rollbacks)}
        current = {f"current.{name}": tensor for name, tensor in self._state().items()}
        return {**counters, **current, **{f"good.{name}": tensor for name, tensor in self.good.items()}}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned."""
        self.good = {name[5:]: tensor for name, tensor in state.items() if name.startswith("good.")}
        self._load({name[8:]: tensor for name, tensor in state.items() if name.startswith("current.")})
        self.rollbacks = int(state["rollbacks"])

    def _loss(self) -> Tensor:
        seed = derived_seed(self.seed, TRAINING, self.step, self.rollbacks)
        prompts = self.recipe.training_prompts(seed, self.device)
        return self.recipe.loss(self.recipe.answers(self.parameters, prompts), prompts.target)

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self.parameters.parameters() if p.grad is not None]

    @staticmethod
    def _is_finite(*tensors: Tensor) -> bool:
        return bool(torch.stack([tensor.detach().sum() for tensor in tensors]).isfinite().all())

    def _roll_back(self) -> float:
        """Return to the last good state with half the rate; the loss of such a step is NaN."""
        self.rollbacks += 1
        if self.rollbacks > MAX_ROLLBACKS:
            raise DivergedError(
                f"recipe {self.recipe.name!r}, seed {self.seed}: {self.rollbacks} non-finite steps, the last at step "
                f"{self.step}; lower its rate or its init_std"
            )
        self._load(self.good)
        return math.nan

    def _state(self) -> dict[str, Tensor]:
        tensors = {f"parameter.{name}": p.detach() for name, p in self.parameters.named_parameters()}
        for name, p in self.parameters.named_parameters():
            for entry, value in self.optimiser.state.get(p, {}).items():
                tensors[f"optimiser.{name}.{entry}"] = value
        return {
            name: tensor.detach().cpu().clone() for name, tensor in {**tensors, "step": torch.tensor(self.step)}.items()
        }

    @torch.no_grad()
    def _load(self, state: dict[str, Tensor]) -> None:
        self.step = int(state["step"])
        self.optimiser.state.clear()
        for name, p in self.parameters.named_parameters():
            p.copy_(state[f"parameter.{name}"])
            moments = {
                key.rpartition(".")[2]: value for key, value in state.items() if key.startswith(f"optimiser.{name}.")
            }
            for entry, value in moments.items():
                where = value.device if entry == "step" else p.device
                self.optimiser.state[p][entry] = value.clone().to(where)


def _optimiser(parameters: nn.Module, recipe: TrainingSettings) -> torch.optim.AdamW:
    decayed = recipe.decayed(parameters)
    chosen = {id(p) for p in decayed}
    others = [p for p in parameters.parameters() if p.requires_grad and id(p) not in chosen]
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=recipe.rate, betas=recipe.betas, eps=recipe.eps
    )
