"""Expectation-maximisation for Markov-switching regressions of one or several targets, each step in closed form."""

import dataclasses
import functools

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.core.kernels import regimes as compiled
from tsforecast.core.linalg import LOG_2PI, cholesky, symmetrise
from tsforecast.core.regimes.chain import stationary
from tsforecast.core.regimes.stages import moves, of_regimes, spread, staged

_NUMBERS = 2**24  # products of regressors at a time


@register_record
@dataclasses.dataclass(frozen=True)
class SwitchingRegression:
    """y_t ~ N(b(s_t)' z_t, V(s_t)) with regimes in a chain; lags of y may be among the regressors z.

    Several runs of EM are one regression, whose parameters have a first dimension.

    Attributes:
        coefficient: b.
        cov: V.
        log_transition: log p(s_t = j | s_{t-1} = i) in row i and column j.
        initial: log p(s_0) before the first step; None for the stationary distribution.
        stages: Of each regime, see `tsforecast.core.regimes.stages`; transitions are those of a stage.
    """

    coefficient: Float[Tensor, "*run regime regressor target"]
    cov: Float[Tensor, "*run regime target target"]
    log_transition: Float[Tensor, "*run regime regime"]
    initial: Float[Tensor, "*run regime"] | None = None
    stages: int = 1

    def log_density(
        self, design: Float[Tensor, "time series regressor"], values: Float[Tensor, "time series target"]
    ) -> Float[Tensor, "time series history"]:
        """Return log p(y_t | s_t) of every pair of regimes, the newer first; of a single run."""
        found = _log_density(_in_runs(self), design, values).squeeze(1)
        return found.repeat_interleave(found.shape[-1], -1)


@register_record
@dataclasses.dataclass(frozen=True)
class Expected:
    """What an M-step needs of the regimes, given all values.

    Attributes:
        weight: Probability of each regime, 0 where nothing is observed.
        pairs: Expected number of steps from regime to regime; with stages see `stages.moves`.
        before: Mean probability of each regime before the first step.
        log_likelihood: Of every series.
    """

    weight: Float[Tensor, "time run series regime"]
    pairs: Float[Tensor, "run regime regime"]
    before: Float[Tensor, "run regime"]
    log_likelihood: Float[Tensor, "run series"]


def em_step(
    model: SwitchingRegression,
    design: Float[Tensor, "time series regressor"],
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series"] | None = None,
    *,
    shared: tuple[int, ...] = (),
    shared_cov: bool = False,
    floor: float = 0.0,
) -> tuple[SwitchingRegression, Float[Tensor, "*run series"]]:
    """Return the parameters after one step of expectation-maximisation (Hamilton 1990), shared by all series.

    Given the smoothed regimes, transitions are shares of pairs, coefficients a weighted least squares, and covariances
    weighted products. With shared coefficients, the least squares is that of all regimes at once, for the covariances
    as they were; then a step raises the likelihood as well (a generalised EM, Meng and Rubin 1993).

    Args:
        model: The present parameters, of one run or several.
        design: Regressors; finite everywhere.
        values: What is explained; finite everywhere.
        observed: False where a value or one of its regressors is missing; None if nothing is.
        shared: Numbers of the regressors whose coefficients all regimes share.
        shared_cov: Whether all regimes share the covariance.
        floor: Least variance in any direction. A regime of a single value has a likelihood without bound.

    Returns:
        The new parameters, and the log-likelihood of every series under the *old* ones. Summed over series it never
        falls from one step to the next, unless the initial distribution is the stationary one, or the floor is met.

    Raises:
        ValueError: If there is no value.
    """
    if observed is not None and not bool(observed.any()):
        raise ValueError("expected at least one value, got none that is observed with all its regressors")
    runs = _in_runs(model)
    found = expected(runs, design, values, observed)
    new = maximised(runs, found, design, values, shared=shared, shared_cov=shared_cov, floor=floor)
    if model.coefficient.ndim > 3:
        return new, found.log_likelihood
    initial = None if new.initial is None else new.initial[0]
    one = SwitchingRegression(new.coefficient[0], new.cov[0], new.log_transition[0], initial, model.stages)
    return one, found.log_likelihood[0]


