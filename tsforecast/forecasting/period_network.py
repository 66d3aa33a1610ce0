"""The log-density of a period as a function of a forecaster's parameters, and windows as rows of numbers."""

import dataclasses
import math
from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn

from tsforecast.data.calendar.frequency import expected_alias_warnings
from tsforecast.learners import AbstractNetwork
from tsforecast.models import AbstractForecaster, Batch

_PER_STEP = ("target", "observed", "time_feat", "season_index", "dynamic_real")
_DIGIT = 1 << 22  # float32 has all whole numbers below 2^24; three digits hold 64 bits


@dataclasses.dataclass(frozen=True)
class WindowRows:
    """Windows of a past, a new period and all that a model reads of them, each as one row of numbers.

    A learner's inputs are tensors, and those that keep some of them read them again later. A row has the whole window,
    and the time at which its period begins.
    """

    horizon: int  # steps of a period
    columns: tuple[int, ...]  # columns of target, mask, time features, seasons and covariates, in a step
    num_static_cat: int  # number of static categories
    num_static_real: int  # number of static numbers

    @classmethod
    def of(cls, net: AbstractForecaster, horizon: int) -> "WindowRows":
        """Return the rows of a model's windows."""
        data = net.data
        seasons = len(net.dynamics.season_names)
        columns = (data.num_targets, data.num_targets, data.num_time_features, seasons, data.num_dynamic_real)
        return cls(horizon, columns, len(data.cardinality), data.num_static_real)

    def _parts(self, past: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Return shape and type of each part of a window, in the order of a row."""
        types = (torch.float64, torch.bool, torch.float32, torch.int64, torch.float32)
        found: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
            "start": ((3,), torch.float64),
            "series_index": ((), torch.int64),
            "static_cat": ((self.num_static_cat,), torch.int64),
            "static_real": ((self.num_static_real,), torch.float32),
        }
        targets, *others = self.columns
        for name, columns, kind in zip(_PER_STEP, (2 * targets, *others), types, strict=True):
            found[f"future_{name}"] = ((self.horizon, columns), kind)
            found[f"past_{name}"] = ((past, columns), kind)
        return {**found, "past_is_pad": ((past,), torch.bool)}

    def width(self, past: int) -> int:
        """Return the numbers in a row with so many steps of the past."""
        return sum(math.prod(shape) for shape, _ in self._parts(past).values())

    def pack(self, batch: Batch, starts: Sequence[pd.Period], like: Tensor) -> Float[Tensor, "window number"]:
        """Return windows as rows; values that are missing become 0."""
        count, past = batch["past_is_pad"].shape
        digits = [
            [start.ordinal // _DIGIT**2, start.ordinal // _DIGIT % _DIGIT, start.ordinal % _DIGIT] for start in starts
        ]
        given = {**batch, "start": torch.tensor(digits, dtype=torch.float64)}
        for part in ("past", "future"):
            values = torch.where(batch[f"{part}_observed"], batch[f"{part}_target"].double(), 0.0)
            rounded = values.float().double()  # and the digits that float32 has not
            given[f"{part}_target"] = torch.cat([rounded, values - rounded], -1)
        columns = []
        for name, (shape, _) in self._parts(past).items():
            part = given[name]
            assert part.shape == (count, *shape), f"{name}: {tuple(part.shape)}"
            columns.append(part.reshape(count, -1).to(like))
        return torch.cat(columns, 1)

    def unpack(self, rows: Float[Tensor, "window number"]) -> Batch:
        """Return the batch of windows behind rows."""
        past = (rows.shape[-1] - self.width(0)) // (self.width(1) - self.width(0))
        parts = self._parts(past)
        pieces = rows.split([math.prod(shape) for shape, _ in parts.values()], -1)
        found = {
            name: piece.reshape(len(rows), *shape).to(kind)
            for (name, (shape, kind)), piece in zip(parts.items(), pieces, strict=True)
        }
        for name in ("past_target", "future_target"):
            rounded, rest = found[name].chunk(2, -1)
            found[name] = rounded + rest
        return found

    def starts(self, rows: Float[Tensor, "window number"], freq: str) -> list[pd.Period]:
        """Return where the periods of windows begin."""
        ordinals = [int(a) * _DIGIT**2 + int(b) * _DIGIT + int(c) for a, b, c in rows[:, :3]]
        with expected_alias_warnings():
            return list(pd.PeriodIndex.from_ordinals(ordinals, freq=freq))


class Evidence(nn.Module):
    """The log-density of a period for each series; a module, so that its parameters may be replaced."""

    def __init__(self, net: AbstractForecaster, evidence: str) -> None:
        super().__init__()
        self.net = net
        self.evidence = evidence

    def forward(self, batch: Batch) -> Float[Tensor, " series"]:
        """Return the log-density of each window's period, given its past."""
        if self.evidence == "likelihood" or self.net.training_options.objective == "likelihood":
            found = self.net.log_likelihood(batch)
        else:
            found = -self.net.loss(batch) * batch["future_observed"].flatten(1).sum(1)
        return found.to(next(self.net.parameters()).dtype)  # transformations of targets are in float64


@dataclasses.dataclass(frozen=True)
class PeriodNetwork(AbstractNetwork):
    """The log-density of a period as a function of a forecaster's parameters, for each window.

    Inputs are windows as rows of numbers, so that what a learner keeps of them can be scored again later.
    """

    evidence: Evidence  # the log-density of a batch
    names: tuple[str, ...]  # names of the parameters that are learnt, in the order of the vector
    rows: WindowRows  # how windows are rows

    def _parameters(self) -> dict[str, nn.Parameter]:
        named = dict(self.evidence.net.named_parameters())
        return {name: named[name] for name in self.names}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of weights of each parameter."""
        return tuple(p.numel() for p in self._parameters().values())

    def weights(self) -> Float[Tensor, " weight"]:
        """Return the present parameters of the model as one vector."""
        return torch.cat([p.detach().flatten() for p in self._parameters().values()])

    def load(self, weights: Float[Tensor, " weight"]) -> None:
        """Puts weights into the model."""
        for p, part in zip(self._parameters().values(), weights.split(list(self.sizes)), strict=True):
            p.data.copy_(part.view_as(p))

    def _values(self, weights: Tensor, windows: Batch) -> Tensor:
        parts = zip(self._parameters().items(), weights.split(list(self.sizes)), strict=True)
        values = {f"net.{name}": part.view_as(p) for (name, p), part in parts}
        return torch.func.functional_call(self.evidence, values, (windows,))

    def __call__(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point number"]
    ) -> Float[Tensor, "point 1"]:
        """Return the log-density of the period of each window."""
        return self._values(weights, self.rows.unpack(inputs)).unsqueeze(-1)

    def linearise(
        self, weights: Float[Tensor, " weight"], inputs: Float[Tensor, "point number"]
    ) -> tuple[Float[Tensor, "point 1"], Float[Tensor, "point 1 weight"]]:
        """Return the log-densities and their gradients, window by window."""

        def one(theta: Tensor, window: Batch) -> Tensor:
            return self._values(theta, {name: value.unsqueeze(0) for name, value in window.items()})[0]

        both = torch.func.vmap(torch.func.grad_and_value(one), (None, 0), randomness="different")
        gradient, value = both(weights, self.rows.unpack(inputs))
        return value.unsqueeze(-1), gradient.unsqueeze(1)
