"""Marginal distributions of a horizon in closed form: mixtures of Gaussians behind transformations."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian, map_tensors, register_record
from tsforecast.core.kernels import mixture
from tsforecast.models.parts.component_groups import Group, cdf, quantile
from tsforecast.models.parts.mixture_quantiles import mixture_quantiles
from tsforecast.models.transformations import transformation_of

_FARTHEST = 37.0  # standard score, beyond which a double holds no probability
_WIDTH, _NODES = 4.0, 33  # standard deviations around a mean, and points there, of an integral


@register_record
@dataclasses.dataclass(frozen=True)
class Marginals:
    """The distributions of every value of a horizon alone, each a mixture sum_k w_k N(m_k, s_k^2) that is transformed.

    The Gaussians are of values that are divided by the size that their component has for the series, in the units of
    its transformation. Components may differ in both. A deviation of 0 is a value that is known.

    Attributes:
        log_weight: Normalised over the components; with a horizon where each step has weights of its own, and with
            targets where each of these has.
        mean: Means in transformed units, which are not scaled.
        deviation: Standard deviations in the same units.
        size: What each component divides values by before it transforms them.
        transformations: The transformation of each component, of `TRANSFORMATIONS` or `OF_SIZE_ONE`.
        clip: "nonnegative" if values below 0 are set to 0, or "none".
        names: Names of the components; none where there is one only.
        bounds: Lowest and highest values, to which others are set; None for none.
    """

    log_weight: (
        Float[Tensor, "series component"]
        | Float[Tensor, "series component horizon"]
        | Float[Tensor, "series component #horizon target"]
    )
    mean: Float[Tensor, "series component horizon target"]
    deviation: Float[Tensor, "series component horizon target"]
    size: Float[Tensor, "series component target"]
    transformations: tuple[str, ...]
    clip: str = "none"
    names: tuple[str, ...] = ()
    bounds: Float[Tensor, "series 2 target"] | None = None

    @classmethod
    def single(
        cls,
        mean: Float[Tensor, "series horizon target"],
        deviation: Float[Tensor, "series horizon target"],
        transformation: str,
        clip: str = "none",
    ) -> "Marginals":
        """Return the distributions of one component, for values that are not divided."""
        weight, size = mean.new_zeros(len(mean), 1), mean.new_ones(len(mean), 1, mean.shape[-1])
        return cls(weight, mean.unsqueeze(1), deviation.unsqueeze(1), size, (transformation,), clip)

    @classmethod
    def over_paths(
        cls,
        emitted: Gaussian,
        location: Float[Tensor, "series target"],
        scale: Float[Tensor, "series target"],
        transformation: str,
        clip: str = "none",
    ) -> "Marginals":
        """Return mixtures of equal weights, given moments in scaled units, batch shape (horizon, component, series)."""
        center, unit = (x.double()[:, None, None] for x in (location, scale))  # a location may be far from 0
        mean, variance = (x.double().permute(2, 1, 0, 3) for x in (emitted.mean, emitted.variance))
        count = mean.shape[1]
        # Paths were drawn: each counts alike.
        weight, size = mean.new_full((len(mean), count), -math.log(count)), torch.ones_like(mean[:, :, 0])
        deviation = variance.clamp_min(0).sqrt() * unit
        return cls(weight, mean * unit + center, deviation, size, (transformation,) * count, clip)

    @classmethod
    def pooled(
        cls,
        parts: Sequence["Marginals"],
        log_weight: Float[Tensor, " part"] | Float[Tensor, "part series"],
        names: Sequence[str],
    ) -> "Marginals":
        """Return the mixture of several distributions of the same values, all of them clipped alike.

        Args:
            parts: The distributions.
            log_weight: Normalised over the parts.
            names: Of the parts; a component is called by its part, if that has a name, and its own if it has one.
        """
        weights = [
            part.log_weight + log.to(part.log_weight).reshape(-1, *[1] * (part.log_weight.ndim - 1))
            for part, log in zip(parts, log_weight, strict=True)
        ]
        mean, deviation, size = (
            torch.cat([getattr(part, field) for part in parts], 1) for field in ("mean", "deviation", "size")
        )
        own = [part.names or ("",) * len(part.transformations) for part in parts]
        called = [
            f"{name}: {one}" if name and one else name or one
            for name, ones in zip(names, own, strict=True)
            for one in ones
        ]
        transformations = tuple(name for part in parts for name in part.transformations)
        most = max(weight.ndim for weight in weights)
        if most > 2:  # of each step, or target
            wide = [x.reshape(*x.shape, *[1] * (most - x.ndim)) for x in weights]
            shape = mean.shape[2:most]
            weights = [x.expand(*x.shape[:2], *shape) for x in wide]
        return cls(torch.cat(weights, 1), mean, deviation, size, transformations, parts[0].clip, tuple(called))

    def quantile(self, levels: Float[Tensor, " level"]) -> Float[Tensor, "level series horizon target"]:
        """Return quantiles in the units of the data.

        They have a closed form for one component. Of several, a root is searched between the smallest and the largest
        quantile of the components.

        Args:
            levels: Between 0 and 1.
        """
        normal = torch.special.ndtri(levels.to(self.mean))
        if len(self.transformations) == 1:
            return self._clipped(self._of_components(normal)[0])
        found = self._by_program(normal)
        return self._clipped(self._searched(normal) if found is None else found)

    def cdf(self, values: Float[Tensor, "series horizon target"]) -> Float[Tensor, "series horizon target"]:
        """Return the probability of at most the given values, in the units of the data."""
        below = cdf(values.flatten(), self._groups).reshape(values.shape)
        below = below if self.clip == "none" else torch.where(values < 0, 0.0, below)  # what is below 0 is all at 0
        if self.bounds is None:
            return below
        low, high = self.bounds.unsqueeze(2).unbind(1)
        return torch.where(values < low, 0.0, torch.where(values < high, below, 1.0))

    def normal_score(self, values: Float[Tensor, "series horizon target"]) -> Float[Tensor, "series horizon target"]:
        """Return the standard normal quantile of the probability below the given values, before clipping.

        Of a Gaussian it is the standardised error. Both tails keep their digits, to 37 standard deviations. Beyond,
        where probabilities end, it is the standardised error in the nearest component.
        """
        below, above = (cdf(values.flatten(), self._groups, upper) for upper in (False, True))
        # Each tail by its own probability: 1 - p has no digits there.
        score = quantile(below) * (below < 0.5) - quantile(above) * (below >= 0.5)
        far = score.abs() > _FARTHEST
        if bool(far.any()):
            nearest = torch.stack([group.distance(values.flatten()) for group in self._groups]).amin(0)
            nearest = torch.where(nearest.isfinite(), nearest, _FARTHEST)  # known values alone have no distance
            score = torch.where(far, torch.copysign(torch.maximum(nearest, score.abs()), score), score)
        return score.reshape(values.shape)

    def expectation(self) -> Float[Tensor, "series horizon target"]:
        """Return the means of the distributions in the units of the data, after clipping; finite however wide."""
        weight = self.log_weight.softmax(1)  # normalised in this precision: what lacks would be a share of the mean
        if weight.ndim == 2 and (unit := self._common_unit()) is not None:
            clipped, low = self.clip != "none", torch.full_like(unit, -torch.inf)
            ends = torch.stack([low, -low], 1) if self.bounds is None else self.bounds[..., 0].to(unit)
            moments = self.mean[..., 0], self.deviation[..., 0]
            found = mixture.means(weight.to(unit), *moments, unit, self.transformations, clipped, ends)
            if found is not None:
                return self._clipped(found.unsqueeze(-1))
        weight = weight.reshape(*weight.shape, *[1] * (4 - weight.ndim))
        return self._clipped((weight * self.component_means()).sum(1))

    def component_means(self) -> Float[Tensor, "series component horizon target"]:
        """Return the mean of each component in the units of the data, after clipping."""
        parts = zip(self.mean.unbind(1), self.deviation.unbind(1), self.transformations, strict=True)
        means = torch.stack([transformation_of(name).mean(m, s, self.clip != "none") for m, s, name in parts], 1)
        means = means * self.size.unsqueeze(2)
        return means if self.bounds is None else means.clamp(*self.bounds[:, None, :, None].unbind(2))

    def means_of(
        self, function: Callable[[Float[Tensor, "component series horizon target"]], Tensor]
    ) -> Float[Tensor, "series component horizon target"]:
        """Return the mean of a function of the values of each component, clipped and in the units of the data.

        By the trapezoidal rule, whose error is that of what lies beyond four standard deviations.

        Args:
            function: Of values, elementwise.
        """
        nodes = torch.linspace(-_WIDTH, _WIDTH, _NODES).to(self.mean)
        total = torch.zeros_like(self.mean.transpose(0, 1))
        # The density at equally spaced nodes.
        for node, weight in zip(nodes, (-nodes.square() / 2).softmax(0), strict=True):
            total += weight * function(self._clipped(torch.cat(self._of_components(node[None]))))
        return total.transpose(0, 1)

    def of(self, series: slice) -> "Marginals":
        """Return the distributions of some of the series, in tensors of their own."""
        return map_tensors(lambda x: x[series].clone(), self)  # a view would keep the memory of all series

    def behind(self, steps: int) -> "Marginals":
        """Return the distributions of the steps behind the first ones."""
        if not steps:
            return self
        mean, deviation = self.mean[:, :, steps:], self.deviation[:, :, steps:]
        weight = self.log_weight
        weight = weight[:, :, steps:] if weight.ndim > 2 and weight.shape[2] > 1 else weight
        return dataclasses.replace(self, log_weight=weight, mean=mean, deviation=deviation)

    def of_target(self, target: int) -> "Marginals":
        """Return the distributions of one of the targets."""
        return self.of_targets(slice(target, target + 1))

    def of_targets(self, targets: slice) -> "Marginals":
        """Return the distributions of some of the targets."""
        mean, deviation, size = (x[..., targets] for x in (self.mean, self.deviation, self.size))
        bounds = None if self.bounds is None else self.bounds[..., targets]
        weight = self.log_weight[..., targets] if self.log_weight.ndim == 4 else self.log_weight
        return dataclasses.replace(self, log_weight=weight, mean=mean, deviation=deviation, size=size, bounds=bounds)

    def _of_components(self, normal: Float[Tensor, " level"]) -> list[Float[Tensor, "level series horizon target"]]:
        """Return the quantiles of each component, given those of the standard normal distribution."""
        aim = normal[:, None, None, None]
        parts = (self.mean.unbind(1), self.deviation.unbind(1), self.size.unsqueeze(2).unbind(1), self.transformations)
        return [
            # A known value stays where `aim` is infinite.
            transformation_of(name).restore(m + torch.where(s > 0, s * aim, 0.0)) * size
            for m, s, size, name in zip(*parts, strict=True)
        ]

    def _clipped(self, values: Tensor) -> Tensor:
        values = values if self.clip == "none" else values.clamp_min(0.0)
        return values if self.bounds is None else values.clamp(*self.bounds.unsqueeze(2).unbind(1))

    @property
    def _weight(self) -> Float[Tensor, "cell component"]:
        """Return the weights of the components, a row for each series, step and target."""
        weight = self.log_weight.exp()
        if weight.ndim == 4:  # of each target
            weight = weight.expand(-1, -1, *self.mean.shape[2:]).flatten(2)
        if weight.ndim == 3:  # of each step
            weight = weight.transpose(1, 2).flatten(0, 1)
        return weight.repeat_interleave(self.mean[:, 0].numel() // len(weight), 0)

    @property
    def _groups(self) -> list[Group]:
        """Return the components of every transformation, a row for each series, step and target."""
        groups, weights = [], self._weight
        for name in dict.fromkeys(self.transformations):
            own = [k for k, other in enumerate(self.transformations) if other == name]
            mean, deviation = (x[:, own].flatten(2).transpose(1, 2).flatten(0, 1) for x in (self.mean, self.deviation))
            weight = weights[:, own]
            size = self.size[:, own]
            size = size[:, :1] if bool((size == size[:, :1]).all()) else size  # one column where they are alike
            size = size.unsqueeze(2).expand(-1, -1, self.mean.shape[2], -1).flatten(2).transpose(1, 2).flatten(0, 1)
            groups.append(Group(name, weight, mean, deviation, size, bool((deviation == 0).any())))
        return groups

    def _searched(self, normal: Float[Tensor, " level"]) -> Float[Tensor, "level series horizon target"]:
        found = mixture_quantiles(self._groups, self._weight, self._of_components, normal)
        return found.reshape(len(normal), *self.mean[:, 0].shape)

    def _by_program(self, normal: Float[Tensor, " level"]) -> Float[Tensor, "level series horizon target"] | None:
        """Return the quantiles of one target by the compiled program; None for what it does not serve.

        It serves no value that is known with some probability: these steps are searched for alone.
        """
        if (unit := self._common_unit()) is None:
            return None
        mean, deviation, weight = self.mean[..., 0], self.deviation[..., 0], self.log_weight.exp().to(self.mean)
        if weight.ndim == 2 and bool((deviation > 0).all()):
            found = mixture.quantiles(weight, mean, deviation, unit, self.transformations, normal)
            return None if found is None else found.unsqueeze(-1)
        horizon = mean.shape[2]
        weight, mean, deviation = (
            x.reshape(*x.shape[:2], -1).expand_as(mean).transpose(1, 2).flatten(0, 1) for x in (weight, mean, deviation)
        )
        unit, known = unit.repeat_interleave(horizon), ((deviation == 0) & (weight > 0)).any(1)
        own = torch.where(deviation > 0, deviation, 1.0)  # that of no weight
        free = [x[~known] for x in (weight, mean[..., None], own[..., None], unit)]
        if (found := mixture.quantiles(free[0], free[1], free[2], free[3], self.transformations, normal)) is None:
            return None
        every = found.new_empty(len(normal), len(mean))
        every[:, ~known] = found[..., 0]
        if bool(known.any()):
            size = unit[:, None, None].expand(-1, weight.shape[1], 1)
            parts = [x[known] for x in (weight.log(), mean[..., None, None], deviation[..., None, None], size)]
            own = Marginals(parts[0], parts[1], parts[2], parts[3], self.transformations)
            every[:, known] = own._searched(normal)[..., 0, 0]
        return every.reshape(len(normal), -1, horizon, 1)

    def _common_unit(self) -> Float[Tensor, " series"] | None:
        """Return the unit that all components share, of one target; else None."""
        unit = self.size[:, 0, 0]
        if self.size.shape[-1] > 1 or not bool((self.size[..., 0] == unit[:, None]).all()):
            return None
        return unit.to(self.mean)
