"""The regimes of a model, as every model with regimes reports them, and the method that asks for them."""

import abc
import dataclasses
from typing import Generic

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.models.parts.inference import AbstractInference, SomeDynamics
from tsforecast.models.records import Batch, Belief


@register_record
@dataclasses.dataclass(frozen=True)
class Regimes:
    """Regimes of the past of some series, given all of it.

    Attributes:
        probabilities: Of each regime; in models that mix regimes, their expected weights.
        pairs: Probabilities of the regime of the step before (first) and of the step together; or expected products of
            weights.
        path: Most likely path as a whole where it is known, else the regime with the largest probability at each step.
    """

    probabilities: Float[Tensor, "time series regime"]
    pairs: Float[Tensor, "time series before regime"]
    path: Int[Tensor, "time series"]


class AbstractRegimeInference(AbstractInference[SomeDynamics], abc.ABC, Generic[SomeDynamics]):
    """Inference in a model that has regimes."""

    def after(self, batch: Batch, belief: Belief | None = None) -> Belief:
        """Return the belief of `filter` alone."""
        return self.filter(batch, belief)[0]  # there is no cheaper way

    @abc.abstractmethod
    def regimes(self, batch: Batch, num_samples: int = 100, generator: torch.Generator | None = None) -> Regimes:
        """Return the regimes of the batch's past, given all of it.

        Args:
            batch: Its `past_*` fields are read.
            num_samples: Number of paths, where probabilities are means over paths that are drawn.
            generator: Source of random numbers.
        """

    @abc.abstractmethod
    def regimes_ahead(
        self, belief: Belief, future: Batch, num_samples: int = 100, generator: torch.Generator | None = None
    ) -> Float[Tensor, "time series regime"]:
        """Return the probabilities of regimes at every step of the horizon, or their expected weights.

        Args:
            belief: The belief at the end of the past.
            future: Its `future_*` fields are read; `known_future` is not.
            num_samples: As in `regimes`.
            generator: Source of random numbers.
        """

    @abc.abstractmethod
    def regime_scales(self) -> Float[Tensor, " regime"] | None:
        """Return the scale of the noise in each regime, as a multiple of its usual scale; None if regimes share one."""
