"""Auxiliary residuals of a linear system: of every observation given all others, and of shocks to its states.

A shock to an observation (an outlier) or to a state (a shift of the level) is estimated by the smoother; divided by its
standard deviation it is an auxiliary residual, whose square is twice the gain in log-likelihood of a model with that
shock (de Jong and Penzer 1998; Harvey and Koopman 1992).
"""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, register_record
from tsforecast.core.innovation import ISSMTransition
from tsforecast.core.linalg import cholesky, mask_rows, matvec, symmetrise
from tsforecast.core.linear import AbstractLinearGaussian
from tsforecast.core.loop.scan import scan
from tsforecast.core.outliers import widened
from tsforecast.core.system import AbstractLinearSystem

SEGMENT = 64  # steps whose moments are kept


@register_record
@dataclasses.dataclass(frozen=True)
class Disturbances:
    """Moments of every observation, and residuals of shocks to every state; (time, series, target | state).

    Attributes:
        predicted: Moments of an observation given those before it, as mean and variance.
        others: Likewise given all others, before and after it; of a component, given the others of its step as well.
        shocks: Auxiliary residuals of a shock to each state that comes with a step; 0 where the data say nothing.
    """

    predicted: tuple[Float[Tensor, "time series target"], Float[Tensor, "time series target"]]
    others: tuple[Float[Tensor, "time series target"], Float[Tensor, "time series target"]]
    shocks: Float[Tensor, "time series state"]


def disturbances(
    system: AbstractLinearSystem,
    prior: Gaussian,
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series target"] | None = None,
    changes: tuple[Float[Tensor, "time series"], Float[Tensor, "*#series state state"]] | None = None,
) -> Disturbances:
    """Return the error of every observation given all others, and the shocks to the states.

    With the recursions of `kalman.smooth`, q = A' r_{t+1} and Q = A' N_{t+1} A from behind a step, residual v,
    predictive covariance S and gain K:

        u = S^{-1} v - K' q,            D = S^{-1} + K' Q K
        y_j - E[y_j | all others] = u_j / D_jj,        Var[y_j | all others] = 1 / D_jj
        r = q + C' u,                   N = (I - K C)' Q (I - K C) + C' S^{-1} C,        shocks r_i / N_ii^{1/2}

    Args:
        system: The system.
        prior: Over the state before the first step.
        values: Finite everywhere; without influence where not observed.
        observed: False where a component of an observation is missing; None if there is no such.
        changes: A factor for each step, and a covariance. The belief before a step gets the covariance times its
            factor, where the state becomes uncertain again, see `tsforecast.core.outliers`.

    Raises:
        NotPositiveDefiniteError: Naming step and series.
    """
    seen = torch.ones_like(values, dtype=torch.bool) if observed is None else observed
    changed = [False] * len(values) if changes is None else (changes[0] > 0).any(1).tolist()
    at = system.by_step()

    def filtered(time: int, belief: Gaussian) -> tuple[Gaussian, Gaussian]:
        """Return the last belief of a segment, and the predicted state at each of its steps."""

        def step(belief: Gaussian, x: tuple) -> tuple[Gaussian, Gaussian]:
            time, value, mask = x
            transition, emission = at(time)
            if changes is not None and changed[time]:
                belief = widened(belief, changes[0][time], changes[1])
            predicted = transition.marginal(belief)
            return emission.posterior(predicted, value, mask)[0], predicted

        steps = range(time, min(time + SEGMENT, len(values)))
        return scan(step, belief, (steps, values[time : steps[-1] + 1], seen[time : steps[-1] + 1]), first=time)

    # Moments of all steps are too many to keep: those of a segment are, and are filtered once more on the way back.
    begins, beliefs = range(0, len(values), SEGMENT), [prior]
    for time in begins[:-1]:
        beliefs.append(filtered(time, beliefs[-1])[0])
    back = lambda later, x: _step_back(*at(x[0]), later, *x[1:])  # noqa: E731

    nothing = values.new_zeros(*values.shape[1:-1], prior.mean.shape[-1])
    later, segments = Gaussian(nothing, torch.diag_embed(nothing)), []
    for time, belief in zip(reversed(begins), reversed(beliefs), strict=True):
        predicted, where = filtered(time, belief)[1], slice(time, time + SEGMENT)
        steps = range(time, time + len(values[where]))
        later, stacks = scan(back, later, (steps, values[where], seen[where], predicted), reverse=True)
        segments.append(stacks)
    ahead, variance, others, width, shocks = (torch.cat(parts[::-1]) for parts in zip(*segments, strict=True))
    return Disturbances((ahead, variance), (others, width), shocks)


