"""Bayesian optimisation by Thompson sampling: the next point is the least of one function drawn from a belief."""

import dataclasses
import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.decisions.ascent import Ascent
from tsforecast.decisions.surrogate import Surrogate

_GOOD = 5  # best points near which a draw is looked at


@register_record
@dataclasses.dataclass(frozen=True)
class Evaluations:
    """Knowledge of a function: all that the next point depends on.

    Attributes:
        points: Where it was evaluated, in order.
        values: There; NaN where an evaluation failed.
    """

    points: Float[Tensor, "point dim"]
    values: Float[Tensor, " point"]

    @property
    def best(self) -> tuple[Float[Tensor, " dim"], float]:
        """Return the point with the least value, and the value.

        Raises:
            ValueError: If no evaluation has succeeded.
        """
        if not bool(self.values.isfinite().any()):
            raise ValueError(f"expected an evaluation that succeeded, got {len(self.values)} that did not")
        place = self.values.nan_to_num(nan=math.inf).argmin()
        return self.points[place], self.values[place].item()


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """The evaluation whose point is the best one to take, where values are noisy.

    Attributes:
        number: Of the evaluation, from 0.
        mean: Of the function there.
        sd: Standard deviation of that mean.
    """

    number: int
    mean: float
    sd: float


@dataclasses.dataclass(frozen=True)
class TrustRegion:
    """A box around the best point for the search of the next one (TuRBO, Eriksson et al. 2019).

    It doubles after successes and halves after failures; one that has become too small begins anew at its first size.

    Attributes:
        side: Half of its width to begin with, and at most, where the whole box goes from -1 to 1.
        least: Below which it begins anew.
        successes: Better points in a row, after which it doubles.
        patience: Points in a row that are not better, after which it halves.
        neighbours: Values, at least, that the surrogate is fitted to: the nearest, and all within half as far again.

    Raises:
        ValueError: If a number is outside of its range.
    """

    side: float = 0.8
    least: float = 2.0**-9
    successes: int = 2
    patience: int = 6
    neighbours: int = 20

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.side <= 2:
            raise ValueError(f"expected 0 < least <= side <= 2, got {self.least} and {self.side}")
        if min(self.successes, self.patience) < 1 or self.neighbours < 2:
            raise ValueError(
                f"expected successes and patience from 1 and neighbours from 2, got {self.successes}, {self.patience} "
                f"and {self.neighbours}"
            )

    def side_after(self, values: Float[Tensor, " point"], initial: int) -> float:
        """Return the half width after some values, of which the first ones were no choice of the optimiser."""
        side, good, bad = self.side, 0, 0
        least = math.inf
        for k, value in enumerate(values.nan_to_num(nan=math.inf).tolist()):
            better, least = value < least, min(value, least)
            if k < initial:
                continue
            good, bad = (good + 1, 0) if better else (0, bad + 1)
            if good == self.successes:
                side, good = min(2 * side, self.side), 0
            if bad == self.patience:
                side, bad = side / 2, 0
            if side < self.least:
                side = self.side
        return side