def expected(
    model: SwitchingRegression,
    design: Float[Tensor, "time series regressor"],
    values: Float[Tensor, "time series target"],
    observed: Bool[Tensor, "time series"] | None = None,
) -> Expected:
    """Return the expectations of an M-step, by probabilities forward and backward; for arguments see `em_step`."""
    density = _log_density(model, design, values)
    if observed is not None:
        # A missing value has the density 1 in every regime.
        density = torch.where(observed[:, None, :, None], density, 0.0)
    most = density.amax(-1, keepdim=True)  # the largest density becomes 1: no step underflows in all regimes
    stages = model.stages
    density = (density - most).exp().repeat_interleave(stages, -1)
    transition = staged(model.log_transition, stages).exp()
    # By default the chain's own stationary distribution, which is no free parameter.
    initial = stationary(model.log_transition) if model.initial is None else model.initial
    start = spread(initial, stages).exp()
    found = compiled.smooth(transition, density, start)
    weight, gain, pairs, first = smooth(transition, density, start) if found is None else found
    weight = of_regimes(weight, stages)
    if observed is not None:
        weight = weight * observed[:, None, :, None]
    log_likelihood = (gain.log() + most.squeeze(-1)).sum(0)
    before = of_regimes(start * first.mean(-2), stages)
    return Expected(weight, moves(pairs.sum(1), stages), before, log_likelihood)


def smooth(
    transition: Float[Tensor, "run state another_state"],
    density: Float[Tensor, "time run series state"],
    start: Float[Tensor, "run state"],
) -> tuple[
    Float[Tensor, "time run series state"],
    Float[Tensor, "time run series"],
    Float[Tensor, "run series state another_state"],
    Float[Tensor, "run series state"],
]:
    """Return what is known of states given all steps, by probabilities forward and backward.

    Args:
        transition: p(s_t = j | s_{t-1} = i) in row i and column j.
        density: p(y_t | s_t), up to a factor of each step.
        start: p(s_0), before the first step.

    Returns:
        p(s_t | y_1 .. y_T); p(y_t | y_1 .. y_{t-1}) up to that factor; the expected number of steps from state to
        state; and p(y_1 .. y_T | s_0) / p(y_1 .. y_T).
    """
    tiny = torch.finfo(density.dtype).tiny
    begin = start.unsqueeze(-2).expand(density.shape[1:])
    belief, forward, gains = begin, [], []
    for now in density.unbind():
        belief = belief @ transition * now
        gains.append(belief.sum(-1, keepdim=True).clamp_min(tiny))
        belief = belief / gains[-1]  # scaled at each step, else they underflow over a long series
        forward.append(belief)
    later, behind, ahead = torch.ones_like(belief), [], []
    for now, gain in zip(reversed(density.unbind()), reversed(gains), strict=True):
        behind.append(later)
        ahead.append(now * later / gain)
        later = ahead[-1] @ transition.mT
    before, after = torch.stack([begin, *forward[:-1]]), torch.stack(forward)
    pairs = torch.einsum("trsi,trsj->rsij", before, torch.stack(ahead[::-1])) * transition.unsqueeze(1)
    return after * torch.stack(behind[::-1]), torch.stack(gains).squeeze(-1), pairs, later


def maximised(
    model: SwitchingRegression,
    found: Expected,
    design: Float[Tensor, "time series regressor"],
    values: Float[Tensor, "time series target"],
    *,
    shared: tuple[int, ...] = (),
    shared_cov: bool = False,
    floor: float = 0.0,
) -> SwitchingRegression:
    """Return the parameters that an M-step makes of expectations; for arguments see `em_step`."""
    tiny = torch.finfo(values.dtype).tiny
    # A regime never left, or never visited, has finite logarithms.
    transition = (found.pairs.clamp_min(tiny) / found.pairs.sum(-1, keepdim=True).clamp_min(tiny)).log()
    weight = found.weight.movedim(1, -2).flatten(0, 1)  # (value, run, regime)
    flat, target = design.flatten(0, 1), values.flatten(0, 1)
    coefficient = _least_squares(model, weight, flat, target, shared)
    residual = target[:, None, None] - torch.einsum("nd,rkdo->nrko", flat, coefficient)
    total = torch.einsum("nrko,nrkp->rkop", weight.unsqueeze(-1) * residual, residual)
    count = weight.sum(0)[..., None, None]
    if shared_cov:
        # One covariance for all regimes: their sums are one.
        total, count = (x.sum(1, keepdim=True).expand_as(x) for x in (total, count))
    # A regime that is never visited keeps its own.
    cov = at_least(torch.where(count > tiny, total / count.clamp_min(tiny), model.cov), floor)
    before = None if model.initial is None else found.before.clamp_min(tiny).log()
    return SwitchingRegression(coefficient, cov, transition, before, model.stages)


