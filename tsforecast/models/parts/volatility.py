"""The ratio of the variances of a series to those of all series: a belief that forgets."""

import dataclasses
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NODES = 3  # widths that stand for a belief over them
_STEPS = 64  # that are summed up at once


@dataclasses.dataclass(frozen=True)
class InverseGamma:
    """A belief over a factor v of all variances: 1 / v ~ Gamma(shape, rate).

    Attributes:
        shape: Half of the degrees of freedom.
        rate: Half of the sum of squares.
    """

    shape: Float[Tensor, "*#batch"]
    rate: Float[Tensor, "*#batch"]

    def log_density(self, log_scale: Float[Tensor, "*batch"], square: Float[Tensor, "*batch"]) -> Tensor:
        """Return the log-density of a value under N(mean, v S) for unknown v: Student's t.

        Args:
            log_scale: log N(0; 0, S).
            square: Square of its error, standardised by S.
        """
        # The constants of sqrt(2 pi) are in `log_scale`.
        ratio = torch.lgamma(self.shape + 0.5) - torch.lgamma(self.shape)
        return log_scale + ratio - 0.5 * self.rate.log() - (self.shape + 0.5) * torch.log1p(0.5 * square / self.rate)

    def widths(self) -> Float[Tensor, "*batch node"]:
        """Return square roots of three factors of equal probability, as quantiles of the gamma.

        The cube root of a gamma variable is nearly normal (Wilson and Hilferty 1931).
        """
        # Middles of equal shares.
        levels = (torch.arange(NODES, device=self.shape.device, dtype=self.shape.dtype) + 0.5) / NODES
        shape = self.shape.unsqueeze(-1)
        # Positive, since no shape is below 1.
        root = 1 - 1 / (9 * shape) + torch.special.ndtri(levels) / (3 * shape.sqrt())
        precision = shape / self.rate.unsqueeze(-1) * root**3
        return precision.rsqrt()


def discounted(
    terms: Float[Tensor, "time series model"],
    observed: Bool[Tensor, "time series"],
    start: Float[Tensor, "series model"],
    weight: Callable[[Tensor], Tensor],
) -> Float[Tensor, "times series model"]:
    """Return the sum of all terms before each step, and after the last, by the weights of their age.

    Args:
        terms: Of every step, 0 where it is not observed.
        observed: Which steps count.
        start: The sum before the first step.
        weight: Of a term that so many others have followed.
    """
    sums = [start.unsqueeze(0)]
    for part, seen in zip(terms.split(_STEPS), observed.split(_STEPS), strict=True):
        count = torch.nn.functional.pad(seen.cumsum(0), (0, 0, 1, 0))  # seen before each step
        each = count.T.contiguous()  # products of batches are quick where a batch is the first dimension
        age = each.unsqueeze(2) - each[:, None, 1:]  # of the value of one step, before another
        later = torch.ones_like(age[0], dtype=torch.bool).tril(-1)
        share = torch.where(later, weight(age.clamp_min(0).to(terms.dtype)), 0.0)  # of earlier steps alone
        kept = weight(count.to(terms.dtype)).unsqueeze(-1) * sums[-1][-1]
        sums.append((kept + (share @ part.transpose(0, 1).contiguous()).transpose(0, 1))[1:])
    return torch.cat(sums)
