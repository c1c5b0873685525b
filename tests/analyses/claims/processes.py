"""Small models and prompts for the claims on Gaussian processes."""

from dataclasses import replace

import torch

from models.prompts import GaussianProcess
from models.recipes_of_processes import PROCESSES
from models.transformer import HookedTransformer

FAMILY = GaussianProcess(n=6, n_query=1)
CONFIG = replace(PROCESSES[0].architecture, n_layers=4, d_model=8, d_head=4, d_mlp=12)


def small_model(seed: int = 0, **settings: object) -> HookedTransformer:
    """The architecture of gp-softmax, small, with random weights; every parameter counts."""
    model = HookedTransformer(replace(CONFIG, seed=seed, **settings), FAMILY.layout(sign=1.0)).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model
