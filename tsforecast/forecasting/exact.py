"""Forecasts whose quantiles are exact, or those of a mixture over paths of switches."""

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import torch
from gluonts.model.forecast import Quantile, SampleForecast
from numpy.typing import NDArray

from tsforecast.core.gaussian import map_tensors
from tsforecast.data.effects.taken import Taken
from tsforecast.forecasting import closed_phases, counts
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.transformations import transformation_of

_SCORES = np.linspace(-3.0, 3.0, 25)  # of quantiles between which a value is placed
_MIDDLES = tuple((np.arange(200) + 0.5) / 200)  # levels whose quantiles have the mean of a distribution


class BatchMarginals:
    """Exact quantiles and means of a batch of series, each computed for all of them when the first is asked.

    Args:
        marginals: Distributions of the targets, divided by powers of two.
        exponents: The exponents of these powers, (series, target).
        taken: Effects of covariates that were taken from the targets; None for none.
    """

    def __init__(self, marginals: Marginals, exponents: NDArray[np.int64], taken: Taken | None = None) -> None:
        on_cpu = marginals.mean.device.type == "cpu"  # to ask each tensor takes as long as a quantile
        self.marginals = marginals if on_cpu else map_tensors(lambda x: x.cpu(), marginals)
        self.exponents, self.taken = exponents, taken
        self._quantiles: dict[tuple[float, ...], NDArray[np.float64]] = {}

    def quantiles(self, levels: tuple[float, ...]) -> NDArray[np.float64]:
        """Return quantiles (level, series, horizon, target) in the units of the data."""
        if levels not in self._quantiles:
            found = self.marginals.quantile(torch.tensor(levels, dtype=torch.float64)).numpy()
            found = np.ldexp(found, self.exponents[:, None])
            self._quantiles[levels] = found if self.taken is None else self.taken.restored(found)
        return self._quantiles[levels]

    def normal_scores(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the standard normal quantiles of the probabilities below values (series, horizon, target).

        Where effects of covariates bend the scale, they are found among quantiles.
        """
        if self.taken is not None:
            levels = tuple(NormalDist().cdf(score) for score in _SCORES)
            known = self.quantiles(levels)
            rows = np.moveaxis(known, 0, -1).reshape(-1, len(levels))
            flat = [np.interp(value, row, _SCORES) for value, row in zip(values.ravel(), rows, strict=True)]
            return np.reshape(flat, values.shape)
        sized = torch.from_numpy(np.ldexp(values, -self.exponents[:, None]))
        return self.marginals.normal_score(sized).numpy()

    @cached_property
    def mean(self) -> NDArray[np.float64]:
        """Return means (series, horizon, target) in the units of the data, those of low counts by models of counts.

        Behind effects of covariates they are integrals over each component of a mixture.
        """
        marginals, taken = _of_counts(self.marginals), self.taken
        if taken is None:
            return np.ldexp(marginals.expectation().numpy(), self.exponents[:, None])
        weight = marginals.log_weight.softmax(1)
        means = marginals.means_of(
            lambda x: torch.from_numpy(taken.restored(np.ldexp(x.double().numpy(), self.exponents[:, None])))
        )
        weight = weight.reshape(*weight.shape, *[1] * (4 - weight.ndim))
        return (weight * means).sum(1).double().numpy()

    @cached_property
    def weights(self) -> tuple[list[str], NDArray[np.float64]]:
        """Return the names of models, and their weights (series, model): means over targets, where each has its own."""
        places = {name: place for place, name in enumerate(dict.fromkeys(self.marginals.names))}
        shares = self.marginals.log_weight.double().exp()
        shares = shares.reshape(*shares.shape[:2], -1).mean(2)[:, : len(self.marginals.names)]
        found = shares.new_zeros(len(shares), len(places))
        found.index_add_(1, torch.tensor([places[name] for name in self.marginals.names], dtype=torch.int64), shares)
        return [*places], found.numpy()

    def of(self, series: int) -> "BatchMarginals":
        """Return those of one of the series."""
        rows = slice(series, series + 1)
        taken = None if self.taken is None else self.taken.of(rows)
        return BatchMarginals(self.marginals.of(rows), self.exponents[rows], taken)

    def of_target(self, target: int) -> "BatchMarginals":
        """Return those of one of the targets."""
        return BatchMarginals(self.marginals.of_target(target), self.exponents[:, target : target + 1], self.taken)

    # As arrays: each tensor that goes to another process keeps a file open.
    def __reduce__(self) -> tuple[Any, ...]:
        own = {field.name: getattr(self.marginals, field.name) for field in fields(self.marginals)}
        arrays = {name: x.numpy() if isinstance(x, torch.Tensor) else x for name, x in own.items()}
        return _rebuilt, (arrays, self.exponents, self.taken)


def _of_counts(marginals: Marginals) -> Marginals:
    """Return the distributions with models of counts alone, and closed phases, in series that have some.

    A Gaussian whose negative part counts as zero has far too large a mean where most values are zero.
    """
    if counts.NAME not in marginals.names:
        return marginals
    weight, names = marginals.log_weight, marginals.names
    others = torch.tensor([name not in (counts.NAME, closed_phases.NAME) for name in names])
    alone = weight.masked_fill(others.reshape(-1, *[1] * (weight.ndim - 2)), -torch.inf)
    has_some = weight[:, [name == counts.NAME for name in names]].isfinite().any(1, keepdim=True)
    return replace(marginals, log_weight=torch.where(has_some, alone, weight).log_softmax(1))


def widened(marginals: Marginals, taken: Taken | None, exponents: NDArray[np.int64]) -> Marginals:
    """Return distributions with the uncertainty of effects that were taken, to the first order.

    A deviation of the effect is one of each component in the units of its transformation; it adds to the component's
    own as independent ones do. Values that are known stay so.

    Args:
        marginals: Distributions of targets without the effects, divided by powers of two.
        taken: The effects; None for none.
        exponents: The exponents of these powers, (series, target).
    """
    if taken is None or taken.doubt is None or not taken.doubt.any():
        return marginals
    powers, deviations = exponents[:, None], []
    parts = zip(*(x.unbind(1) for x in (marginals.mean, marginals.deviation, marginals.size)), strict=True)
    for (mean, deviation, size), name in zip(parts, marginals.transformations, strict=True):
        kind, unit = transformation_of(name), size.double().cpu().unsqueeze(1)
        middle = np.ldexp((kind.restore(mean.double().cpu()) * unit).numpy(), powers)
        up, down = (
            kind.apply(torch.from_numpy(np.ldexp(taken.deviated(middle, sign), -powers)) / unit) for sign in (1.0, -1.0)
        )
        both = torch.hypot(deviation, ((up - down) / 2).to(deviation))
        deviations.append(torch.where(deviation > 0, both, deviation))
    return replace(marginals, deviation=torch.stack(deviations, 1))


def _rebuilt(arrays: dict[str, Any], exponents: NDArray[np.int64], taken: Taken | None) -> BatchMarginals:
    """Return what was sent."""
    own: dict[str, Any] = {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in arrays.items()}
    return BatchMarginals(Marginals(**own), exponents, taken)


def normal_scores(forecasts: Sequence["ExactForecast"], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal quantiles of the probabilities below values, those of a batch of forecasts together.

    Args:
        forecasts: Of one target each.
        values: Of shape (forecast, horizon), NaN where missing.
    """
    found = np.full(values.shape, np.nan)
    batches: dict[int, list[int]] = {}
    for place, forecast in enumerate(forecasts):
        batches.setdefault(id(forecast._batch), []).append(place)
    for places in batches.values():
        batch, own = forecasts[places[0]]._batch, [forecasts[place]._series for place in places]
        every = np.zeros((len(batch.exponents), values.shape[1], 1))
        every[own, :, 0] = np.nan_to_num(values[places])
        found[places] = batch.normal_scores(every)[own, :, 0]
    return np.where(np.isnan(values), np.nan, found)


class ExactForecast(SampleForecast):
    """A forecast whose quantiles have a closed form, with joint sample paths for questions about several steps.

    Args:
        batch: Distributions of the batch of series to which it belongs.
        series: Its place in the batch.
        paths: Sample paths (sample, horizon[, target]); None if none were drawn.
        start_date: First period of the forecast.
        item_id: Name of the series.
        info: Further information.
    """

    def __init__(
        self,
        batch: BatchMarginals,
        series: int,
        paths: NDArray[Any] | None,
        start_date: pd.Period,
        item_id: str | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        self._batch, self._series, self._paths = batch, series, paths
        self.start_date, self.item_id, self.info = start_date, item_id, info
        self._sorted_samples_value = None

    def quantiles(self, levels: tuple[float, ...]) -> NDArray[np.float64]:
        """Return exact quantiles (level, horizon[, target])."""
        found = self._batch.quantiles(levels)[:, self._series]
        return found[..., 0] if self.dim() == 1 else found

    def quantile(self, q: float | str) -> NDArray[np.float64]:
        """Return the exact quantile of a level, (horizon[, target])."""
        return self.quantiles((Quantile.parse(q).value,))[0]

    @property
    def mean(self) -> NDArray[np.float64]:
        """Return the exact mean, (horizon[, target])."""
        found = self._batch.mean[self._series]
        return found[..., 0] if self.dim() == 1 else found

    @property
    def weights(self) -> dict[str, float]:
        """Return the weights of the models of a bank by name, the largest first; empty for other models."""
        names, shares = self._batch.weights
        own = shares[self._series]
        return {names[place]: float(own[place]) for place in np.argsort(-own, kind="stable")}

    def of_models(self, names: Collection[str]) -> "ExactForecast":
        """Return the forecast of some of the models in `weights`, whose weights are not all zero."""
        own = self._batch.of(self._series)
        kept = torch.tensor([name in names for name in own.marginals.names])
        weight = own.marginals.log_weight
        left_out = ~kept.reshape(-1, *[1] * (weight.ndim - 2))
        marginals = replace(own.marginals, log_weight=weight.masked_fill(left_out, -torch.inf).log_softmax(1))
        batch = BatchMarginals(marginals, own.exponents, own.taken)
        return ExactForecast(batch, 0, None, self.start_date, self.item_id, self.info)

    @property
    def samples(self) -> NDArray[Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the joint sample paths (sample, horizon[, target]); a ValueError if none were drawn."""
        if self._paths is None:
            raise ValueError(
                "expected sample paths, but none were drawn: give num_samples of at least 1; quantiles and mean, which "
                "are exact, need none"
            )
        return self._paths

    @property
    def num_samples(self) -> int:
        """Return the number of sample paths, which may be 0."""
        return 0 if self._paths is None else len(self._paths)

    @property
    def prediction_length(self) -> int:
        """Return the steps of the forecast."""
        return self._batch.marginals.mean.shape[2]

    def dim(self) -> int:
        """Return the number of targets."""
        return self._batch.marginals.mean.shape[3]

    def copy_dim(self, dim: int) -> "ExactForecast":
        """Return the forecast of one of the targets."""
        if not 0 <= dim < self.dim():
            raise ValueError(f"expected a target below {self.dim()}, got {dim}")
        paths = self._paths if self._paths is None or self.dim() == 1 else self._paths[..., dim]
        return ExactForecast(
            self._batch.of(self._series).of_target(dim), 0, paths, self.start_date, self.item_id, self.info
        )

    # Alone: the others of its batch do not travel with it.
    def __reduce__(self) -> tuple[Any, ...]:
        alone = self._batch.of(self._series)
        return ExactForecast, (alone, 0, self._paths, self.start_date, self.item_id, self.info)

    def __repr__(self) -> str:
        return (
            f"ExactForecast of {self.prediction_length} steps from {self.start_date} on, with {self.num_samples} "
            f"sample paths, item_id={self.item_id!r}, info={self.info!r}"
        )
