"""Inference in several targets: each has its own model, and the errors of one step are correlated."""

import dataclasses
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.utils import _pytree as pytree

from tsforecast.core import Gaussian
from tsforecast.core.correlation import Correlation, block_cov
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.linalg import cholesky
from tsforecast.core.torch_internals import normal
from tsforecast.models.parts.bank_paths import draw
from tsforecast.models.parts.inference import AbstractDynamics, AbstractInference, AbstractLinearMixture
from tsforecast.models.parts.marginals import Marginals
from tsforecast.models.parts.stretch import Stretch
from tsforecast.models.parts.units import Units
from tsforecast.models.records import Batch, Belief, DataSpec, JointState, Series

_OF_TARGETS = ("past_target", "past_observed", "future_target", "future_observed", "known_future")
_WINDOW, _BLOCK = 512, 32  # steps at the end of a history whose errors are read, and of them at a time
_ELEMENTS = 2**24  # of the covariances of paths that are conditioned together


def of_one_target(data: DataSpec) -> DataSpec:
    """Return the facts for models of single targets: each target is a series, and its number a category."""
    if data.num_targets == 1:
        return data
    sizes = {"num_series": data.num_series * data.num_targets, "cardinality": [*data.cardinality, data.num_targets]}
    return dataclasses.replace(data, num_targets=1, **sizes)


