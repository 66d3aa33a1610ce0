"""Components of a state in continuous time, by name, and the equation that their parameters make."""

import dataclasses
import math
import re

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.continuous import AbstractSDE, DampedTrend, Matern, OrnsteinUhlenbeck, Rotations, SumSDE
from tsforecast.core.continuous.sde import block_diagonal

NANOSECONDS = {"s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9, "D": 86_400 * 10**9}
# Cycles of the calendar in nanoseconds: means, since a clock in continuous time has months and years of one length.
CYCLES = {
    "hour": NANOSECONDS["h"],
    "day": NANOSECONDS["D"],
    "week": 7 * NANOSECONDS["D"],
    "month": 30_436_875 * NANOSECONDS["D"] // 10**6,
    "year": 3_652_425 * NANOSECONDS["D"] // 10**4,
}
DEFAULT_HARMONICS = 3
# Kind -> names of its parameters, all of them logarithms, each with where it begins. Deviations are of changes in a
# unit of time (`change`), of the stationary process (`deviation`), or before the series begins (`prior`).
_PARAMETERS: dict[str, dict[str, float]] = {
    "level": {"change": -3.0, "prior": 0.0},
    "damped_level": {"deviation": -0.5, "rate": -2.0},
    "trend": {"change": -3.0, "slope": -5.0, "prior": 0.0},
    "damped_trend": {"change": -3.0, "slope": -3.0, "rate": -2.0, "prior": 0.0},
    "oscillation": {"deviation": -0.5, "rate": -2.0, "frequency": -1.0},
    "matern12": {"deviation": -0.5, "length_scale": 2.0},
    "matern32": {"deviation": -0.5, "length_scale": 2.0},
    "matern52": {"deviation": -0.5, "length_scale": 2.0},
    "cycle": {"change": -3.0, "prior": 0.0},
}
_STATIONARY = ("damped_level", "oscillation", "matern12", "matern32", "matern52")
KINDS = tuple(name for name in _PARAMETERS if name != "cycle")
_BOUNDS = {"rate": (-12.0, 4.0), "frequency": (-8.0, 2.0), "length_scale": (-3.0, 10.0), "prior": (-4.0, 3.0)}
_SCALE = (-7.0, 5.0)
_SLOPE = 0.1  # deviation of a slope before the series begins, as a share of the level's
_NAME = re.compile(
    r"(?P<cycle>\w+?|cycle_of_(?P<count>\d+)(?P<unit>s|min|h|D))(?:_with_(?P<harmonics>[1-9]\d*)_harmonics?)?"
)


@dataclasses.dataclass(frozen=True)
class TimedComponent:
    """A component by its name.

    Attributes:
        name: As it was written.
        kind: One of `KINDS`, or "cycle".
        length: Of a cycle, in nanoseconds; 0 for others.
        harmonics: Of a cycle; 0 for others.
    """

    name: str
    kind: str
    length: int = 0
    harmonics: int = 0

    @property
    def initial(self) -> dict[str, float]:
        """Return where its parameters begin, by name."""
        return _PARAMETERS[self.kind]

    @property
    def size(self) -> int:
        """Return the number of its states."""
        sizes = {"trend": 2, "damped_trend": 2, "oscillation": 2, "matern32": 2, "matern52": 3}
        return 2 * self.harmonics if self.kind == "cycle" else sizes.get(self.kind, 1)

    def equation(self, own: dict[str, Tensor], unit: int) -> AbstractSDE:
        """Return its equation.

        Args:
            own: Parameters by name, each of shape (series,), bounded.
            unit: Of time, in nanoseconds.
        """
        change = (2 * own["change"]).exp() if "change" in own else None  # parameters are logarithms of deviations
        rate = own["rate"].exp() if "rate" in own else None
        if self.kind == "cycle":
            assert change is not None
            order = torch.arange(1, self.harmonics + 1, dtype=change.dtype, device=change.device)
            turn = 2 * math.pi * unit / self.length
            return Rotations(order * turn, change * (unit / self.length))  # that of a cycle, spread over its time
        if self.kind == "level":
            assert change is not None
            return OrnsteinUhlenbeck(torch.zeros_like(change), change)
        if self.kind == "trend":
            assert change is not None
            return DampedTrend(torch.zeros_like(change), change, (2 * own["slope"]).exp())
        if self.kind == "damped_trend":
            assert change is not None
            assert rate is not None
            return DampedTrend(rate, change, (2 * own["slope"]).exp())
        variance = (2 * own["deviation"]).exp()
        if self.kind.startswith("matern"):
            return Matern("135".index(self.kind[-2]), own["length_scale"].exp(), variance)
        assert rate is not None
        if self.kind == "damped_level":
            return OrnsteinUhlenbeck(rate, 2 * rate * variance)  # its stationary variance is then `variance`
        return Rotations(own["frequency"].exp().unsqueeze(-1), 2 * rate * variance, rate)

    def prior_cov(self, own: dict[str, Tensor], equation: AbstractSDE) -> Float[Tensor, "series state state"]:
        """Return the covariance of its states before the series begins: the stationary one where there is one."""
        if isinstance(equation, Matern):
            return equation.stationary
        if "prior" in own:
            shares = [1.0, _SLOPE] if self.size == 2 and self.kind != "cycle" else [1.0] * self.size
            deviation = own["prior"].exp().unsqueeze(-1) * own["prior"].new_tensor(shares)
            return torch.diag_embed(deviation.square())
        variance = (2 * own["deviation"]).exp()
        return torch.diag_embed(variance.unsqueeze(-1).expand(-1, self.size))


@dataclasses.dataclass(frozen=True)
class TimedStructure:
    """A sum of components in continuous time.

    Attributes:
        components: At least one.
        unit: Of time, in nanoseconds.
    """

    components: tuple[TimedComponent, ...]
    unit: int

    @classmethod
    def of(cls, components: str, unit: int) -> "TimedStructure":
        """Return the structure of a description such as "level+damped_level+day_with_2_harmonics".

        Args:
            components: Names joined by "+".
            unit: Of time, in nanoseconds.

        Raises:
            ValueError: If a name is not known, or stands twice.
        """
        parsed = tuple(parse_timed(name.strip()) for name in components.split("+"))
        lengths = [one.length or one.name for one in parsed]
        if len(set(lengths)) < len(lengths):  # a day and a cycle of 24 h are one component
            raise ValueError(f"expected every component once, got {components!r}")
        return cls(parsed, unit)

    @property
    def cycles(self) -> tuple[int, ...]:
        """Return the lengths of all cycles, in nanoseconds, in the order of the phases that a batch carries."""
        return tuple(one.length for one in self.components if one.kind == "cycle")

    @property
    def num_states(self) -> int:
        """Return the number of states of all components."""
        return sum(one.size for one in self.components)

    @property
    def num_means(self) -> int:
        """Return the number of coefficients of all cycles at their beginning."""
        return sum(one.size for one in self.components if one.kind == "cycle")

    @property
    def fades(self) -> Bool[Tensor, " state"]:
        """Return a mask of the states that return to zero: those of stationary components."""
        return torch.tensor([one.kind in _STATIONARY for one in self.components for _ in range(one.size)])

    @property
    def initial(self) -> Float[Tensor, " parameter"]:
        """Return where all parameters begin, side by side."""
        return torch.tensor([value for one in self.components for value in one.initial.values()])

    def equations(
        self, parameters: Float[Tensor, "series parameter"]
    ) -> tuple[SumSDE, Float[Tensor, "series state state"]]:
        """Return the equation of all states, and their covariance before the series begin."""
        parts, covs, first = [], [], 0
        for one in self.components:
            own = {}
            for name in one.initial:
                own[name] = parameters[:, first].clamp(*_BOUNDS.get(name, _SCALE))
                first += 1
            parts.append(one.equation(own, self.unit))
            covs.append(one.prior_cov(own, parts[-1]))
        return SumSDE(parts), block_diagonal(covs)

    def prior(
        self,
        cov: Float[Tensor, "series state state"],
        means: Float[Tensor, " mean"],
        phases: Float[Tensor, "series cycle"],
    ) -> Gaussian:
        """Return the prior over the states at the beginning: cycles have turned as far as the calendar says.

        Args:
            cov: As `equations` gives it.
            means: Coefficients of all cycles where they begin, cosine and sine of each harmonic.
            phases: Share of each cycle that has passed at the beginning of each series.
        """
        parts, first, cycle = [], 0, 0
        for one in self.components:
            if one.kind != "cycle":
                parts.append(cov.new_zeros(len(phases), one.size))
                continue
            cosine, sine = means[first : first + one.size].unflatten(0, (-1, 2)).unbind(-1)
            order = torch.arange(1, one.harmonics + 1, dtype=cov.dtype, device=cov.device)
            angle = 2 * math.pi * order * phases[:, cycle, None]
            # As `Rotations` turns a pair.
            turned = [cosine * angle.cos() + sine * angle.sin(), sine * angle.cos() - cosine * angle.sin()]
            parts.append(torch.stack(turned, -1).flatten(1))
            first, cycle = first + one.size, cycle + 1
        return Gaussian(torch.cat(parts, -1), cov)

    def parts_of(self, states: Gaussian, readout: Float[Tensor, "*#series state"]) -> dict[str, tuple[Tensor, Tensor]]:
        """Return mean and deviation of every component by name, (time, series), given beliefs over the states."""
        parts, first = {}, 0
        for one in self.components:
            where = slice(first, first + one.size)
            row, first = readout[..., where], first + one.size
            mean = (row * states.mean[..., where]).sum(-1)
            variance = ((states.cov[..., where, where] @ row.unsqueeze(-1)).squeeze(-1) * row).sum(-1)
            parts[one.name] = mean, variance.clamp_min(0).sqrt()  # rounding may leave a variance below 0
        return parts


def parse_timed(name: str) -> TimedComponent:
    """Return the component of a name.

    Raises:
        ValueError: If it is not known.
    """
    if name in KINDS:
        return TimedComponent(name, name)
    match = _NAME.fullmatch(name)
    if match and (match["cycle"] in CYCLES or match["count"]):
        length = (
            CYCLES[match["cycle"]] if match["cycle"] in CYCLES else int(match["count"]) * NANOSECONDS[match["unit"]]
        )
        if length:
            return TimedComponent(name, "cycle", length, int(match["harmonics"] or DEFAULT_HARMONICS))
    raise ValueError(
        f"unknown component {name!r}: in continuous time there are {', '.join([*KINDS, *CYCLES])}, "
        "year_with_5_harmonics, cycle_of_12h or cycle_of_90min_with_2_harmonics, joined by '+', or 'auto'"
    )


def usual_components(span: int, unit: int, daily: float) -> str:
    """Return the components that data are likely to have: a level, a damped level, and the cycles that they show.

    Args:
        span: Median time from the first to the last observation of a series, in nanoseconds.
        unit: Median gap, likewise.
        daily: Share of the hours of the day in which there are observations.
    """
    names = ["level", "damped_level"]
    for name, least in (("day", 3), ("week", 4), ("year", 2)):
        if span >= least * CYCLES[name] and 4 * unit <= CYCLES[name] and (name != "day" or daily > 0.2):
            names.append(name)
    return "+".join(names)
