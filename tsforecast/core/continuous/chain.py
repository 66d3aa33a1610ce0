"""A Markov chain in continuous time: regimes that last for random times, and then jump."""

import dataclasses

import torch
from jaxtyping import Float
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class JumpChain:
    """Regimes that jump: from i to j at the rate q_ij, so that a regime lasts 1 / sum_j q_ij on average (Norris 1997).

    Attributes:
        log_rates: Logarithms of the rates, in one over the unit of time; the diagonal is not read.
    """

    log_rates: Float[Tensor, "regime regime"]

    @property
    def generator(self) -> Float[Tensor, "regime regime"]:
        """Return Q: rates beside the diagonal, and rows that sum to zero."""
        rates = self.log_rates.exp()
        rates = rates - torch.diag(rates.diagonal())  # the parameters on the diagonal are not read
        return rates - torch.diag(rates.sum(-1))

    def transition(self, gaps: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch regime regime"]:
        """Return the probabilities exp(Q g) of each regime behind a gap (column), given that before it (row).

        They compose: those of g + h are the product of those of g and of h. Equal gaps are computed once.

        Args:
            gaps: Times that pass, at least 0.
        """
        distinct, place = torch.unique(gaps, return_inverse=True)
        # Rounding leaves entries just below 0.
        probability = torch.linalg.matrix_exp(self.generator * distinct[:, None, None]).clamp_min(0.0)
        return (probability / probability.sum(-1, keepdim=True))[place]  # and rows not quite of sum 1

    @property
    def stationary(self) -> Float[Tensor, " regime"]:
        """Return the share of time of each regime in the long run, pi Q = 0."""
        count = len(self.log_rates)
        system = self.generator.mT.clone()
        system[-1] = 1.0  # the last of the equations follows from the others
        aim = torch.zeros_like(system[0])
        aim[count - 1] = 1.0
        return torch.linalg.solve(system, aim)