@dataclasses.dataclass(frozen=True, eq=False)
class JointInference(AbstractInference[AbstractDynamics]):
    """Inference in the model of each target, and in the correlation of their errors one step ahead.

    A target is y = m + S F e over a stretch of time: m and S are means and deviations by its own model, F is the
    Cholesky factor of its correlations in time, and e are the errors of its steps. Errors of a step have a correlation
    between targets, see `Correlation`. So each target alone is as its own model says.

    Attributes:
        inner: Inference in models of single targets.
        units: Units of all targets.
    """

    inner: AbstractLinearMixture[Any]
    units: Units

    @property
    def dynamics(self) -> AbstractDynamics:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the dynamics of single targets."""
        return self.inner.dynamics

    @property
    def has_marginals(self) -> bool:
        """Return True."""
        return True

    @property
    def linear(self) -> None:
        """Return None: targets are mixtures each for itself."""
        return None

    @property
    def _targets(self) -> int:
        return self.units.data.num_targets

    def loss(self, batch: Batch, linear: bool) -> Float[Tensor, " series"]:
        """Return the mean loss of the targets, each alone."""
        return self.inner.loss(self._flat(batch), linear).unflatten(0, (self._targets, -1)).mean(0)

    def begin(self, batch: Batch) -> Belief:
        """Return the belief before the first step of a batch, in the units of its past."""
        flat = self._flat(batch)
        known = self.inner.begin(flat, flat)
        nothing = Correlation.none(len(batch["series_index"]), self._targets, known.scale)
        return self._belief(known, nothing, batch)

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self.filter(batch, belief)[0]

    def filter(self, batch: Batch, belief: Belief | None = None) -> tuple[Belief, Float[Tensor, "time series"]]:
        """Return the beliefs of all targets and of their correlation, and the log-likelihood of each step.

        The correlation in a likelihood is that of the steps before. The errors of the last 512 steps count.
        """
        flat, steps = self._flat(batch), batch["past_target"].shape[1]
        belief = self.begin(batch) if belief is None else belief
        known, found = self._together(belief), belief.joint.correlation
        terms, first = [], max(steps - _WINDOW, 0)
        for start in [*([0] if first else []), *range(first, steps, _BLOCK)]:
            part = _steps(flat, start, first if start < first else min(start + _BLOCK, steps))
            after, term, weights = self.inner.filter_weighted(part, known)
            terms.append(term.unflatten(1, (self._targets, -1)).sum(1))
            if start >= first:
                errors, seen = (x.unflatten(1, (self._targets, -1)) for x in self._errors(part, known, weights))
                running = found.running(errors, seen)
                terms[-1] = terms[-1] + map_tensors(lambda x: x[:-1], running).log_density(errors, seen)
                found = map_tensors(lambda x: x[-1], running)
            known = after
        return self._belief(known, found, batch), torch.cat(terms)

    def forecast(
        self, belief: Belief, future: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample horizon target"]:
        """Return joint samples of the horizon, given its known values.

        Each path has a model for each target, drawn by weight. Known values condition paths exactly, given these.
        """
        stretch = self._stretch(belief, future)
        chosen = draw(stretch.log_weight, num_samples, generator)
        order = torch.rand(chosen.shape, generator=generator, device=chosen.device).argsort(1)
        chosen = chosen.gather(1, order)  # else the paths of one target have their models in the order of another's
        root = cholesky(belief.joint.correlation.matrix())
        noise = normal((len(root), self._targets, num_samples, stretch.steps), root, generator)
        # Correlated between targets, independent in time.
        errors = (root @ noise.flatten(2)).view_as(noise).transpose(0, 1).flatten(0, 1)
        paths = stretch.paths(errors, chosen)
        if bool(stretch.is_known.any()):
            paths = torch.stack([self._given(belief, stretch, paths, chosen, k) for k in range(len(root))], 1)
            paths = paths.flatten(0, 1)
        paths = stretch.restored(paths, chosen).unflatten(0, (self._targets, -1)).permute(1, 2, 3, 0)
        known = future["known_future"].unsqueeze(1)
        return torch.where(torch.isnan(known), paths, known)

    def marginals(self, belief: Belief, future: Batch) -> Marginals:
        """Return the marginal distributions of the horizon: those of each target alone, where no value is known.

        Where some are, each model of a target is conditioned on the known values of all targets, those of the others
        under their most probable models.
        """
        together, flat = self._together(belief), self._flat(future)
        found = self.inner.marginals(together, flat)
        assert found is not None
        if bool((~torch.isnan(future["known_future"])).any()) and self._targets > 1:
            found = self._conditioned(belief, self._stretch(belief, future), found)
        apart = lambda x: x.unflatten(0, (self._targets, -1)).movedim(0, -1)  # noqa: E731
        mean, deviation = (apart(x.squeeze(-1)) for x in (found.mean, found.deviation))
        size = apart(found.size.squeeze(-1).expand(len(found.mean), -1))
        log_weight = apart(found.log_weight).unsqueeze(2)
        return dataclasses.replace(found, log_weight=log_weight, mean=mean, deviation=deviation, size=size)

    def impute(
        self, batch: Batch, num_samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "series sample time target"]:
        """Return samples of missing values, those of each target by its own model."""
        samples = self.inner.impute(self._flat(batch), num_samples, generator)
        return samples.squeeze(-1).unflatten(0, (self._targets, -1)).movedim(0, -1)

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the smoothed components of all targets, each a series of its own model, targets outermost."""
        return self.inner.decompose(self._flat(batch))

    def each(self, batch: Batch, belief: Belief) -> list[tuple[Batch, Belief]]:
        """Return a batch and a belief of each target, as its own model takes them."""
        rows = {name: values.chunk(self._targets) for name, values in self._flat(batch).items()}
        return [({name: x[k] for name, x in rows.items()}, known) for k, known in enumerate(belief.joint.members)]

    def _flat(self, batch: Batch) -> Batch:
        """Return the batch with each target as a series, targets outermost."""
        count = self._targets
        found: Batch = {}
        for name, values in batch.items():
            if not isinstance(values, Tensor):
                continue
            if name in _OF_TARGETS:
                found[name] = values.movedim(-1, 0).flatten(0, 1).unsqueeze(-1)
            else:
                found[name] = values.repeat(count, *[1] * (values.ndim - 1))
        index = found["series_index"]
        number = torch.arange(count, device=index.device).repeat_interleave(len(batch["series_index"]))
        # 0 is the unknown series, of every target.
        found["series_index"] = torch.where(index > 0, (index - 1) * count + number + 1, 0)
        # The target is the last category.
        found["static_cat"] = torch.cat([found["static_cat"], number.unsqueeze(1)], 1)
        return found

    def _together(self, belief: Belief) -> Belief:
        """Return the beliefs of all targets as one, targets outermost."""
        members = belief.joint.members
        return pytree.tree_map(lambda *parts: None if parts[0] is None else torch.cat(parts), *members)

    def _belief(self, known: Belief, correlation: Correlation, batch: Batch) -> Belief:
        """Return one belief of those of all targets, and of their correlation."""
        if isinstance(known.state, Gaussian):  # a covariance may be that of many series
            state = known.state
            known = dataclasses.replace(known, state=Gaussian(state.mean, state.cov.expand(len(state.mean), -1, -1)))
        leaves, spec = pytree.tree_flatten(known)
        columns = [(None,) * self._targets if x is None else x.chunk(self._targets) for x in leaves]
        members = tuple(pytree.tree_unflatten(list(own), spec) for own in zip(*columns, strict=True))
        location, scale = (torch.cat([getattr(one, name) for one in members], 1) for name in ("location", "scale"))
        return Belief(JointState(members, correlation), location, scale, Series.of(batch))

    def _errors(
        self, part: Batch, belief: Belief, weights: list[Tensor]
    ) -> tuple[Float[Tensor, "time series"], Bool[Tensor, "time series"]]:
        """Return the standardised errors one step ahead of a stretch, and the mask of known values.

        They are means over the models, by their weights before each step.
        """
        total = torch.zeros_like(part["past_target"][..., 0], dtype=self.dtype)
        seen = part["past_observed"][..., 0]
        for member, weight in zip(self.inner.members_of(part, "past", belief), weights, strict=True):
            values, near = member.data
            joint = member.model.system.predictive(member.model.prior, len(values))
            mask = (torch.ones_like(values, dtype=torch.bool) if near is None else near).squeeze(-1).T
            error = torch.where(mask, values.squeeze(-1).T - joint.mean, 0.0)
            both = mask.unsqueeze(-1) & mask.unsqueeze(-2)
            eye = torch.eye(len(values), dtype=error.dtype, device=error.device)
            factor = cholesky(torch.where(both, joint.cov, eye), "the covariance of a stretch", jitter=True)
            white = torch.linalg.solve_triangular(factor, error.unsqueeze(-1), upper=False).squeeze(-1)
            count = len(member.transformations)
            total = total + (weight.permute(2, 1, 0) * white.unflatten(0, (count, -1))).sum(0)
        return total.T, seen.T

    def _stretch(self, belief: Belief, future: Batch) -> Stretch:
        """Return the distribution of the horizon before its known values are taken in, but for the models' weights."""
        together, flat = self._together(belief), self._flat(future)
        known = flat["known_future"]
        # Those of all targets are taken in together, later.
        free = {**flat, "known_future": torch.full_like(known, torch.nan)}
        marginals = self.inner.marginals(together, free)
        given = marginals if bool(known.isnan().all()) else self.inner.marginals(together, flat)
        assert marginals is not None
        assert given is not None
        factors, models = [], []
        for member in self.inner.members_of(flat, "future", together):
            joint = member.model.system.predictive(member.model.prior, known.shape[1])
            deviation = joint.variance.clamp_min(1e-12).sqrt()
            # Deviations are those of the marginals, in other units.
            cov = joint.cov / (deviation.unsqueeze(-1) * deviation.unsqueeze(-2))
            root = cholesky(cov.expand(len(deviation), -1, -1), "the correlations of a horizon", jitter=True)
            count = len(member.transformations)
            models += [len(factors) + k for k in range(count) for _ in range(member.components)]
            factors += root.unflatten(0, (count, -1)).unbind()
        return Stretch(marginals, given.log_weight, torch.stack(factors, 1), tuple(models), known.squeeze(-1))

    def _given(
        self, belief: Belief, stretch: Stretch, paths: Tensor, chosen: Tensor, series: int
    ) -> Float[Tensor, "target sample horizon"]:
        """Return the paths of a series given its known values (Matheron's rule)."""
        rows = torch.arange(self._targets, device=paths.device) * (len(paths) // self._targets) + series
        matrix, found = belief.joint.correlation.matrix()[series].double(), []
        here, size = paths[rows], self._targets * stretch.steps * max(int(stretch.is_known[rows].sum()), 1)
        for places in torch.arange(paths.shape[1], device=paths.device).split(max(_ELEMENTS // size, 1)):
            _, root, values = stretch.of(rows, chosen[rows][:, places])
            cross, among = block_cov(root, matrix, stretch.is_known[rows])
            own = here[:, places].double().transpose(0, 1)  # sample target horizon
            miss = (values.transpose(0, 1) - own)[:, stretch.is_known[rows]]
            weight = torch.cholesky_solve(miss.unsqueeze(-1), cholesky(among, "the covariance of the known values"))
            found.append((own.flatten(1) + (cross @ weight).squeeze(-1)).unflatten(1, own.shape[1:]).transpose(0, 1))
        return torch.cat(found, 1).to(paths)

    def _conditioned(self, belief: Belief, stretch: Stretch, own: Marginals) -> Marginals:
        """Return marginals given the known values of all targets."""
        count, best = len(own.mean) // self._targets, stretch.log_weight.argmax(1)
        components = torch.arange(own.mean.shape[1], device=best.device)
        mean, deviation = own.mean.clone(), own.deviation.clone()
        for series in range(count):
            rows = torch.arange(self._targets, device=best.device) * count + series
            is_known, matrix = stretch.is_known[rows], belief.joint.correlation.matrix()[series].double()
            if not bool(is_known.any()):
                continue
            for target, row in enumerate(rows.tolist()):
                chosen = best[rows].unsqueeze(1).repeat(1, len(components))
                chosen[target] = components
                center, root, values = stretch.of(rows, chosen)
                cross, among = block_cov(root, matrix, is_known, target)
                factor = cholesky(among, "the covariance of the known values")
                miss = (values - center).transpose(0, 1)[:, is_known]
                gain = torch.cholesky_solve(cross.mT, factor).mT
                moved = center[target] + (gain @ miss.unsqueeze(-1)).squeeze(-1)
                variance = root[target].square().sum(-1) - (gain * cross).sum(-1)
                free = ~is_known[target]
                mean[row, :, free, 0] = moved[:, free].to(mean)
                # Rounding may leave a variance below 0.
                deviation[row, :, free, 0] = variance[:, free].clamp_min(1e-12).sqrt().to(deviation)
        return dataclasses.replace(own, mean=mean, deviation=deviation)


SomeMixture = TypeVar("SomeMixture", bound=AbstractLinearMixture[Any])


def joined(inner: SomeMixture, units: Units) -> SomeMixture | JointInference:
    """Return inference in several targets by that in single ones; the same where there is one.

    Args:
        inner: Inference in models of single targets.
        units: Units of all targets.
    """
    return inner if units.data.num_targets == 1 else JointInference(inner, units)


def _steps(batch: Batch, start: int, stop: int) -> Batch:
    """Return a batch with some of the steps of its past."""
    return {name: x[:, start:stop] if name.startswith("past_") else x for name, x in batch.items()}
