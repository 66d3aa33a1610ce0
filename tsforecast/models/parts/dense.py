"""Common parts of models with dense base matrices: initial values, prior over the state, linear model inside."""

import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem
from tsforecast.core.linear import DiagonalLinearGaussian
from tsforecast.core.seasonal import Season
from tsforecast.models.bounds import at_least
from tsforecast.models.parts.auxiliary import Auxiliary
from tsforecast.models.parts.component_names import component_names, parse_component
from tsforecast.models.parts.inference import LinearModel
from tsforecast.models.parts.issm_dynamics import ISSMDynamics, issm_beside
from tsforecast.models.parts.log_scales import variance
from tsforecast.models.parts.optimisation import AuxiliaryTraining, DenseTraining
from tsforecast.models.parts.parameter_groups import ParameterGroups
from tsforecast.models.parts.transitions import begun, rotations, seasonal_readout, short_memory
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import SeriesParameters
from tsforecast.nn.decoders import AbstractDecoder, GaussianDecoder

# Names of the parameters that are base matrices; no model has all of them.
BASE_MATRICES = (
    *(f"mixture.bases.{name}" for name in ("transition", "emission", "inputs", "recurrence")),
    "emission_inputs",
)
# Advice where filtering fails, since dense transitions may be the reason.
ADVICE = (
    "Or transitions that expand made the state grow over a long history: train with stable=True, or filter less of it "
    "(history_length)."
)
# Scales of the noises of a series are multiplied by at most e to this power, and divided by as much.
_LARGEST_FACTOR = 3.0


@dataclasses.dataclass(frozen=True)
class DenseBases:
    """Sizes and initial values of dense base matrices; their mixtures are a state's transition and emission.

    Attributes:
        data: What the model knows of its data.
        emits: What the model emits.
        state_dim: Size of the state.
        num_bases: Number of base matrices.
        begins_linear: Whether the model begins as a linear one of the targets, with level and season, that has to be
            good alone.
        components: Names of components of the state beside the dense part, joined by "+"; "none" for no components.

    Raises:
        ValueError: If a size is out of its range.
    """

    data: DataSpec
    emits: Auxiliary
    state_dim: int
    num_bases: int
    begins_linear: bool
    components: str = "none"

    def __post_init__(self) -> None:
        # What is decoded has more to it than components, of which there is one sum.
        is_free = self.has_components and not self.emits.size
        at_least(0 if is_free else 1, state_dim=self.state_dim)
        at_least(1, num_bases=self.num_bases)

    @property
    def has_components(self) -> bool:
        """Return whether there are components beside the dense part."""
        return self.components != "none"

    def issm(self) -> ISSMDynamics | None:
        """Return the parameters of the components; None where there are none."""
        return issm_beside(self.components, self.data, self.state_dim)

    @property
    def noise_dim(self) -> int:
        """Return the number of emitted values with noise of the dense part; components have the first one."""
        return self.emits.emitted_dim - self.has_components

    @property
    def season_names(self) -> tuple[str, ...]:
        """Return the seasons of the frequency, as inputs of the networks."""
        names = component_names("paper", self.data.freq)
        return tuple(name for name in names if isinstance(parse_component(name), Season))

    @property
    def initial_log_inverse_scales(self) -> tuple[float, float, float]:
        """Return log inverse scales for the noises of state and emission, and for the prior over the state.

        Those for frames are of Fraccaro et al.: variances .08, .03 and 20. Among these an encoder whose variance is
        below .03 spreads its values.
        """
        return (2.5, 1.0, 0.0) if self.emits.image is None else (1.26, 1.75, -1.5)

    def matrices(self, count: int) -> dict[str, Tensor]:
        """Return initial base transitions and emissions, with small differences.

        Transitions begin as a level and damped rotations at the harmonics of the season, and for frames as the
        identity. All bases begin near one random emission, lest the mixing weights turn the emission into noise. Where
        the model begins as a linear one, the first components that are emitted are the targets. They read the level and
        the season. All other readings are small, since random ones would be evidence against the targets. The
        transitions then differ by small rotations. With random differences they would expand, and a bound on them would
        shrink the level and the season away. Beside components, which have level and season, the dense part has a short
        memory and hardly any say in the first component at first.

        Args:
            count: Number of bases.
        """
        state, emitted, season = self.state_dim, self.emits.emitted_dim, self.data.season
        start = rotations(state, season) if self.emits.image is None else torch.eye(state)
        start = short_memory(state) if self.has_components else start  # the level and the season are theirs
        root = math.sqrt(state)
        transition = start + 0.05 * torch.randn(count, state, state) / root
        emission = (torch.randn(emitted, state) + 0.1 * torch.randn(count, emitted, state)) / root
        if self.begins_linear:
            turn = 0.01 * torch.randn(count, state, state)
            # The exponential of a skew matrix is a rotation: it does not expand.
            transition = torch.linalg.matrix_exp((turn - turn.mT) / root) @ start
            emission = 0.1 * emission
            if not self.has_components:
                emission[:, : self.data.num_targets] += seasonal_readout(state, season)
        elif self.has_components:
            emission[:, 0] *= 0.1  # at first the components speak for the target
        return {"transition": transition, "emission": emission}

    def log_scales(self) -> SeriesParameters:
        """Return logarithms of factors of the dense part's noises, for each category and series."""
        initial = torch.zeros(self.state_dim + self.noise_dim)
        return SeriesParameters(initial, self.data.num_series, self.data.cardinality)

    def noise_factors(self, log_scales: SeriesParameters | None, series: Series) -> tuple[Tensor | float, ...]:
        """Return the factors of the variances of the noises of state and emission, (series, size) each."""
        if log_scales is None:
            return 1.0, 1.0
        factors = log_scales(series.index, series.static_cat).clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR)
        return (2 * factors).exp().split([self.state_dim, self.noise_dim], -1)

    def emission_variance(
        self, own: Float[Tensor, "*#batch own"], factor: Tensor | float
    ) -> Float[Tensor, "*#batch emitted"]:
        """Return the variances of the dense emission; that of the first value is 0 where components have its noise.

        Args:
            own: Variances that the dense part has.
            factor: That of `noise_factors`.
        """
        return torch.nn.functional.pad(own * factor, (int(self.has_components), 0))