@dataclasses.dataclass(frozen=True)
class ThompsonOptimiser:
    """Minimises a function over a box: Sobol points first, then the least point of a draw from the surrogate.

    The surrogate sees the values near the best point, standardised, in coordinates of the trust region; it is fitted
    anew for every point. The next point depends on evaluations and seed alone: a list of them is all there is to keep.

    Attributes:
        low: Lower corner of the box.
        high: Upper corner.
        surrogate: What is fitted and drawn from.
        region: Where the draw is minimised.
        ascent: How.
        initial: Sobol points to begin with.
        seed: Of all that is random.

    Raises:
        ValueError: If the corners make no box, or a number is outside of its range.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    surrogate: Surrogate = dataclasses.field(default_factory=Surrogate)
    region: TrustRegion = dataclasses.field(default_factory=TrustRegion)
    ascent: Ascent = dataclasses.field(default_factory=Ascent)
    initial: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.low or len(self.low) != len(self.high):
            raise ValueError(f"expected corners of the same length, got {self.low} and {self.high}")
        if not all(-math.inf < a < b < math.inf for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError(f"expected finite corners, low below high, got {self.low} and {self.high}")
        if self.initial < 2:
            raise ValueError(f"expected at least 2 initial points, got {self.initial}")

    @property
    def _corners(self) -> tuple[Tensor, Tensor]:
        return torch.tensor(self.low, dtype=torch.float64), torch.tensor(self.high, dtype=torch.float64)

    def init(self) -> Evaluations:
        """Return that nothing is known."""
        low = self._corners[0]
        return Evaluations(low.new_zeros(0, len(low)), low.new_zeros(0))

    def ask(self, known: Evaluations, ahead: int = 0) -> Float[Tensor, " dim"]:
        """Return where to evaluate next.

        Args:
            known: What has been evaluated.
            ahead: Points that were asked for, and whose values are still to come: the next is another draw.
        """
        low, high = self._corners
        count = len(known.values) + ahead
        fine = known.values.isfinite()
        values = known.values[fine]
        if count < self.initial or len(values) < 2 or bool((values == values[0]).all()):
            engine = torch.quasirandom.SobolEngine(len(low), scramble=True, seed=self.seed)
            place = engine.fast_forward(count).draw(1, dtype=torch.float64)[0]
            return low + place * (high - low)
        points = 2 * (known.points[fine] - low) / (high - low) - 1
        side = self.region.side_after(known.values, self.initial)
        centre = points[values.argmin()]
        local = (points - centre) / side  # the region goes from -1 to 1
        distance = local.abs().amax(-1)
        number = max(min(self.region.neighbours, len(values)), int((distance <= 1.5).sum()))
        near = distance.topk(number, largest=False).indices
        height = -values[near]
        spread = height.std()
        height = (height - height.mean()) / torch.where(spread > 0, spread, 1.0)
        seed = (self.seed + count * 0x9E3779B97F4A7C15) % 2**63
        function = self.surrogate.draw(local[near], height, seed)
        bounds = ((-1 - centre) / side).clamp(-1, 1), ((1 - centre) / side).clamp(-1, 1)
        good = local[near][height.topk(min(_GOOD, number)).indices]
        found = self.ascent(function, *bounds, good, torch.Generator().manual_seed(seed))
        place = ((centre + found * side + 1) / 2).clamp(0, 1)
        return torch.minimum(torch.maximum(low + place * (high - low), low), high)

    def recommend(self, known: Evaluations) -> Recommendation:
        """Return the evaluation at which the surrogate, given all values, expects the least function.

        The least value of a noisy function is the luckiest draw. The surrogate's mean at a point also counts the values
        around it.

        Args:
            known: What has been evaluated.

        Raises:
            ValueError: If no evaluation has succeeded.
        """
        value = known.best[1]
        low, high = self._corners
        fine = known.values.isfinite().nonzero()[:, 0]
        values = known.values[fine]
        spread = values.std(correction=0)
        if not bool(spread > 0):
            return Recommendation(int(fine[0]), value, 0.0)
        places = 2 * (known.points[fine] - low) / (high - low) - 1
        mean, sd = self.surrogate.smooth(places, (values - values.mean()) / spread, self.seed)
        least = int(mean.argmin())
        found = (mean[least] * spread + values.mean()).item()
        return Recommendation(int(fine[least]), found, (sd[least] * spread).item())

    def tell(self, known: Evaluations, point: Float[Tensor, " dim"], value: float) -> Evaluations:
        """Return the knowledge after an evaluation, also of a point that was not asked for.

        Args:
            known: Before.
            point: In the box.
            value: NaN or infinite where the evaluation failed: nothing is learnt from it, and it counts as no better.

        Raises:
            ValueError: If the point is not in the box.
        """
        low, high = self._corners
        point = torch.as_tensor(point, dtype=torch.float64)
        if point.shape != low.shape or not bool(((point >= low) & (point <= high)).all()):
            raise ValueError(f"expected a point between {self.low} and {self.high}, got {point.tolist()}")
        value = float(value) if math.isfinite(value) else math.nan
        return Evaluations(torch.cat([known.points, point[None]]), torch.cat([known.values, point.new_tensor([value])]))

    def minimise(
        self, function: Callable[[Tensor], float | Tensor], evaluations: int, known: Evaluations | None = None
    ) -> Evaluations:
        """Return the knowledge after some evaluations of a function.

        Args:
            function: Of one point.
            evaluations: In all, with those that are known.
            known: From which to go on.
        """
        known = self.init() if known is None else known
        while len(known.values) < evaluations:
            point = self.ask(known)
            known = self.tell(known, point, float(function(point)))
        return known
