"""A chain of regimes, and the autoregression or the counts that it controls, in a slice of time."""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core import Gaussian
from tsforecast.core.gaussian import map_tensors
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.regimes.autoregression import SwitchingAutoregression
from tsforecast.core.regimes.counts import SwitchingCounts
from tsforecast.core.regimes.vector_autoregression import SwitchingVectorAutoregression

_NUGGET = 1e-8  # share of a variance, for sampling given later values in float64
System = SwitchingAutoregression | SwitchingVectorAutoregression | SwitchingCounts


@dataclasses.dataclass(frozen=True)
class Markov:
    """A chain of regimes and the autoregression it controls in a slice of time, in units of each series.

    The states of the chain are the stages of regimes, see `tsforecast.core.regimes.stages`.

    Attributes:
        system: The autoregression.
        log_transition: log p(s_t = j | s_{t-1} = i) of every step, or of all.
        initial: log p(s_0) before the first step.
        centre: Centre of each series and target, in scaled units.
        log_unit: Logarithm of their units, likewise.
        prior: Belief over the values before a series begins.
    """

    system: System
    log_transition: Float[Tensor, "time_or_1 #series regime regime"]
    initial: Float[Tensor, "#series regime"]
    centre: Float[Tensor, "series target"]
    log_unit: Float[Tensor, "series target"]
    prior: Gaussian

    def standard(self, values: Float[Tensor, "time series target"]) -> Float[Tensor, "time series target"]:
        """Return scaled values in the units of their series."""
        return (values - self.centre) * (-self.log_unit).exp()

    def scaled(self, values: Float[Tensor, "time sample series target"]) -> Float[Tensor, "time sample series target"]:
        """Return values in the units of their series as scaled ones."""
        return values * self.log_unit.exp() + self.centre

    def of_steps(
        self, values: Float[Tensor, "steps series target"], first: int
    ) -> tuple[Float[Tensor, "time series history"], Gaussian]:
        """Return the log-densities of known values behind the first L of them, and the state behind the last.

        Args:
            values: In the units of their series; all of them known.
            first: Index of the step of the first of them, whose location is read.
        """
        system = self.system
        if len(system.location) > 1:
            system = dataclasses.replace(system, location=system.location[first:])
        if isinstance(system, SwitchingVectorAutoregression):
            return system.log_density(values), system.state(values)
        return system.log_density(values.squeeze(-1)), system.state(values.squeeze(-1))

    def held(self) -> "Markov":
        """Return the same with a chain that never leaves a state."""
        states = self.log_transition.shape[-1]
        eye = torch.eye(states, dtype=self.log_transition.dtype, device=self.log_transition.device)
        # 0 has an infinite logarithm, and 0 times that in `transition` is NaN.
        return dataclasses.replace(self, log_transition=eye.clamp_min(1e-30).log()[None, None])

    def switching(self, active: Bool[Tensor, "time series"] | None = None, exact: bool = True) -> CategoricalSwitching:
        """Return the same system as particles take it, with the last values as its state.

        Args:
            active: False where a series has not begun.
            exact: Whether values are observed without noise; else with hardly any, in float64.
        """
        system, log_transition, initial = self.system, self.log_transition, self.initial
        if not exact:
            system = map_tensors(lambda x: x.double(), system)
            log_transition, initial = log_transition.double(), initial.double()  # a nugget of 1e-8 is lost in float32
        start = torch.logsumexp(initial.unsqueeze(-1) + log_transition, -2)  # `initial` is before the first step

        def transition(switch: Tensor, time: int) -> Tensor:
            at = log_transition[time if len(log_transition) > 1 else 0]
            return (switch.unsqueeze(-2) @ at).squeeze(-2)  # a switch is one-hot: it picks its row

        assert not isinstance(system, SwitchingCounts)
        return CategoricalSwitching(
            start.expand(-1, len(self.centre), -1),
            transition,
            lambda switch, time: system.regime(switch, time, 0.0 if exact else _NUGGET),
            active=active,
        )