@dataclasses.dataclass(frozen=True)
class DenseSwitch:
    """Options of a dense state with base matrices that a switch mixes.

    Attributes:
        state_dim: Size of the dense state. The transition starts as a level and damped rotations at the harmonics of
            the season, and beside components with a short memory. With components it may be 0, unless an auxiliary is
            emitted.
        components: Names of components beside the dense state, joined by "+", see `ISSMForecaster`; "none" for no
            components. The emission is the sum of both. If there are auxiliaries, components are added to the first;
            with `skip` it is the mean of the observation. The switch chooses factors of their noises.
        num_bases: Number of base matrices.
        stable: Whether base transitions are kept from expanding, as in `gls`: no path of switches then makes a forecast
            grow without bound.
        series_scales: Whether the noises of the dense state and of emission have factors of each category and series.
        switch_dim: Size of the switch, or number of categories.
        hidden: Width of the networks' layers.
        embedding_dim: Size of the embedding of the series.
        proposal: "encoder" (a network), "bootstrap" (the model itself, without looking at the observation) or, with an
            auxiliary, "ladder" (one network for switch and auxiliary, where "encoder" has one for each).
        persistence: Initial share of the switch that stays from step to step, in [0, 1). It is that of the first
            dimension; the others are slower. At 0 the network alone moves the switch, as in the paper. Regimes that
            last, such as volatility, are found with a share near 1.

    Raises:
        ValueError: If a number is out of its range.
    """

    state_dim: int = 16
    components: str = "none"
    num_bases: int = 20
    stable: bool = False
    series_scales: bool = False
    switch_dim: int = 10
    hidden: int = 64
    embedding_dim: int = 50
    proposal: str = "encoder"
    persistence: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, switch_dim=self.switch_dim, hidden=self.hidden, embedding_dim=self.embedding_dim)
        if not 0 <= self.persistence < 1:
            raise ValueError(f"expected persistence to be at least 0 and below 1, got {self.persistence}")

    def bases(self, data: DataSpec, emits: Auxiliary, begins_linear: bool) -> DenseBases:
        """Return the base matrices for some data and an emission."""
        return DenseBases(data, emits, self.state_dim, self.num_bases, begins_linear, self.components)


