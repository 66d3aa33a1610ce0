"""Types of the arguments and results of conditionals p(b | a), by their shapes: a is in, b is out."""

from jaxtyping import Bool, Float
from torch import Tensor

from tsforecast.core.gaussian import Gaussian

Given = Float[Tensor, "*#batch in"]
Value = Float[Tensor, "*#batch out"]
Observed = Bool[Tensor, "*#batch out"] | None
Drawn = Float[Tensor, "*batch out"]
JointMoments = tuple[Value, Float[Tensor, "*#batch out in"], Float[Tensor, "*#batch out out"]]
Posterior = tuple[Gaussian, Float[Tensor, "*batch"]]
