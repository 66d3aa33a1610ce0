"""A particle filter in a model with switches, behind the linear model inside where a history is long."""

import contextlib
import dataclasses
from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, particles
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.linalg import NotPositiveDefiniteError
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import AbstractSwitchingSystem, ParticleFiltered
from tsforecast.core.particles.state import ParticleState
from tsforecast.core.regimes import collapse
from tsforecast.models.parts.switching_dynamics import AbstractSwitchingDynamics, Particles
from tsforecast.models.parts.units import scaled
from tsforecast.models.records import Series, TimeSlice


@dataclasses.dataclass(frozen=True, eq=False)
class ParticleFilter:
    """The filter of slices of time.

    Attributes:
        dynamics: Dynamics of the model.
        options: Options of the filter.
        threshold: See `ParticleInference`.
        advice: What a user may do where filtering fails.
    """

    dynamics: AbstractSwitchingDynamics
    options: Particles
    threshold: float
    advice: str

    def run(
        self,
        time_slice: TimeSlice,
        series: Series,
        location: Tensor,
        scale: Tensor,
        start: ParticleState | None = None,
        cut: int = 0,
        whole: bool = False,
        num_particles: int | None = None,
        **options,
    ) -> tuple[ParticleFiltered, AbstractSwitchingSystem, ParticleState]:
        """Return the particles after a time slice, its system, and the particles before it.

        Filtering has no gradient before the `cut`. Results of single steps are those after it, and the particles
        "before" are those at the cut. The linear model inside filters a history up to its last `particle_length` steps,
        unless the `whole` is asked for.

        Args:
            time_slice: Time, covariates and values.
            series: Who the series are.
            location: Centre of the scaling.
            scale: Unit of the scaling.
            start: Particles before it; None where the series begin.
            cut: Steps without gradient.
            whole: Whether particles filter all of it.
            num_particles: Number of particles; None for that of training.
            options: Further arguments of `particles.filter`.

        Raises:
            NotPositiveDefiniteError: If a covariance is no longer positive definite, with advice.
        """
        prior, terms = None, None
        lead = len(time_slice.values) - self.options.particle_length
        with _advice(self.advice):
            if self.options.particle_length and lead > 0 and not whole and start is None:
                head = map_tensors(lambda x: x[:lead], time_slice)
                time_slice = map_tensors(lambda x: x[lead:], time_slice)
                prior, terms = self.run_linear(head, series, location, scale, min(cut, lead))
                cut = max(cut - lead, 0)
            system, own = self.dynamics.switching(time_slice, series, location, scale, proposing=True)
            if start is None:
                start = system.begin(num_particles or self.options.num_particles, prior or own)
            values, observed = scaled(time_slice, location, scale)
            chosen = {"threshold": self.threshold, "gradient": self.options.resampling_gradient}
            options = {**chosen, **options}
            if cut:
                parts = (values[:cut], None if observed is None else observed[:cut])
                with torch.no_grad():  # truncated backpropagation through time
                    start = particles.filter(system, start, *parts, **options).particles
            parts = (values[cut:], None if observed is None else observed[cut:])
            filtered = particles.filter(system, start, *parts, first=cut, **options)
        # Behind a cut earlier terms are not asked for.
        return filtered if terms is None or cut else _preceded(filtered, terms), system, start

    def collapsed(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, start: ParticleState | None = None
    ) -> tuple[collapse.Collapsed, ParticleState]:
        """Return the result of Kim's filter of categories in a time slice, and the particles before it; see `run`."""
        with _advice(self.advice):
            system, prior = self.dynamics.switching(time_slice, series, location, scale, proposing=False)
            assert isinstance(system, CategoricalSwitching)
            start = collapse.begin(system, prior) if start is None else start
            return collapse.filter(system, start, *scaled(time_slice, location, scale)), start

    def run_linear(
        self, time_slice: TimeSlice, series: Series, location: Tensor, scale: Tensor, cut: int = 0
    ) -> tuple[Gaussian, Float[Tensor, "time series"]]:
        """Return the belief of the linear model after a time slice, and the log-likelihood of its steps; see `run`."""
        belief, terms = None, []
        for part, with_gradient in ((slice(0, cut), False), (slice(cut, None), True)):
            piece = map_tensors(lambda x, part=part: x[part], time_slice)
            if len(piece.values):
                with torch.set_grad_enabled(torch.is_grad_enabled() and with_gradient):
                    linear = self.dynamics.linear(piece, series)
                    belief, term = linear.system.posterior(belief or linear.prior, *scaled(piece, location, scale))
                terms.append(term)
        assert belief is not None
        return belief, torch.cat(terms)


@contextlib.contextmanager
def _advice(words: str) -> Iterator[None]:
    """Adds advice to errors about covariances that are no longer positive definite."""
    try:
        yield
    except NotPositiveDefiniteError as error:
        if not words:
            raise
        raise NotPositiveDefiniteError(f"{error} {words}") from error


def _preceded(filtered: ParticleFiltered, terms: Float[Tensor, "time series"]) -> ParticleFiltered:
    """Put the log-likelihoods of steps that a linear model has filtered before those of the particles."""
    # Before there are particles, no weights differ.
    sizes = torch.full_like(terms, filtered.particles.log_weight.shape[0])
    return dataclasses.replace(
        filtered,
        log_likelihood=torch.cat([terms, filtered.log_likelihood]),
        effective_sample_size=torch.cat([sizes, filtered.effective_sample_size]),
    )