DenseStep = tuple[DiagonalLinearGaussian, DiagonalLinearGaussian]
_COMPONENTS_LEARNING_RATE = 0.1  # that of `issm`


def dense_groups(
    training: DenseTraining | AuxiliaryTraining, networks: tuple[str, ...], frames: bool = False
) -> ParameterGroups:
    """Return the groups of networks, of base matrices, and of the rest.

    Args:
        training: Options with the rates.
        networks: Prefixes of the names of parameters of networks, beside those that all these models have.
        frames: Whether frames are observed. Networks then learn at full rate from the start, since nothing is learnt
            without a picture.
    """
    return ParameterGroups(
        training.learning_rate,
        ("inputs.", "mixture.weights.", "proposal_network.", "decoder.", "encoder.", *networks),
        training.network_learning_rate,
        BASE_MATRICES,
        training.matrix_learning_rate,
        network_rise=0.0 if frames else 0.2,
        linear_epochs=training.linear_epochs,
        linear_share=training.linear_share,
        components=("issm.",),
        components_learning_rate=_COMPONENTS_LEARNING_RATE,
    )


def prior_over(mean: Tensor, log_inverse_scale: Tensor, series: int) -> Gaussian:
    """Return the prior over the states of so many series before the first step."""
    cov = torch.diag_embed(variance(log_inverse_scale))
    return Gaussian(mean.expand(series, -1), cov.expand(series, -1, -1))


def linear_part(
    time_slice: TimeSlice,
    transition: DiagonalLinearGaussian,
    emission: DiagonalLinearGaussian,
    prior_mean: Float[Tensor, " state"],
    prior_log_inverse_scale: Float[Tensor, " state"],
    decoder: AbstractDecoder | None,
) -> LinearModel:
    """Return the linear model inside, with one transition and one emission for all steps and series.

    Only the offsets of the emission differ.

    Args:
        time_slice: Steps and series.
        transition: Transition of the state, whose variances may have a dimension of series.
        emission: Emission, likewise, with an offset of shape (time, series, emitted).
        prior_mean: Mean of the state before the first step.
        prior_log_inverse_scale: Log inverse scale of that state.
        decoder: Decoder of the auxiliary, without its network; None where the targets are emitted.
    """
    wide = lambda variance: torch.diag_embed(variance).reshape(1, -1, *2 * variance.shape[-1:])  # noqa: E731
    matrix, noise = begun(time_slice, transition.matrix[None, None], wide(transition.variance))
    moved = transition.offset[None, None]
    if time_slice.active is not None:  # states stand still before their series begins
        moved = moved * time_slice.active.to(moved.dtype)[..., None]
    # Without this floor the variance of the first prediction is lost in float32.
    floor = 1e-5 * (emission.matrix.square() @ variance(prior_log_inverse_scale))
    seen, given = emission.matrix, Gaussian(emission.offset, wide(emission.variance + floor))
    if decoder is not None:
        assert isinstance(decoder, GaussianDecoder)
        decoded = decoder.linear()
        seen, given = decoded.matrix @ seen, decoded.marginal(given)
    system = LinearSystem(LinearGaussian(matrix, moved, noise), LinearGaussian(seen[None, None], given.mean, given.cov))
    prior = prior_over(prior_mean, prior_log_inverse_scale, emission.offset.shape[1])
    # One covariance for all series: gains are computed once.
    return LinearModel(system, Gaussian(prior.mean, prior.cov[:1]))
