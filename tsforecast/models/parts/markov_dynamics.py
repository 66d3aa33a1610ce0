"""Parameters of autoregressions and regressions with regimes from a Markov chain."""

import abc
import dataclasses
import math

import torch
from jaxtyping import Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.regimes.autoregression import SwitchingAutoregression
from tsforecast.core.regimes.chain import stationary
from tsforecast.core.regimes.counts import SwitchingCounts
from tsforecast.core.regimes.em import SwitchingRegression
from tsforecast.core.regimes.stages import spread, staged
from tsforecast.core.torch_internals import constant
from tsforecast.models.bounds import at_least, one_of
from tsforecast.models.parts.inference import AbstractDynamics
from tsforecast.models.parts.markov_fit import lags_of
from tsforecast.models.parts.markov_system import Markov, System
from tsforecast.models.records import DataSpec, Series, TimeSlice
from tsforecast.nn import SeriesParameters

SWITCHING = ("location", "scale", "coefficients", "effects")
LOWEST, HIGHEST = -5.0, 4.0  # of log scales of noises, in scaled units
_LARGEST_OWN = 3.0  # of the log unit of a series, likewise
_MOST_HISTORIES = 1024


def parts_of(switching: str) -> tuple[str, ...]:
    """Return the names in a sum of what differs between regimes; "auto", which data have not decided, is the usual."""
    names = "location+scale" if switching == "auto" else switching
    return tuple(dict.fromkeys(name.strip() for name in names.split("+") if name.strip()))


@dataclasses.dataclass(frozen=True)
class RegimeOptions:
    """Options of regimes and of what they choose.

    Attributes:
        regimes: Number of regimes.
        stages: Number of stages of each regime.
        order: Number of lags.
        seasonal: Whether lags of the main season join them.
        of_mean: Whether regimes have means, and not intercepts; then there are no seasonal lags.
        switching: What differs between regimes, names of `SWITCHING`; "scale" is the dispersion of counts, too.
        transition_covariates: Whether transition probabilities depend on covariates.
        free_initial: Whether the regimes before the first step have a distribution of their own.
        persistence: Probability to stay in a regime, at first.

    Raises:
        ValueError: If an option is not known or out of its range, or two do not go together.
    """

    regimes: int
    stages: int
    order: int
    seasonal: bool
    of_mean: bool
    switching: tuple[str, ...]
    transition_covariates: bool
    free_initial: bool
    persistence: float

    def __post_init__(self) -> None:
        at_least(1, regimes=self.regimes, stages=self.stages)
        at_least(0, order=self.order)
        for name in self.switching:
            one_of(SWITCHING, switching=name)
        if not self.switching:
            known = ", ".join(SWITCHING)
            raise ValueError(f"expected something that differs between regimes, a sum of {known}; got none")
        if "coefficients" in self.switching and not self.order:
            raise ValueError("expected lags whose coefficients differ between regimes, got order=0")
        if not 0 < self.persistence < 1:
            raise ValueError(f"expected persistence to be between 0 and 1, got {self.persistence}")
        states, histories = self.regimes * self.stages, self.order + 1
        if self.of_mean and states**histories > _MOST_HISTORIES:
            raise ValueError(
                f"expected at most {_MOST_HISTORIES} histories of regimes, got {states}^{histories}: means look "
                "at the regimes of all lags; take fewer lags, regimes or stages, or form='intercept'"
            )

    def own(self, part: str) -> int:
        """Return how many values a part has: one for each regime, or one for all."""
        return self.regimes if part in self.switching else 1

    def apart(self, part: str) -> Float[Tensor, " own"]:
        """Return values that tell regimes apart where training begins; zero where all share one."""
        return torch.linspace(-0.5, 0.5, self.own(part)) * (self.own(part) > 1)


