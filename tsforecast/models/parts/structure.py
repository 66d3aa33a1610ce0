"""Structure of a state: levels, trends and seasons by name, and the system that their noises make."""

import dataclasses
import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian
from tsforecast.core.components import Component
from tsforecast.core.structural import ISSM
from tsforecast.core.torch_internals import constant
from tsforecast.models.parts.component_names import component_names, parse_component, steps_in_cycle
from tsforecast.models.records import DataSpec, TimeSlice

# Log scales stay in a range in which float32 filters safely whatever an optimiser does.
_LOWEST, _HIGHEST = -7.0, 5.0
# The observation variance is at least this share of the prior's, so that the first update loses no digits.
_FLOOR = 1e-5


@dataclasses.dataclass(frozen=True)
class Structure:
    """A sum of components.

    Attributes:
        names: Names of the components.
        components: The components, in the same order.
        periods: Number of steps for which the variance of each component's noises is meant: those of the cycle of a
            smooth season, which changes little in a step, and one for other components.
    """

    names: tuple[str, ...]
    components: tuple[Component, ...]
    periods: tuple[float, ...]

    @classmethod
    def of(cls, components: str, data: DataSpec) -> "Structure":
        """Return the structure of a description, see `component_names`.

        Raises:
            ValueError: If a name is not known, or there are several targets.
        """
        if data.num_targets != 1:
            raise ValueError(
                f"a sum of components is one target, got {data.num_targets}: forecast them as series, or take bank, "
                "issm or gls without components"
            )
        names = component_names(components, data.freq)
        return cls(
            tuple(names),
            tuple(parse_component(name) for name in names),
            tuple(steps_in_cycle(name, data.freq) or 1.0 for name in names),
        )

    @property
    def noise_names(self) -> list[str]:
        """Return the names of all noises: those of each component, and that of the observation."""
        pairs = zip(self.names, self.components, strict=True)
        return [
            noise if noise == name else f"{name}.{noise}" for name, component in pairs for noise in component.noises
        ] + ["observation"]

    @property
    def season_names(self) -> tuple[str, ...]:
        """Return the names of the seasons, in the order of `season_index`."""
        pairs = zip(self.names, self.components, strict=True)
        return tuple(name for name, component in pairs if component.is_seasonal)

    @property
    def num_states(self) -> int:
        """Return the number of states of all components."""
        return sum(component.size for component in self.components)

    @property
    def num_damped(self) -> int:
        """Return the number of components that have a damping."""
        return sum(component.is_damped for component in self.components)

    @property
    def num_factors(self) -> int:
        """Return the number of factors of all seasons, and of coefficients of smooth ones."""
        return sum(component.size for component in self.components if component.is_seasonal)

    @property
    def _shares(self) -> list[float]:
        """Return the share of each noise's variance that falls on a step."""
        pairs = zip(self.components, self.periods, strict=True)
        # The noise of a smooth season is that of a cycle, spread over its steps.
        return [1 / period for component, period in pairs for _ in component.noises]

    def assemble(
        self,
        time_slice: TimeSlice,
        log_scale: Float[Tensor, "time_or_1 series noise"],
        damping: Float[Tensor, "series damped"],
        log_prior: Float[Tensor, "series component"],
        season_means: Float[Tensor, "*#series factor"],
        effects: Float[Tensor, "*#series covariate"],
        largest_log_prior: Float[Tensor, "series component"] | None = None,
    ) -> tuple[ISSM, Gaussian]:
        """Return the system of a time slice in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time and covariates.
            log_scale: Logarithms of the deviations of all noises, bounded here; those of smooth seasons over a cycle.
            damping: Log-odds.
            log_prior: Logarithms of the deviations of each component's states before the time slice, bounded here.
            season_means: Means of the factors or coefficients of all seasons, side by side; those of other states are
                zero.
            effects: Effects of the covariates.
            largest_log_prior: What `log_prior` can be at most, where it is not the same for every time slice: the
                smallest observation variance follows from it.
        """
        variance = (2 * log_scale.clamp(_LOWEST, _HIGHEST)).exp()
        prior_variance = (2 * log_prior.clamp(-4.0, 3.0)).exp()
        largest = prior_variance if largest_log_prior is None else (2 * largest_log_prior).exp()
        offset = (time_slice.dynamic_real * effects).sum(-1) if effects.shape[-1] else log_prior.new_zeros(1)
        system = ISSM(
            self.components,
            time_slice.season_index,
            variance[..., :-1] * constant(self._shares, variance, variance.dtype),
            variance[..., -1] + _FLOOR * largest.sum(-1),
            torch.sigmoid(damping),  # below 1 whatever an optimiser does, so that no component grows
            offset,
            time_slice.active,
        )
        diagonal = torch.cat([prior_variance[:, i, None].expand(-1, c.size) for i, c in enumerate(self.components)], -1)
        used, means = 0, []
        for component in self.components:
            if component.is_seasonal:
                means.append(season_means[..., used : used + component.size])
                used += component.size
            else:
                means.append(season_means.new_zeros(*season_means.shape[:-1], component.size))
        mean = torch.cat(means, -1).expand(len(log_prior), -1)
        return system, Gaussian(mean, torch.diag_embed(diagonal))

    def parts_of(
        self,
        states: Gaussian,
        emission: LinearGaussian,
        effect: Float[Tensor, "time #series"] | None,
        location: Float[Tensor, "series 1"],
        scale: Float[Tensor, "series 1"],
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return mean and standard deviation of each component by name, given the states of a time slice.

        Both are of shape (series, time), in transformed units (those of the data if the transformation is "none"). The
        location of the scaling belongs to the first component. The emission of further states is under "rest", the
        effect of covariates under "covariates", and the sum of all under "fit".

        Args:
            states: Belief over the states of every path, of shape (time, sample, series).
            emission: From the states, whose first row is the target's; its shape broadcasts with that of the states.
            effect: Effect of covariates in the offset of the emission, in scaled units; None without covariates.
            location: Centre of the scaling.
            scale: Unit of the scaling.
        """
        whole = emission.matrix[..., 0, :].expand(states.mean.shape)
        known = 0.0 if effect is None else effect.unsqueeze(1)
        ends = itertools.accumulate((component.size for component in self.components), initial=0)
        places = {name: slice(*pair) for name, pair in zip(self.names, itertools.pairwise(ends), strict=True)}
        offsets: dict[str, Tensor | float] = dict.fromkeys(self.names, 0.0)
        if self.num_states < whole.shape[-1]:
            places["rest"], offsets["rest"] = slice(self.num_states, None), emission.offset[..., 0] - known
        places["fit"], offsets["fit"] = slice(None), emission.offset[..., 0]
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        size = scale.squeeze(-1)
        for position, (name, where) in enumerate(places.items()):
            row = whole[..., where]
            means = (row * states.mean[..., where]).sum(-1) + offsets[name]
            within = torch.einsum("...i,...ij,...j->...", row, states.cov[..., where, where], row).mean(1)
            variance = within + means.var(1, correction=0)  # law of total variance: within the paths, and between them
            centre = location.squeeze(-1) if position == 0 or name == "fit" else 0.0  # counted once
            parts[name] = ((means.mean(1) * size + centre).T, (variance.clamp_min(0).sqrt() * size).T)
        if effect is not None:
            explained = (effect * size).T
            parts |= {"covariates": (explained, torch.zeros_like(explained)), "fit": parts.pop("fit")}
        return parts
