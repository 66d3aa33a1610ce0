"""Records of predictions: moments of targets, and the scores of those that were seen later."""

import dataclasses

from jaxtyping import Float
from torch import Tensor

from tsforecast.core.gaussian import register_record
from tsforecast.learners.shapes import Outputs


@register_record
@dataclasses.dataclass(frozen=True)
class Expectation:
    """Moments of targets that nobody has seen.

    Attributes:
        mean: Expected target; probabilities of the classes.
        variance: Of the target.
    """

    mean: Outputs
    variance: Outputs


@register_record
@dataclasses.dataclass(frozen=True)
class Prediction:
    """Moments of targets before they were seen, and their log-density after.

    Attributes:
        mean: Expected target; probabilities of the classes.
        variance: Of the target.
        log_prob: Log-density or log-probability of the observed components of a target; 0 where none is observed.
    """

    mean: Float[Tensor, "*time point output"]
    variance: Float[Tensor, "*time point output"]
    log_prob: Float[Tensor, "*time point"]