class AbstractMarkovDynamics(AbstractDynamics, abc.ABC):
    """The chain of regimes of `MarkovForecaster`, and the centre and the unit of each series.

    Args:
        data: What the model knows of its data.
        options: Of the regimes.
        num_own: Size of what each series has of its own: centres and units of its targets, or one level; 0 for nothing.
    """

    is_growing = True

    def __init__(self, data: DataSpec, options: RegimeOptions, num_own: int) -> None:
        super().__init__()
        seasonal = options.seasonal and not options.of_mean and data.season > options.order
        self.lags = lags_of(options.order, data.season if seasonal else 0)
        self.regimes, self.stages, self.switching_parts = options.regimes, options.stages, options.switching
        self.targets, self.of_mean = data.num_targets, options.of_mean
        # A stage is left sooner than its regime, at most every other step.
        going = min(self.stages * (1 - options.persistence), max(0.5, 1 - options.persistence))
        stay, leave = math.log(1 - going), math.log(going / max(self.regimes - 1, 1))
        # Logarithms, whose softmax is the chain itself.
        self.transition = torch.nn.Parameter(torch.eye(self.regimes) * (stay - leave) + leave)
        self.transition_effects = None
        if options.transition_covariates:
            shape = data.num_dynamic_real, self.regimes, self.regimes
            self.transition_effects = torch.nn.Parameter(torch.zeros(shape))
        self.initial = torch.nn.Parameter(torch.zeros(self.regimes)) if options.free_initial else None
        self.own = SeriesParameters(torch.zeros(num_own), data.num_series, data.cardinality) if num_own else None
        if self.lags:
            self.log_prior_scales = torch.nn.Parameter(torch.tensor([0.0, -1.0]))
        # Whether the parameters come from data: a start is not made a second time.
        self.register_buffer("is_begun", torch.zeros((), dtype=torch.bool))

    @property
    def num_lags(self) -> int:
        """Return the largest lag."""
        return max(self.lags, default=0)

    @property
    def states(self) -> int:
        """Return the number of states of the chain, the stages of all regimes."""
        return self.regimes * self.stages

    @abc.abstractmethod
    def log_scales(self) -> Float[Tensor, " regime"]:
        """Return log scales of the noise of all regimes; of several targets their means."""

    @abc.abstractmethod
    def adopt(self, model: SwitchingRegression) -> None:
        """Write a fitted regression, with its regimes in order, into the parameters."""

    @abc.abstractmethod
    def system(self, inputs: Tensor) -> System:
        """Return the autoregression of each state of the chain.

        Args:
            inputs: Covariates of a slice of time, (time, series or 1, covariate).
        """

    def markov(self, time_slice: TimeSlice, series: Series) -> Markov:
        """Return the chain and the autoregression of a slice of time.

        Args:
            time_slice: Its covariates are read.
            series: Who the series are.
        """
        centre = log_unit = self.transition.new_zeros(len(series.index), self.targets)
        if self.own is not None:
            own = self.own(series.index, series.static_cat)
            centre, log_unit = own.chunk(2, -1) if own.shape[-1] > 1 else (centre, own)  # counts have a level alone
        size = max(self.num_lags, 1)
        cov = torch.eye(size, dtype=centre.dtype, device=centre.device)
        if self.lags:
            level, deep = (2 * self.log_prior_scales.clamp(LOWEST, HIGHEST)).exp().unbind()
            cov = cov * deep + level  # values before a series scatter about a level that they share
        # Before a series its targets are independent.
        cov = torch.kron(cov, torch.eye(self.targets, dtype=centre.dtype, device=centre.device))
        prior = Gaussian(centre.new_zeros(len(centre), len(cov)), cov.expand(len(centre), -1, -1))
        logits = self.transition.expand(1, 1, -1, -1)
        if self.transition_effects is not None:
            effects = torch.einsum("tbd,dij->tbij", time_slice.dynamic_real, self.transition_effects)
            logits = logits + effects
        initial = self.initial
        if initial is None:  # with covariates at their means
            initial = stationary(torch.log_softmax(self.transition, -1))
        system = self.system(time_slice.dynamic_real)
        if isinstance(system, SwitchingCounts):  # the level of a series is relative
            system = dataclasses.replace(system, location=system.location + log_unit)
            centre = log_unit = torch.zeros_like(centre)
        return Markov(
            system,
            staged(torch.log_softmax(logits, -1), self.stages),
            spread(torch.log_softmax(initial, -1), self.stages).unsqueeze(0),
            centre,
            log_unit.clamp(-_LARGEST_OWN, _LARGEST_OWN),
            prior,
        )

    def _adopt_chain(self, model: SwitchingRegression) -> None:
        """Writes the transitions of a fitted regression into the parameters."""
        self.transition.copy_(model.log_transition)
        if self.initial is not None:
            self.initial.copy_(stationary(model.log_transition))

    def _own(self, name: str, values: Tensor) -> Tensor:
        """Return the values of all regimes where they differ in a part, else those of the first."""
        return values if name in self.switching_parts else values[:1]  # all regimes share what does not switch

    def _of_states(self, values: Tensor, dim: int) -> Tensor:
        """Return values of regimes as those of the states of the chain."""
        return values.repeat_interleave(self.stages, dim) if self.stages > 1 else values