def _step_back(
    transition: AbstractLinearGaussian,
    emission: AbstractLinearGaussian,
    later: Gaussian,
    value: Tensor,
    mask: Tensor,
    before: Gaussian,
) -> tuple[Gaussian, tuple]:
    """Return A' r and A' N A of a step, and the moments and residuals there; see `disturbances`.

    Args:
        transition: Into the step.
        emission: From it.
        later: A' r and A' N A of the step after this one.
        value: The observation.
        mask: False where a component is missing.
        before: The predicted state.
    """
    emission = emission.dense()
    among = emission.marginal(before)
    matrix, masked = mask_rows(emission.matrix.expand(*value.shape, -1), among.cov, mask)
    # The inverse itself, since D is made of its entries.
    inverse = torch.cholesky_inverse(cholesky(masked, "the predictive covariance of an observation"))
    # `mask_rows` left ones at missing targets.
    inverse = torch.where(mask.unsqueeze(-1) & mask.unsqueeze(-2), inverse, 0.0)
    gain = before.cov @ matrix.mT @ inverse
    residual = torch.where(mask, value - among.mean, 0.0)  # a missing value may be any number
    # What is missing is no residual of itself.
    u = torch.where(mask, matvec(inverse, residual) - matvec(gain.mT, later.mean), 0.0)
    learnt = later.cov @ gain
    precision = symmetrise(inverse + gain.mT @ learnt)
    score = later.mean + matvec(matrix.mT, u)
    # (I - K C)' Q (I - K C) + C' S^{-1} C by products of few columns: no product of two square matrices.
    crossed = learnt @ matrix
    information = symmetrise(later.cov - crossed - crossed.mT + matrix.mT @ precision @ matrix)
    # Moments of what is missing, by q and u: their covariances are Q and D, and -Q K between them.
    carried, beside = emission.matrix @ before.cov, among.cov * mask.unsqueeze(-2)
    smoothed = among.mean + matvec(carried, later.mean) + matvec(beside, u)
    both = carried @ later.cov @ (carried.mT - 2 * gain @ beside.mT) + beside @ precision @ beside.mT
    spread = among.variance - both.diagonal(dim1=-2, dim2=-1)
    diagonal = torch.where(mask, precision.diagonal(dim1=-2, dim2=-1), 1.0)
    others = torch.where(mask, value - u / diagonal, smoothed)
    width = torch.where(mask, 1 / diagonal, spread)
    size = information.diagonal(dim1=-2, dim2=-1)
    # A state about which later data say nothing has no residual.
    shocks = torch.where(size > 1e-9, score * size.clamp_min(1e-9).rsqrt(), 0.0)
    moved = _pulled(transition, _pulled(transition, information).mT)
    later = Gaussian(_pulled(transition, score.unsqueeze(-1)).squeeze(-1), symmetrise(moved))
    return later, (among.mean, among.variance, others, width, shocks)


def _pulled(transition: AbstractLinearGaussian, x: Float[Tensor, "*batch state column"]) -> Tensor:
    """Return the product of the transposed matrix of a transition and some columns."""
    # By structure in O(n^2).
    return transition.pull(x) if isinstance(transition, ISSMTransition) else transition.dense().matrix.mT @ x
