"""Bayesian optimisation: the next point is the least of a drawn function, or promises the largest improvement."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.decisions.ascent import Ascent
from tsforecast.decisions.evaluations import Evaluations, Recommendation
from tsforecast.decisions.grid import Function, Grid
from tsforecast.decisions.process import avoiding, fit_failures, fit_process, log_improvement, log_probability_below
from tsforecast.decisions.surrogate import Surrogate
from tsforecast.decisions.trust_region import TrustRegion

ACQUISITIONS = ("thompson", "ei", "mixed")
_GOOD = 5  # best points near which a draw is looked at
_FORBIDDEN = 100.0  # standard deviations of the values that an excess of one standard deviation costs a draw
_AUGMENTED = 0.05  # of the sum of objectives beside the largest one


@dataclasses.dataclass(frozen=True)
class Optimiser:
    """Minimises a function over a box: Sobol points first, then those that a surrogate says.

    By Thompson sampling the next point is the least of one function drawn from the surrogate. By expected improvement
    it is the most promising under a Gaussian process. Limits are learnt as the function is. Several objectives are
    weighed anew for every point, so that points spread along their front.

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
        acquisition: "mixed" for both in turn, "thompson" or "ei" for one of them.
        snap: Moves points to those that can be evaluated, such as whole numbers; None where all can.

    Raises:
        ValueError: If the corners make no box, or a number is outside of its range.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    surrogate: Surrogate = dataclasses.field(default_factory=Surrogate)
    region: TrustRegion = dataclasses.field(default_factory=TrustRegion)
    ascent: Ascent = dataclasses.field(default_factory=Ascent)
    initial: int = 5
    seed: int = 0
    acquisition: str = "mixed"
    snap: Function | None = None

    def __post_init__(self) -> None:
        if self.acquisition not in ACQUISITIONS:
            raise ValueError(f"expected acquisition to be {' or '.join(ACQUISITIONS)}, got {self.acquisition!r}")
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
        grid = Grid(low, high, self.snap, self.seed)
        count = len(known.values) + ahead
        fine = known.succeeded
        seed = (self.seed + count * 0x9E3779B97F4A7C15) % 2**63  # multiples of 2^64 / golden ratio lie far apart
        weights = self._weights(known, seed)
        merit = _merit(known, weights)
        seen = merit[fine]
        # Of equal values nothing can be learnt.
        if count < self.initial or len(seen) < 2 or bool((seen == seen[0]).all()):
            engine = torch.quasirandom.SobolEngine(len(low), scramble=True, seed=self.seed)
            # A point depends on how many are known, not on earlier calls.
            place = engine.fast_forward(count).draw(1, dtype=torch.float64)[0]
            return grid.new(grid.point(low + place * (high - low)), known.points)
        points = 2 * (known.points[fine] - low) / (high - low) - 1
        # With points ahead the largest improvement would be the same point again.
        by_draw = self.acquisition == "thompson" or ahead > 0 or (self.acquisition == "mixed" and count % 2 == 1)
        # Under other weights the best point is another one: better and worse in a row say nothing then.
        side = self.region.side if len(weights) > 1 else self.region.side_after(merit, self.initial)
        centre = points[seen.argmin()]
        local = (points - centre) / side  # the region goes from -1 to 1
        near = self.region.near(local)
        objectives, limits = known.objectives[fine][near], known.limits[fine][near]
        score = self._drawn if by_draw else self._improvement
        function = score(local[near], objectives, limits, weights, seed)
        if not bool(fine.all()):
            everywhere = (2 * (known.points - low) / (high - low) - 1 - centre) / side
            around = self.region.near(everywhere)
            if bool((~fine[around]).any()):
                failures = fit_failures(everywhere[around], ~fine[around])
                function = avoiding(function, failures, _FORBIDDEN if by_draw else None)
        function = grid.function(function, centre, side, known.points)
        # The part of the region that lies in the box.
        bounds = ((-1 - centre) / side).clamp(-1, 1), ((1 - centre) / side).clamp(-1, 1)
        good = local[near][seen[near].topk(min(_GOOD, len(near)), largest=False).indices]
        found = self.ascent(function, *bounds, good, torch.Generator().manual_seed(seed))
        place = ((centre + found * side + 1) / 2).clamp(0, 1)
        # Rounding may leave the box.
        return grid.new(grid.point(torch.minimum(torch.maximum(low + place * (high - low), low), high)), known.points)

    def _weights(self, known: Evaluations, seed: int) -> Float[Tensor, " objective"]:
        """Return weights of the objectives, uniform on the simplex."""
        number = known.objectives.shape[1]
        # Exponential numbers over their sum are uniform on the simplex.
        drawn = -torch.rand(number, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log()
        return drawn / drawn.sum() if number > 1 else drawn.new_ones(1)

    def _drawn(self, inputs: Tensor, objectives: Tensor, limits: Tensor, weights: Tensor, seed: int) -> Function:
        """Return the score by draws: of the objectives together (Paria et al. 2019), less for an excess over a limit.

        Thompson sampling with limits is that of Eriksson and Poloczek (2021): the best point of a draw is looked for
        where draws of the excess are at most 0.
        """
        if len(weights) == 1 and not limits.shape[1]:
            return self.surrogate.draw(inputs, -_standardised(objectives[:, 0])[0], seed)
        draws = [self.surrogate.draw(inputs, _standardised(x)[0], seed + k) for k, x in enumerate(objectives.unbind(1))]
        ideal = torch.stack([_standardised(x)[0].min() for x in objectives.unbind(1)])
        costs = []
        for k, x in enumerate(limits.unbind(1), len(draws)):
            scaled, shift, spread = _standardised(x)
            costs.append((self.surrogate.draw(inputs, scaled, seed + k), -shift / spread))

        def score(x: Tensor) -> Tensor:
            together = torch.stack([draw(x) for draw in draws], -1)
            value = together[..., 0] if len(weights) == 1 else chebyshev(together, weights, ideal)
            return -value - _FORBIDDEN * sum((excess(x) - limit).clamp_min(0) for excess, limit in costs)

        return score

    def _improvement(self, inputs: Tensor, objectives: Tensor, limits: Tensor, weights: Tensor, seed: int) -> Function:
        """Return the logarithm of the expected improvement times the probability to exceed no limit.

        Several objectives are made one before the fit (Knowles 2006). Without a feasible point the probability counts
        alone (Gardner et al. 2014).
        """
        scaled = torch.stack([_standardised(x)[0] for x in objectives.unbind(1)], 1)
        whole = scaled[:, 0] if len(weights) == 1 else chebyshev(scaled, weights, scaled.amin(0))
        feasible = (limits <= 0).all(1)
        parts: list[Function] = []
        if bool(feasible.any()):
            process = fit_process(inputs, _standardised(whole)[0])
            # Noisy values are smoothed: the least of them is the luckiest.
            parts.append(log_improvement(process, process(inputs)[0][feasible].min().item()))
        for x in limits.unbind(1):
            excess, shift, spread = _standardised(x)
            parts.append(log_probability_below(fit_process(inputs, excess), (-shift / spread).item()))
        return lambda x: torch.stack([part(x) for part in parts]).sum(0)

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
        fine = known.feasible.nonzero()[:, 0]
        values = known.values[fine]
        spread = values.std(correction=0)
        if not bool(spread > 0):
            return Recommendation(int(fine[0]), value, 0.0)
        places = 2 * (known.points[fine] - low) / (high - low) - 1
        mean, sd = self.surrogate.smooth(places, (values - values.mean()) / spread, self.seed)
        least = int(mean.argmin())
        found = (mean[least] * spread + values.mean()).item()
        return Recommendation(int(fine[least]), found, (sd[least] * spread).item())

    def tell(
        self,
        known: Evaluations,
        point: Float[Tensor, " dim"],
        value: float,
        costs: Sequence[float] = (),
        excess: Sequence[float] = (),
    ) -> Evaluations:
        """Return the knowledge after an evaluation, also of a point that was not asked for.

        Args:
            known: Before.
            point: In the box.
            value: NaN or infinite where the evaluation failed: only the chance of a failure nearby is learnt from it.
            costs: Values of further objectives; always as many.
            excess: By how much each limit is exceeded, at most 0 where it is not; always as many.

        Raises:
            ValueError: If the point is not in the box, or there are more or fewer costs or limits than before.
        """
        low, high = self._corners
        point = torch.as_tensor(point, dtype=torch.float64)
        if point.shape != low.shape or not bool(((point >= low) & (point <= high)).all()):
            raise ValueError(f"expected a point between {self.low} and {self.high}, got {point.tolist()}")
        columns = []
        for name, before, given in (("costs", known.costs, costs), ("limits", known.limits, excess)):
            width = (0 if before is None else before.shape[1]) if len(known.values) else len(given)
            if len(given) != width:
                raise ValueError(f"expected {width} {name}, as before, got {len(given)}")
            row = [float(x) if math.isfinite(x) else math.nan for x in given]
            old = point.new_zeros(0, width) if before is None or not len(known.values) else before
            columns.append(torch.cat([old, point.new_tensor(row).view(1, width)]) if width else None)
        value = float(value) if math.isfinite(value) else math.nan
        values = torch.cat([known.values, point.new_tensor([value])])
        return Evaluations(torch.cat([known.points, point[None]]), values, *columns)

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


def chebyshev(
    values: Float[Tensor, "*place objective"], weights: Float[Tensor, " objective"], ideal: Float[Tensor, " objective"]
) -> Float[Tensor, "*place"]:
    """Return max_k w_k (y_k - z_k) + 0.05 sum_k w_k (y_k - z_k): small where all objectives are (Paria et al. 2019)."""
    far = weights * (values - ideal)
    return far.amax(-1) + _AUGMENTED * far.sum(-1)


def _merit(known: Evaluations, weights: Float[Tensor, " objective"]) -> Float[Tensor, " point"]:
    """Return numbers that order evaluations: those that exceed limits above all feasible ones; NaN where one failed."""
    fine = known.succeeded
    values = known.values
    if len(weights) > 1:
        scaled = torch.stack([_standardised(x, fine)[0] for x in known.objectives.unbind(1)], 1)
        values = chebyshev(scaled, weights, scaled[fine].amin(0)) if bool(fine.any()) else values
    values = torch.where(fine, values, math.nan)
    if not known.limits.shape[1] or not bool(fine.any()):
        return values
    excess = sum(x.clamp_min(0) / _standardised(x, fine)[2] for x in known.limits.unbind(1))
    above = values[fine].max() + (values[fine].max() - values[fine].min()).clamp_min(1e-9) * excess
    return torch.where(known.feasible | ~fine, values, above)


def _standardised(values: Float[Tensor, " point"], used: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Return values in units of their standard deviation from their mean, both over those that are used; and both."""
    seen = values if used is None else values[used]
    mean, spread = seen.mean(), seen.std() if len(seen) > 1 else seen.new_zeros(())
    spread = torch.where(spread > 0, spread, 1.0)
    return (values - mean) / spread, mean, spread
