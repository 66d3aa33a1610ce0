"""Markov chains in continuous time."""

import pytest
import torch
from scipy.linalg import expm

from tests.oracles import generator
from tsforecast.core.continuous import JumpChain

pytestmark = pytest.mark.usefixtures("float64")


def test_transitions_are_the_exponential_of_the_generator_and_compose():
    """Oracle: SciPy. Rows sum to one, and a gap that is split in two is the same gap."""
    chain = JumpChain(torch.randn(3, 3, generator=generator(0)))
    gaps = torch.tensor([[0.0, 0.2], [1.3, 1.5], [1.5, 400.0]])
    found = chain.transition(gaps)
    for row, gap in zip(found.flatten(0, 1), gaps.flatten(), strict=True):
        torch.testing.assert_close(row, torch.as_tensor(expm(chain.generator.numpy() * float(gap))), atol=1e-12, rtol=0)
    torch.testing.assert_close(found.sum(-1), torch.ones(3, 2, 3), atol=1e-14, rtol=0)
    torch.testing.assert_close(found[1, 0] @ found[0, 1], found[1, 1], atol=1e-14, rtol=1e-12)
    torch.testing.assert_close(chain.stationary.expand(3, 3), found[2, 1], atol=1e-12, rtol=0)
    alone = JumpChain(torch.zeros(1, 1))
    assert alone.transition(gaps).flatten().tolist() == [1.0] * 6
    assert alone.stationary.tolist() == [1.0]


def test_rates_are_learnt_from_probabilities():
    log_rates = torch.randn(3, 3, generator=generator(1)).requires_grad_()
    gaps = torch.tensor([0.4, 2.0])
    assert torch.autograd.gradcheck(lambda x: JumpChain(x).transition(gaps), (log_rates,))
    assert torch.autograd.gradcheck(lambda x: JumpChain(x).stationary, (log_rates,))
