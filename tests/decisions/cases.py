"""Rounds and networks for the tests of decisions."""

import torch

from tsforecast.decisions import Interactions
from tsforecast.learners import LayerChain


def rounds(count, features, arms, generator, dtype=torch.float64):
    contexts = torch.randn(count, features, generator=generator, dtype=dtype)
    chosen = torch.randint(arms, (count,), generator=generator)
    return Interactions(contexts, chosen, torch.randn(count, generator=generator, dtype=dtype))


def numbers(seed=0):
    return torch.Generator().manual_seed(seed)


def linear_network(widths):
    return LayerChain(widths, (torch.nn.Identity,) * (len(widths) - 1), (False,) * (len(widths) - 1))
