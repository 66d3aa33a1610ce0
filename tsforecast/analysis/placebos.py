"""Paths that are as wide as errors were: placebo interventions in windows of the past, in which nothing happened.

Each window is foretold from the time before it alone. Errors e_1, .., e_W over its steps are vectors of covariance C.
An inverse-Wishart prior expects the covariance C_0 of the model's paths and is worth `PRIOR_WINDOWS` windows. Given the
errors, those behind the past are multivariate Student-t of n = `PRIOR_WINDOWS` + W degrees of freedom and scale matrix
(`PRIOR_WINDOWS` C_0 + sum_w e_w e_w') / n (Gelman et al., "Bayesian Data Analysis", section 3.6). So steps, averages
and sums widen or narrow together, each by what the windows say of it.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

PRIOR_WINDOWS = 4.0
LEAST_WINDOWS, MOST_WINDOWS = 6, 24
LEAST_KNOWN = 8  # observed steps before a window


@dataclasses.dataclass(frozen=True)
class Placebos:
    """Windows of the past.

    Attributes:
        starts: Steps after which they begin.
        used: Of which series each counts: values are inside, enough is known before, and windows are enough.
    """

    starts: tuple[int, ...]
    used: Bool[Tensor, "window series"]

    @classmethod
    def of(cls, observed: Bool[Tensor, "time series"], horizon: int) -> "Placebos | None":
        """Return windows side by side up to the end of the past, none in its first third; None if they are too few.

        Args:
            observed: False where missing.
            horizon: Steps of a window, and behind the past.
        """
        steps = len(observed)
        count = min((steps - steps // 3) // horizon, MOST_WINDOWS)
        if count < LEAST_WINDOWS:
            return None
        starts = tuple(steps - horizon * k for k in range(count, 0, -1))
        used = torch.stack([observed[k : k + horizon].any(0) & (observed[:k].sum(0) >= LEAST_KNOWN) for k in starts])
        return cls(starts, used & (used.sum(0) >= LEAST_WINDOWS))


@dataclasses.dataclass(frozen=True)
class Window:
    """Errors of a placebo intervention.

    Attributes:
        error: What came less what was foretold.
        spread: Standard deviations that the model expected of it.
    """

    error: Float[Tensor, "series horizon"]
    spread: Float[Tensor, "series horizon"]

    @classmethod
    def of(
        cls,
        paths: Float[Tensor, "series sample horizon"],
        values: Float[Tensor, "series horizon"],
        observed: Bool[Tensor, "series horizon"],
    ) -> "Window":
        """Return the errors of paths; where a value is missing, that of one of them.

        Args:
            paths: What was foretold.
            values: What came; finite everywhere.
            observed: False where missing.
        """
        mean = paths.mean(1)
        return cls(torch.where(observed, values.to(paths.dtype), paths[:, 0]) - mean, paths.std(1))


def calibrated(
    paths: Float[Tensor, "series sample horizon"],
    windows: Sequence[Window],
    used: Bool[Tensor, "window series"],
    generator: torch.Generator | None = None,
) -> Float[Tensor, "series sample horizon"]:
    """Return paths around the same mean that are as wide as the posterior says; a series without windows keeps its own.

    The errors of a window count less where the model expected more of them than it does now, and never more.

    Args:
        paths: What would have been.
        windows: Errors of placebo interventions.
        used: Of which series they count.
        generator: Source of random numbers.
    """
    mean, spread = paths.mean(1, keepdim=True), paths.std(1)
    errors = torch.stack(
        [
            torch.where(own.unsqueeze(-1), window.error * (spread / window.spread).clamp_max(1.0), 0.0)
            for window, own in zip(windows, used, strict=True)
        ]
    )
    drawn = torch.randn(*paths.shape[:2], len(windows), generator=generator, dtype=paths.dtype)
    # One call of NumPy draws them all; torch's own distribution takes no generator.
    rng = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
    degrees = PRIOR_WINDOWS + used.sum(0)
    chi2 = torch.from_numpy(rng.chisquare(degrees.numpy(), (paths.shape[1], len(paths))).T).to(paths.dtype)
    wide = (paths - mean).mul_(PRIOR_WINDOWS**0.5) + torch.einsum("snw,wsh->snh", drawn, errors)
    moved = wide.div_(chi2.sqrt().unsqueeze(-1)).add_(mean)
    return torch.where(used.any(0)[:, None, None], moved, paths)
