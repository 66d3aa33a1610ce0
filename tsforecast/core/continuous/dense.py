"""A dense system in continuous time: any drift, by the matrix exponential."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.continuous.sde import AbstractSDE
from tsforecast.core.linalg import symmetrise
from tsforecast.core.linear import LinearGaussian

_MOST_DOUBLINGS = 60


@dataclasses.dataclass(frozen=True)
class DenseSDE(AbstractSDE):
    """dx = F x dt + dw with dense matrices that all series share.

    Attributes:
        matrix: F; stable where all its eigenvalues have real parts below zero, see `stable_drift`.
        noise: Q, positive semidefinite.
        weights: With which an observation reads the states.
    """

    matrix: Float[Tensor, "state state"]
    noise: Float[Tensor, "state state"]
    weights: Float[Tensor, " state"]

    @property
    def size(self) -> int:
        """Return the number of states."""
        return self.matrix.shape[-1]

    @property
    def drift(self) -> Float[Tensor, "*batch state state"]:
        """Return F."""
        return self.matrix

    @property
    def diffusion(self) -> Float[Tensor, "*batch state state"]:
        """Return Q."""
        return self.noise

    @property
    def readout(self) -> Float[Tensor, "*batch state"]:
        """Return the weights."""
        return self.weights

    def discretise(self, gaps: Float[Tensor, "*#batch"]) -> LinearGaussian:
        """Return exp(F g), and the noise by the block exponential of Van Loan (1978) and doubling.

        exp([[F, Q], [0, -F']] h) = [[A, M], [0, A'^-1]] has the noise M A' of a short step h. It would overflow over a
        long gap of a stable system. So h = g / 2^k is short, and k times the noise of twice the step is
        noise + A noise A'. Equal gaps are computed once.
        """
        distinct, place = torch.unique(gaps, return_inverse=True)
        # Of the longest gap: all are halved as often.
        size, reach = self.size, float(distinct.max() * torch.linalg.matrix_norm(self.drift.detach(), ord=1))
        # Each step has a norm of at most 1/2.
        doublings = min(max(math.ceil(math.log2(max(reach, 0.5) / 0.5)), 0), _MOST_DOUBLINGS)
        step = (distinct / 2**doublings)[:, None, None]
        above = torch.cat([self.drift, self.diffusion], -1)
        below = torch.cat([torch.zeros_like(self.drift), -self.drift.mT], -1)
        block = torch.linalg.matrix_exp(torch.cat([above, below]) * step)
        matrix = block[:, :size, :size]
        noise = symmetrise(block[:, :size, size:] @ matrix.mT)
        for _ in range(doublings):
            noise = symmetrise(noise + matrix @ noise @ matrix.mT)
            matrix = matrix @ matrix
        matrix = torch.linalg.matrix_exp(self.drift * distinct[:, None, None])  # fewer roundings than by doubling
        return LinearGaussian(matrix[place], matrix.new_zeros(size), noise[place])


def stable_drift(
    turn: Float[Tensor, "*batch state state"], damping: Float[Tensor, "*batch state state"]
) -> Float[Tensor, "*batch state state"]:
    """Return the drift turn - turn' - D D': its symmetric part is negative semidefinite, so no state grows.

    Every system with a quadratic Lyapunov function has this form in some basis.

    Args:
        turn: Any matrix; its skew part turns the state.
        damping: D, any matrix.
    """
    return turn - turn.mT - damping @ damping.mT
