"""Which regimes data show: how many, with which lags, and what differs between them, by the evidence of fits."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.models.parts.markov_dynamics import parts_of
from tsforecast.models.parts.markov_fit import Fit, Kind, fit, lags_of, regression, shared_of

ORDERS, _REGIMES, _STAGES = (0, 1, 2, 3, 4), (1, 2, 3), (2, 4, 8)
_LEAST_SHARE, _LEAST_STAY = 0.02, 0.5  # of the values in each regime, and the probability to stay there
_WHOLE = ("location", "scale", "coefficients")
_SUMS = (("location",), ("scale",), ("location", "scale"), ("scale", "coefficients"), _WHOLE)
_STARTS = 6


@dataclasses.dataclass(frozen=True)
class Shape:
    """What a fit is free to have.

    Attributes:
        regimes: Number of regimes.
        order: Number of lags.
        seasonal: Whether lags of the season join them.
        switching: What differs between regimes.
        stages: Of each regime, by which durations are not geometric.
    """

    regimes: int = 2
    order: int = 1
    seasonal: bool = False
    switching: tuple[str, ...] = _WHOLE
    stages: int = 1

    def but(self, **others: Any) -> "Shape":
        """Return the same with other values; parts without a meaning are left out.

        Nothing differs in one regime, and without lags there are no coefficients that could.
        """
        new = dataclasses.replace(self, **others)
        if new.regimes == 1:
            return dataclasses.replace(new, switching=("location", "scale"), stages=1)
        if new.order:
            return new
        kept = tuple(name for name in new.switching if name != "coefficients")
        return dataclasses.replace(new, switching=kept or ("location", "scale"))

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a model."""
        found = dataclasses.asdict(self)
        return found | {"switching": "+".join(self.switching)}


@dataclasses.dataclass
class Evidence:
    """The evidence of shapes on some series: the criterion of Schwarz (1978), on values with all lags of the longest.

    Attributes:
        values: Of each series, in the units of the model.
        seen: Where they are known.
        inputs: Covariates.
        season: Main season in steps; below 2 for none.
        log_unit: Sum over all values of the logarithms of their units.
        more: Number of parameters beside those of the regression.
        longest: All lags that a shape may have.
        most: Largest order that is compared.
        seed: Of the fits.
    """

    values: Float[Tensor, "time series target"]
    seen: Bool[Tensor, "time series target"]
    inputs: Float[Tensor, "time series covariate"]
    season: int
    log_unit: Float[Tensor, "series target"]
    more: int
    longest: tuple[int, ...]
    most: int
    seed: int

    def __post_init__(self) -> None:
        self.usable = regression(self.values, self.seen, self.longest, self.inputs[..., :0]).seen
        self.count = int(self.usable.sum())
        self.found: dict[Shape, tuple[float, Fit]] = {}

    def of(self, shape: Shape) -> float:
        """Return the criterion of a shape; the smaller the better."""
        if shape not in self.found:
            lags = lags_of(shape.order, self.season if shape.seasonal and self.season > shape.order else 0)
            data = regression(self.values, self.seen, lags, self.inputs)
            # The same values for all shapes, else likelihoods cannot be compared.
            data = dataclasses.replace(data, seen=self.usable)
            targets = self.values.shape[-1]
            shared = shared_of(shape.switching, len(lags) * targets, self.inputs.shape[-1])
            kind = Kind(shape.regimes, shared, "scale" not in shape.switching, stages=shape.stages)
            found = fit(data, kind, _STARTS + targets - 1 if shape.regimes > 1 else 1, self.seed)
            own = data.design.shape[-1] - len(shared)
            free = (own * shape.regimes + len(shared)) * targets
            free += (1 if kind.one_scale else shape.regimes) * targets * (targets + 1) // 2  # symmetric covariances
            free += shape.regimes * (shape.regimes - 1) + (shape.stages > 1) + self.more  # rows of transitions sum to 1
            # Densities of scaled values become those of the data: each series has a scale of its own.
            units = float((self.log_unit.sum(-1) * self.usable.sum(0)).sum())
            criterion = -2 * (found.log_likelihood - units) + free * math.log(max(self.count, 2))
            # The probability to stay in a regime of so many stages, from that to stay in a stage.
            stays = 1 - (1 - float(found.model.log_transition.diagonal().exp().min())) / shape.stages
            if shape.regimes > 2 and (stays < _LEAST_STAY or float(found.shares.min()) < _LEAST_SHARE):
                criterion = math.inf  # outliers, and no regime that lasts
            self.found[shape] = criterion, found
        return self.found[shape][0]

    def best(self, shapes: Iterable[Shape]) -> Shape:
        """Return the shape of the least criterion, the first of equal ones."""
        return min(shapes, key=self.of)


def fixed_shape(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a shape that options fix."""
    fixed = {name: given[name] for name in ("regimes", "order", "seasonal", "stages") if name in given}
    return fixed | ({"switching": parts_of(given["switching"])} if "switching" in given else {})


def chosen_shape(evidence: Evidence, given: Mapping[str, Any]) -> Shape:
    """Return the shape that data show, by one choice after another: lags, differences, regimes, stages.

    Args:
        evidence: Of the data.
        given: Options that are not to be chosen.
    """
    fixed = fixed_shape(given)
    start = Shape().but(**fixed)
    least = "coefficients" in fixed.get("switching", ())  # coefficients that differ need a lag
    orders = [start.order] if "order" in fixed else [p for p in ORDERS if least <= p <= evidence.most] or [1]
    counts = [start.regimes] if "regimes" in fixed else _REGIMES
    best, before = evidence.best(start.but(regimes=k, order=p) for k in counts for p in orders), None
    while best != before:  # a choice may change what was chosen before it
        before = best
        best = evidence.best([best, *(best.but(order=p) for p in orders)])
        if "seasonal" not in fixed and evidence.season > 1:
            best = evidence.best([best, best.but(seasonal=not best.seasonal)])
        if "switching" not in fixed and best.regimes > 1:
            best = evidence.best([best, *(best.but(switching=one) for one in _SUMS)])
        differing = best.switching if best.regimes > 1 else start.switching
        best = evidence.best([best, *(best.but(regimes=k, switching=differing) for k in counts)])
    for stages in () if "stages" in fixed or best.regimes == 1 else _STAGES:
        if evidence.of(best.but(stages=stages)) >= evidence.of(best):
            break
        best = best.but(stages=stages)
    return best