def _in_runs(model: SwitchingRegression) -> SwitchingRegression:
    """Return a regression with a dimension of runs."""
    if model.coefficient.ndim > 3:
        return model
    initial = None if model.initial is None else model.initial.unsqueeze(0)
    coefficient, cov, transition = (x.unsqueeze(0) for x in (model.coefficient, model.cov, model.log_transition))
    return SwitchingRegression(coefficient, cov, transition, initial, model.stages)


def at_least(cov: Float[Tensor, "*batch target target"], floor: float) -> Float[Tensor, "*batch target target"]:
    """Return covariances with no variance below a floor in any direction."""
    if cov.shape[-1] == 1:
        return cov.clamp_min(floor)
    # A floor in every direction, not of single targets: they may be collinear.
    variance, way = torch.linalg.eigh(symmetrise(cov))
    return symmetrise((way * variance.clamp_min(floor).unsqueeze(-2)) @ way.mT)


def _log_density(model: SwitchingRegression, design: Tensor, values: Tensor) -> Float[Tensor, "time run series regime"]:
    """Return log p(y_t | s_t) of every regime."""
    residual = values[:, None, :, None] - torch.einsum("tsd,rkdo->trsko", design, model.coefficient)
    factor = cholesky(model.cov, "the covariance of a regime")
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    # Inverted once a regime, not solved for every value.
    whitening = torch.linalg.solve_triangular(factor, eye.expand(factor.shape), upper=False)
    squares = torch.einsum("trsko,rkpo->trskp", residual, whitening).square().sum(-1)
    log_scale = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1).unsqueeze(1)  # run, 1, regime
    return -0.5 * (squares + len(eye) * LOG_2PI) - log_scale


def _least_squares(
    model: SwitchingRegression, weight: Tensor, design: Tensor, values: Tensor, shared: tuple[int, ...]
) -> Float[Tensor, "run regime regressor target"]:
    """Return the coefficients that minimise the squares weighted by the regimes' probabilities and precisions."""
    runs, regimes, size, targets = model.coefficient.shape
    choose = _chosen(regimes, size, shared).to(values)  # each free number stands in one place of each regime, or of all
    flat = weight.flatten(1).mT  # runs and regimes as rows: one product for all moments
    rows = max(_NUMBERS // size**2, 1)  # hundreds of lags have more products than memory holds
    parts = zip(flat.split(rows, 1), design.split(rows), strict=True)
    moments = sum((own @ (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(1) for own, x in parts), flat.new_zeros(()))
    moments = moments.reshape(runs, regimes, size, size)
    cross = (flat @ (design.unsqueeze(-1) * values.unsqueeze(-2)).flatten(1)).reshape(model.coefficient.shape)
    # The smallest solution where regressors are collinear, or a regime is never visited.
    if not shared:  # then targets do not weigh on one another
        among = (choose.mT @ moments @ choose).sum(1)
        free = torch.linalg.pinv(among, hermitian=True) @ (choose.mT @ cross).sum(1)
    else:
        precision = torch.cholesky_inverse(cholesky(model.cov, "the covariance of a regime"))
        among = torch.einsum("kia,rkij,kjb,rkop->raobp", choose, moments, choose, precision)
        towards = torch.einsum("kia,rkip,rkop->rao", choose, cross, precision).flatten(1)
        solved = torch.linalg.pinv(among.flatten(3).flatten(1, 2), hermitian=True) @ towards.unsqueeze(-1)
        free = solved.reshape(runs, -1, targets)
    return choose @ free.unsqueeze(1)


@functools.lru_cache(16)
@torch.inference_mode(False)  # a cached tensor of inference mode could not be used in training
def _chosen(regimes: int, size: int, shared: tuple[int, ...]) -> Float[Tensor, "regime regressor number"]:
    """Return which free number each coefficient of each regime is: those of the regimes, then the shared ones."""
    own = [number for number in range(size) if number not in shared]
    choose = torch.zeros(regimes, size, regimes * len(own) + len(shared))
    for k in range(regimes):
        choose[k, own, torch.arange(len(own)) + k * len(own)] = 1
        choose[k, list(shared), torch.arange(len(shared)) + regimes * len(own)] = 1
    return choose
