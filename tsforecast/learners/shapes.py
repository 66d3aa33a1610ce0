"""Shapes of the tensors that networks, likelihoods, families of beliefs and learners hand to each other."""

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

Inputs: TypeAlias = Float[Tensor, "point *feature"]
Outputs: TypeAlias = Float[Tensor, "point output"]
OutputCov: TypeAlias = Float[Tensor, "point output output"]
Jacobian: TypeAlias = Float[Tensor, "point output weight"]
Target: TypeAlias = Float[Tensor, "point target"]
Observed: TypeAlias = Bool[Tensor, "point target"]

Weights: TypeAlias = Float[Tensor, " weight"]
Samples: TypeAlias = Float[Tensor, "sample weight"]
Places: TypeAlias = Int[Tensor, " weight"]  # of weights in a larger network
Scalar: TypeAlias = Float[Tensor, ""] | float

# A pseudo-observation `residual = rows (theta - mean) + v`, v ~ N(0, I), of one point or of each.
Rows: TypeAlias = Float[Tensor, "row weight"]
Residual: TypeAlias = Float[Tensor, " row"]
Whitened: TypeAlias = tuple[Float[Tensor, "point row weight"], Float[Tensor, "point row"]]

# Of a linear drift: one number, one for each weight, or as a family takes it.
Decay: TypeAlias = Float[Tensor, "*decay"] | float
Noise: TypeAlias = Float[Tensor, "*noise"] | float

Batch: TypeAlias = Float[Tensor, "*batch"]
