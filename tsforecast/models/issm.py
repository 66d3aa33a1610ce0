"""Innovation state-space forecasters: level, trend and seasons, with noises learnt per series or by a network."""

import abc

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, kalman
from tsforecast.core.components import Season
from tsforecast.core.structural import ISSM
from tsforecast.models.base import Batch, Belief, TimeSlice, identities, scaled
from tsforecast.models.bounds import at_least
from tsforecast.models.closed_form import AbstractLinearForecaster
from tsforecast.models.component_names import component_names, parse_component
from tsforecast.nn import ScaleNetwork, SeriesParameters

# Log scales stay in a range in which float32 filters safely whatever an optimiser does.
_LOWEST, _HIGHEST = -7.0, 5.0
# Observation variance, relative to the prior's: at least this, so that the first update loses no digits.
_FLOOR = 1e-5


class AbstractISSMForecaster(AbstractLinearForecaster):
    """A sum of levels, trends and seasons by name, whose noises, dampings and prior come from somewhere.

    Args:
        components: Names joined by "+", see `component_names`.
        kwargs: Arguments of every forecaster.
    """

    def __init__(self, *, components: str, **kwargs) -> None:
        super().__init__(**kwargs)
        if self.num_targets != 1:
            raise ValueError(
                f"a sum of components is one target, got {self.num_targets}: forecast them as series, or take gls"
            )
        self.component_names = component_names(components, self.freq)
        self.components = tuple(parse_component(name) for name in self.component_names)
        self.noise_names = [
            noise if noise == name else f"{name}.{noise}"
            for name, component in zip(self.component_names, self.components, strict=True)
            for noise in component.noises
        ] + ["observation"]

    @property
    def season_names(self) -> list[str]:
        """Names of the seasons, in the order of `season_index`."""
        pairs = zip(self.component_names, self.components, strict=True)
        return [name for name, component in pairs if isinstance(component, Season)]

    @abc.abstractmethod
    def system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[ISSM, Gaussian]:
        """The system of a time slice in scaled units, and the prior over the state before it."""

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
        """The system of a time slice in scaled units, and the prior over the state before it.

        Args:
            time_slice: Time and covariates.
            log_scale: Logarithms of the deviations of all noises, bounded here.
            damping: Log-odds.
            log_prior: Logarithms of the deviations of each component's states before the time slice, bounded here.
            season_means: Means of the factors of all seasons, side by side; those of other states are zero.
            effects: Of the covariates.
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
            variance[..., :-1],
            variance[..., -1] + _FLOOR * largest.sum(-1),
            torch.sigmoid(damping),
            offset,
            time_slice.active,
        )
        diagonal = torch.cat([prior_variance[:, i, None].expand(-1, c.size) for i, c in enumerate(self.components)], -1)
        used, means = 0, []
        for component in self.components:
            if isinstance(component, Season):
                means.append(season_means[..., used : used + component.size])
                used += component.size
            else:
                means.append(season_means.new_zeros(*season_means.shape[:-1], component.size))
        mean = torch.cat(means, -1).expand(len(log_prior), -1)
        return system, Gaussian(mean, torch.diag_embed(diagonal))

    def decompose(self, batch: Batch) -> dict[str, tuple[Tensor, Tensor]]:
        """Smoothed parts of the past, see `parts_of`."""
        time_slice = self.time_slice(batch, "past")
        location, scale = self.location_and_scale(batch)
        system, prior = self.system(time_slice, batch)
        smoothed = kalman.smooth(system, prior, *scaled(time_slice, location, scale)).states
        return self.parts_of(smoothed, system, time_slice, location, scale)

    def parts_of(
        self, states: Gaussian, system: ISSM, time_slice: TimeSlice, location: Tensor, scale: Tensor
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """What the states of a time slice, (time, series), say of each component: name -> (mean, standard deviation).

        In transformed units (those of the data if the transformation is "none"), each (series, time); the location of
        the scaling belongs to the first component. What covariates explain is under "covariates", the sum of all under
        "fit".
        """
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        rows, season = [], 0
        for component, where in zip(self.components, system.slices(), strict=True):
            row = states.mean.new_zeros(*states.mean.shape)
            if isinstance(component, Season):
                index = time_slice.season_index[..., season].expand(row.shape[:2])
                row.scatter_(-1, (where.start + index).unsqueeze(-1), 1.0)
                season += 1
            else:
                row[..., where.start] = 1.0
            rows.append(row)
        for position, (name, row) in enumerate([*zip(self.component_names, rows, strict=True), ("fit", sum(rows))]):
            assert isinstance(row, Tensor)
            mean = (row * states.mean).sum(-1)
            variance = torch.einsum("tsi,tsij,tsj->ts", row, states.cov, row)
            centre = location.squeeze(-1) if position == 0 or name == "fit" else 0.0
            size = scale.squeeze(-1)
            parts[name] = ((mean * size + centre).T, (variance.clamp_min(0).sqrt() * size).T)
        if time_slice.dynamic_real.shape[-1]:
            effect = (system.offset * scale.squeeze(-1)).T
            fit, deviation = parts.pop("fit")
            parts |= {"covariates": (effect, torch.zeros_like(effect)), "fit": (fit + effect, deviation)}
        return parts


class ISSMForecaster(AbstractISSMForecaster):
    """A sum of levels, trends and seasons; what is learnt are the scales of its noises, its dampings and its prior.

    Deep state-space models call this structure ISSM (Rangapuram et al. 2018; the switching-model papers use it with
    fixed parameters); with free parameters of each series it is a classical structural model (Harvey 1989). Scales are
    those of the population plus deviations of each category and series; a series that was not in the training data has
    the population's. The likelihood is the exact Kalman filter's.

    Args:
        components: Names joined by "+": level, damped_level, trend, damped_trend, hour_of_day, hour_by_kind_of_day
            (working days and weekends apart), hour_of_week, day_of_week, month_of_year, ..., cycle_of_N; "auto" chooses
            by the frequency, "paper" takes the switching-model papers' (level + seasons).
        scales: "free" for constants of each series; "network" adds to their logarithms a network over time features,
            active seasons and an embedding of the series, so that scales vary with time.
        embedding_dim: Size of the series' embedding in that network.
        kwargs: Arguments of every forecaster.
    """

    def __init__(self, *, components: str = "auto", scales: str = "free", embedding_dim: int = 10, **kwargs) -> None:
        super().__init__(components=components, **kwargs)
        self.save_hyperparameters()
        if scales not in ("free", "network"):
            raise ValueError(f"expected scales to be 'free' or 'network', got {scales!r}")
        at_least(1, embedding_dim=embedding_dim)
        options = self.hparams
        sizes = [len(self.noise_names), sum(c.is_damped for c in self.components), len(self.components)]
        self.sizes = [*sizes, options.get("num_dynamic_real", 0)]
        initial = [torch.full((sizes[0],), -3.0), torch.full((sizes[1],), 2.0), torch.zeros(sizes[2])]
        initial[0][-1] = -0.5
        initial.append(torch.zeros(self.sizes[3]))  # effects of the covariates
        self.parameters_of_series = SeriesParameters(torch.cat(initial), self.num_series, self.cardinality)
        factors = sum(c.size for c in self.components if isinstance(c, Season))
        self.season_means = torch.nn.Parameter(torch.zeros(factors)) if factors else None
        self.network = None
        if scales == "network":
            inputs = options.get("num_time_features", 0) + factors + options.get("num_static_real", 0)
            self.network = ScaleNetwork(inputs, self.num_series, sizes[0], embedding_dim)

    def system(self, time_slice: TimeSlice, batch: Batch | Belief) -> tuple[ISSM, Gaussian]:
        """The system of a time slice in scaled units, and the prior over the state before it."""
        series, cat, real = identities(batch)
        log_scale, damping, log_prior, effects = self.parameters_of_series(series, cat).split(self.sizes, -1)
        log_scale = log_scale.unsqueeze(0)
        if self.network is not None:
            active = [  # not by torch's one_hot, which `vmap` refuses
                index.unsqueeze(-1) == torch.arange(parse_component(name).size, device=index.device)
                for name, index in zip(self.season_names, time_slice.season_index.unbind(-1), strict=True)
            ]
            inputs = [time_slice.time_feat, *active, real]
            wide = [x.to(log_scale.dtype).expand(*time_slice.time_feat.shape[:2], -1) for x in inputs]
            log_scale = log_scale + self.network(torch.cat(wide, -1), series)
        means = log_prior.new_zeros(0) if self.season_means is None else self.season_means
        return self.assemble(time_slice, log_scale, damping, log_prior, means, effects)
