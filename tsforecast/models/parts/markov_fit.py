"""Fits of Markov-switching regressions by EM in closed form, from regimes that residuals suggest."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.regimes.em import Expected, SwitchingRegression, at_least, em_step, expected, maximised

_FEW, _MANY = 12, 60  # steps of EM of every start, and at most of the best one after them
_PIECE = 128  # steps of a piece: those of a series are taken one after the other, as pieces side by side
_NEAR = 9  # steps around a residual that tell which regime it is of
_CONVERGED = 1e-5  # gain of log-likelihood per value
_LEAST_SHARE = 1e-3  # of the variance of all residuals, that a regime must have: else one value could be a regime
_MOST_LEAVE = 0.9  # probability to leave a stage, at first
_LEAST_LOG = -7.0  # of the probability to go from regime to regime


@dataclasses.dataclass(frozen=True)
class Regression:
    """What is explained, and by what; `seen` is False where a value or one of its regressors is missing.

    Attributes:
        design: Regressors, the first of them 1; finite everywhere.
        values: What is explained; finite everywhere.
        seen: Where all are known.
    """

    design: Float[Tensor, "time series regressor"]
    values: Float[Tensor, "time series target"]
    seen: Bool[Tensor, "time series"]

    def pieces(self) -> "Regression":
        """Return the same in short pieces, as series of their own; those without a value are left out."""
        steps = len(self.values)
        size = min(_PIECE, steps)
        more = -steps % size

        def folded(x: Tensor) -> Tensor:
            whole = torch.cat([x, x.new_zeros(more, *x.shape[1:])]) if more else x
            return whole.unflatten(0, (-1, size)).transpose(0, 1).flatten(1, 2)

        seen = folded(self.seen)
        kept = seen.any(0)
        return Regression(folded(self.design)[:, kept], folded(self.values)[:, kept], seen[:, kept])


@dataclasses.dataclass(frozen=True)
class Kind:
    """What a fit is free to choose.

    Attributes:
        regimes: Number of regimes.
        shared: Numbers of the regressors whose coefficients all regimes share.
        one_scale: Whether all regimes share the covariance.
        persistence: Probability to stay in a regime, at first.
        stages: Of each regime, which give durations that are not geometric.
    """

    regimes: int
    shared: tuple[int, ...] = ()
    one_scale: bool = False
    persistence: float = 0.9
    stages: int = 1


@dataclasses.dataclass(frozen=True)
class Fit:
    """A fitted regression.

    Attributes:
        model: Its parameters.
        log_likelihood: Of all values.
        shares: Of the values in each regime.
    """

    model: SwitchingRegression
    log_likelihood: float
    shares: Float[Tensor, " regime"]


@torch.no_grad()
def fit(data: Regression, kind: Kind, starts: int, seed: int) -> Fit:
    """Return the most likely parameters of several runs of EM.

    Runs begin with regimes that differ in noise, level or persistence nearby, see `_clusters`. Regimes have one stage
    at first; in the best run they then have those that are asked for.

    Args:
        data: With at least one value that is seen.
        kind: What is free.
        starts: Number of runs.
        seed: Of the random mixtures.
    """
    data = data.pieces()
    rows, wanted = data.design[data.seen], data.values[data.seen]
    coefficient = torch.linalg.pinv(rows) @ wanted  # lags of several targets are often collinear
    residual = torch.where(data.seen.unsqueeze(-1), data.values - data.design @ coefficient, 0.0)
    cov = residual.flatten(0, 1).mT @ residual.flatten(0, 1) / len(wanted)
    cov = cov + torch.diag_embed((1e-8 - cov.diagonal()).clamp_min(0.0))  # a variance of rounding is none
    floor = max(_LEAST_SHARE * float(cov.diagonal().min()), torch.finfo(wanted.dtype).tiny)
    cov = at_least(cov, floor)  # of targets that are the same but for a constant
    options = {"shared": kind.shared, "shared_cov": kind.one_scale, "floor": floor}
    count = kind.regimes
    stay = torch.eye(count, dtype=wanted.dtype)
    leave = (1 - kind.persistence) / max(count - 1, 1)
    transition = torch.log_softmax((stay * (kind.persistence - leave) + leave).log(), -1)
    model = SwitchingRegression(
        coefficient.expand(starts, count, -1, -1), cov.expand(starts, count, -1, -1), transition.expand(starts, -1, -1)
    )
    weight = _clusters(data, residual, count, starts, seed)
    none = weight.new_zeros(starts, count)
    terms = weight.new_zeros(starts, weight.shape[2])
    # The first M-step has guessed regimes, and moves by the transition that the model begins with.
    guessed = Expected(weight, transition.exp().expand(starts, -1, -1), none, terms)
    model = maximised(model, guessed, data.design, data.values, **options)

    def step(model: SwitchingRegression) -> tuple[SwitchingRegression, Tensor]:
        model, terms = em_step(model, data.design, data.values, data.seen, **options)
        # A transition that no step took would never come back.
        bounded = torch.log_softmax(model.log_transition.clamp_min(_LEAST_LOG), -1)
        return dataclasses.replace(model, log_transition=bounded), terms.sum(-1)

    terms = wanted.new_zeros(starts)
    for _ in range(_FEW):
        model, terms = step(model)
    best = int(terms.argmax())  # most starts end in a worse maximum, so one alone goes on
    model = SwitchingRegression(
        model.coefficient[best : best + 1],
        model.cov[best : best + 1],
        faster(model.log_transition[best : best + 1], kind.stages),
        stages=kind.stages,
    )
    before = float(terms[best])
    for _ in range(_MANY):
        model, terms = step(model)
        if float(terms[0]) - before < _CONVERGED * len(wanted):
            break
        before = float(terms[0])
    found = expected(model, data.design, data.values, data.seen)
    shares = found.weight.sum((0, 1, 2)) / len(wanted)
    one = dataclasses.replace(
        model, coefficient=model.coefficient[0], cov=model.cov[0], log_transition=model.log_transition[0]
    )
    return Fit(one, float(found.log_likelihood.sum()), shares)


def ordered(model: SwitchingRegression, by_noise: bool) -> SwitchingRegression:
    """Return the regimes from calm to wild, or from low to high."""
    variance = model.cov.diagonal(dim1=-2, dim2=-1)
    key = variance.log().mean(-1) if by_noise else model.coefficient[:, 0].mean(-1)
    order = key.argsort()
    transition = model.log_transition[order][:, order]
    return SwitchingRegression(model.coefficient[order], model.cov[order], transition, stages=model.stages)


def faster(log_transition: Float[Tensor, "*run regime regime"], stages: int) -> Float[Tensor, "*run regime regime"]:
    """Return transitions of stages for regimes that last as long as with a single one."""
    if stages == 1 or log_transition.shape[-1] == 1:
        return log_transition
    leave = log_transition.exp() * (1 - torch.eye(log_transition.shape[-1], dtype=log_transition.dtype))
    total = leave.sum(-1, keepdim=True)
    # A regime of fewer steps than stages cannot be left sooner.
    leave = leave * stages * (_MOST_LEAVE / (stages * total)).clamp_max(1.0)
    return (leave + torch.diag_embed(1 - leave.sum(-1))).log()


def _clusters(
    data: Regression, residual: Float[Tensor, "time series target"], count: int, starts: int, seed: int
) -> Float[Tensor, "time run series regime"]:
    """Return hard regimes by what is near a step, and then by random sums of it.

    It is the size of residuals, the level of values, and the persistence and the mean of residuals, of each target.
    """
    seen = data.seen
    kernel = residual.new_ones(1, 1, _NEAR)

    def near(x: Tensor) -> Tensor:
        return torch.nn.functional.conv1d(x.T.unsqueeze(1), kernel, padding=_NEAR // 2).squeeze(1).T

    number = near(seen.to(residual.dtype)).clamp_min(1.0)
    unit = residual[seen].square().mean(0).sqrt().clamp_min(1e-150)  # a regression without a residual
    whole = (residual / unit).square().sum(-1)
    size = (near(whole) / number).clamp_min(1e-12).log()
    lagged = torch.cat([residual[:1] * 0, residual[:-1]])
    each = (x for y in (data.values, residual * lagged, residual) for x in y.unbind(-1))
    # All in the same form, so that random sums weigh them alike.
    features = torch.stack([size, *(near(x) / number for x in each)])
    known = features[:, seen]
    features = (features - known.mean(1)[:, None, None]) / known.std(1, correction=0).clamp_min(1e-300)[:, None, None]
    generator = torch.Generator().manual_seed(seed)
    mixed = torch.randn(max(starts - len(features), 0), len(features), generator=generator, dtype=residual.dtype)
    ways = torch.cat([torch.eye(len(features), dtype=residual.dtype), mixed])[:starts]
    weights = []
    for way in ways:
        score = torch.einsum("f,fts->ts", way, features)
        cuts = score[seen].quantile(torch.arange(1, count, dtype=residual.dtype) / count) if count > 1 else score[:0, 0]
        regime = torch.bucketize(score, cuts)  # quantiles: each regime begins with as many values
        weights.append(torch.nn.functional.one_hot(regime, count).to(residual.dtype) * seen.unsqueeze(-1))
    return torch.stack(weights, 1)


def regression(
    values: Float[Tensor, "time series target"],
    seen: Bool[Tensor, "time series target"],
    lags: tuple[int, ...],
    inputs: Float[Tensor, "time series covariate"],
) -> Regression:
    """Return the regression on one, lags of all targets, lag by lag, and covariates."""
    usable = seen = seen.all(-1)
    columns = [torch.ones_like(values[..., :1])]
    for lag in lags:
        columns.append(torch.cat([torch.zeros_like(values[:lag]), values[:-lag]])[: len(values)])
        usable = usable & torch.cat([torch.zeros_like(seen[:lag]), seen[:-lag]])[: len(values)]
    return Regression(torch.cat([*columns, inputs], -1), torch.where(usable.unsqueeze(-1), values, 0.0), usable)


def lags_of(order: int, season: int) -> tuple[int, ...]:
    """Return the lags 1 to the order, and the season and as many behind it; no seasonal ones where it is below 2."""
    seasonal = range(season, season + order + 1) if season > 1 else ()
    return tuple(sorted({*range(1, order + 1), *seasonal}))


def shared_of(switching: tuple[str, ...], lags: int, covariates: int) -> tuple[int, ...]:
    """Return the numbers of the regressors with coefficients that all regimes share."""
    kinds = ["location", *["coefficients"] * lags, *["effects"] * covariates]
    return tuple(number for number, kind in enumerate(kinds) if kind not in switching)
