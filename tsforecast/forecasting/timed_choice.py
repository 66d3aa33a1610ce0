"""Which cycles and rhythms few observations show, by the density of each observation given all others."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import kalman
from tsforecast.core.gaussian import map_tensors
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.models import AbstractForecaster, Batch, ExactInference
from tsforecast.models.parts.continuous_dynamics import TimedISSMDynamics
from tsforecast.models.parts.continuous_structure import TimedStructure, parse_timed
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Series

log = logging.getLogger(__name__)

ENOUGH = 50  # observations for each coefficient of a cycle that is fitted, and not integrated out
_STEPS = 20  # of L-BFGS: each evaluates the likelihood about once
_STANDARD_ERRORS = 2.0  # by which a cycle has to be ahead (Vehtari, Gelman and Gabry 2017)


def has_enough(components: str, unit: int, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the observations of all series suffice to fit the coefficients of all cycles."""
    observed = sum(int(np.isfinite(entry["target"]).sum()) for entry in entries)
    return observed >= ENOUGH * TimedStructure.of(components, unit).num_means


def cycles_shown(
    components: str, entries: Sequence[Mapping[str, Any]], make: Callable[[str], AbstractForecaster]
) -> str:
    """Return the components without the cycles that do not help to tell an observation from all others.

    Each cycle in turn is added to what was kept. It stays if the log densities of the observations, each given all
    others, are larger by more than two of the standard errors of their difference.
    """
    names = components.split("+")
    cycles = [name for name in names if parse_timed(name).kind == "cycle"]
    kept = [name for name in names if name not in cycles]
    best = _densities("+".join(kept), entries, make) if cycles else None
    for name in cycles:
        assert best is not None
        tried = _densities("+".join([*kept, name]), entries, make)
        if _is_ahead(tried, best):
            kept, best = [*kept, name], tried
        else:
            log.info("without the cycle %s: the observations do not show it", name)
    return "+".join(kept)


def rhythm_shown(
    components: str, entries: Sequence[Mapping[str, Any]], make: Callable[[str], AbstractForecaster]
) -> bool:
    """Return whether a size of the noise that the cycles set helps to tell an observation from all others."""
    return _is_ahead(_densities(components, entries, make, with_rhythm=True), _densities(components, entries, make))


def _is_ahead(one: Float[Tensor, " observation"], other: Float[Tensor, " observation"]) -> bool:
    gain = one - other
    return float(gain.sum()) > _STANDARD_ERRORS * float(gain.std()) * math.sqrt(len(gain))


def _densities(
    components: str,
    entries: Sequence[Mapping[str, Any]],
    make: Callable[[str], AbstractForecaster],
    with_rhythm: bool = False,
) -> Float[Tensor, " observation"]:
    """Return the log density of each observation given all others, by the most likely parameters of all series."""
    net = make(components)
    dynamics, inference = net.dynamics, net.inference
    assert isinstance(dynamics, TimedISSMDynamics)
    assert isinstance(inference, ExactInference)
    units = [[0.0, 1.0]] * net.data.num_dynamic_real
    batch = Clock.of(net, [str(entry["item_id"]) for entry in entries], units).past(entries)
    dynamics.integrate_cycles(with_rhythm)
    fitted = [dynamics.parameters_of_series.population]
    if with_rhythm:
        assert dynamics.rhythm is not None
        fitted.append(dynamics.rhythm)
    optimiser = torch.optim.LBFGS(fitted, max_iter=_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        location, scale = inference.scale_of(batch)
        time_slice = inference.slice_of(batch, "past")
        model = dynamics.linear(time_slice, Series.of(batch))
        loss = -model.system.log_likelihood(model.prior, *scaled(time_slice, location, scale)).sum()
        loss.backward()
        return loss

    optimiser.step(closure)  # pyright: ignore[reportArgumentType]
    with torch.no_grad():
        return given_others(inference, batch)


def given_others(inference: ExactInference, batch: Batch) -> Float[Tensor, " observation"]:
    """Return the log density of each observed value of one target given all others, in scaled units.

    A smoothed mean m of variance v, read without the noise r, has taken y itself for a measurement. Without it the
    error is (y - m) r / (r - v), and its variance r^2 / (r - v).
    """
    time_slice = inference.slice_of(batch, "past")
    location, scale = inference.scale_of(batch)
    values, observed = scaled(time_slice, location, scale)
    model = inference.dynamics.linear(time_slice, Series.of(batch))
    states = kalman.smooth(model.system, model.prior, values, observed).states
    at = model.system.by_step()
    emissions = [at(time)[1] for time in range(len(values))]
    read = [one.marginal(map_tensors(lambda x, t=time: x[t], states)) for time, one in enumerate(emissions)]
    unread = [one.marginal(map_tensors(torch.zeros_like, map_tensors(lambda x: x[0], states))) for one in emissions]
    noise = torch.stack([one.cov[..., 0, 0] for one in unread])
    mean = torch.stack([one.mean[..., 0] for one in read])
    left = (2 * noise - torch.stack([one.cov[..., 0, 0] for one in read])).clamp_min(1e-12 * noise)  # r - v
    error, variance = (values[..., 0] - mean) * noise / left, noise.square() / left
    density = -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
    return density if observed is None else density[observed[..., 0]]