class MarkovDynamics(AbstractMarkovDynamics):
    """The parameters of `MarkovForecaster`, shared by all series but for the centre and the unit of each.

    Args:
        data: What the model knows of its data.
        options: Of the regimes.
        has_own: Whether each series has a centre and a unit of its own.
    """

    def __init__(self, data: DataSpec, options: RegimeOptions, has_own: bool) -> None:
        super().__init__(data, options, 2 * has_own)
        covariates = data.num_dynamic_real
        self.location = torch.nn.Parameter(options.apart("location"))
        self.log_scale = torch.nn.Parameter(options.apart("scale"))
        if self.lags:
            start = torch.zeros(options.own("coefficients"), len(self.lags))
            start[:, 0] = 0.9  # nearly a random walk
            self.coefficients = torch.nn.Parameter(start)
        self.effects = torch.nn.Parameter(torch.zeros(options.own("effects"), covariates)) if covariates else None

    def log_scales(self) -> Float[Tensor, " regime"]:
        """Return log scales of the noise of all regimes, bounded from below: a regime cannot be of one value alone."""
        return self.log_scale.clamp(LOWEST, HIGHEST).expand(self.regimes)

    def system(self, inputs: Tensor) -> SwitchingAutoregression:
        """Return the autoregression, see `AbstractMarkovDynamics`."""
        location = self.location.expand(1, 1, self.regimes)
        if self.effects is not None:
            location = location + (inputs @ self.effects.mT).expand(*inputs.shape[:2], self.regimes)
        row = self.location.new_zeros(1, self.regimes, self.num_lags)
        if self.lags:
            places = constant(self.lags, row) - 1
            row = row.index_copy(2, places, self.coefficients.expand(1, self.regimes, -1))  # lags in between have zeros
        location, row = self._of_states(location, 2), self._of_states(row, 1)
        return SwitchingAutoregression(location, row, self._of_states(self.log_scales(), 0)[None], self.of_mean)

    def adopt(self, model: SwitchingRegression) -> None:
        """Write a fitted regression into the parameters, see `AbstractMarkovDynamics`."""
        lags, coefficient = 0 if self.of_mean else len(self.lags), model.coefficient.squeeze(-1)
        log_scale = 0.5 * model.cov.flatten().log()
        self.location.copy_(self._own("location", coefficient[:, 0]))
        # Inside of its bounds, at which no gradient passes.
        self.log_scale.copy_(self._own("scale", log_scale).clamp(LOWEST + 0.1, HIGHEST - 0.1))
        if lags:
            self.coefficients.copy_(self._own("coefficients", coefficient[:, 1 : 1 + lags]))
        elif self.lags:
            self.coefficients.zero_()
        if self.effects is not None:
            self.effects.copy_(self._own("effects", coefficient[:, 1 + lags :]))
        self._adopt_chain(model)
