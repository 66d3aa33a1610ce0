"""Functions over a box with a known least value: Branin, Ackley and Hartmann."""

import dataclasses
import math
from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class TestFunction:
    """A function to be minimised over a box.

    Attributes:
        name: What tables call it.
        function: Of points, one a row.
        low: Lower corner of the box.
        high: Upper corner.
        least: Its least value.
        minimisers: Points where it has that value, or some of them.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    low: tuple[float, ...]
    high: tuple[float, ...]
    least: float
    minimisers: tuple[tuple[float, ...], ...]

    def __call__(self, points: Float[Tensor, "*point dim"]) -> Float[Tensor, "*point"]:
        """Return the value at each point."""
        return self.function(points)

    @property
    def dim(self) -> int:
        """Return the number of coordinates."""
        return len(self.low)


def _branin(x: Tensor) -> Tensor:
    """(x2 - b x1^2 + c x1 - 6)^2 + 10 (1 - t) cos x1 + 10."""
    first, second = x.unbind(-1)
    bend = second - 5.1 / (4 * math.pi**2) * first.square() + 5 / math.pi * first - 6
    return bend.square() + 10 * (1 - 1 / (8 * math.pi)) * first.cos() + 10


def _ackley(x: Tensor) -> Tensor:
    """-20 exp(-0.2 sqrt(mean x^2)) - exp(mean cos 2 pi x) + 20 + e."""
    bowl = -20 * (-0.2 * x.square().mean(-1).sqrt()).exp()
    return bowl - (2 * math.pi * x).cos().mean(-1).exp() + 20 + math.e


_HARTMANN_WEIGHTS = (1.0, 1.2, 3.0, 3.2)
_HARTMANN_SCALES = (
    (10, 3, 17, 3.5, 1.7, 8), (0.05, 10, 17, 0.1, 8, 14), (3, 3.5, 1.7, 10, 17, 8), (17, 8, 0.05, 10, 0.1, 14),
)  # fmt: skip
_HARTMANN_CENTRES = (
    (1312, 1696, 5569, 124, 8283, 5886), (2329, 4135, 8307, 3736, 1004, 9991),
    (2348, 1451, 3522, 2883, 3047, 6650), (4047, 8828, 8732, 5743, 1091, 381),
)  # fmt: skip


def _hartmann(x: Tensor) -> Tensor:
    """-sum_i alpha_i exp(-sum_j A_ij (x_j - P_ij)^2)."""
    scales, centres = x.new_tensor(_HARTMANN_SCALES), 1e-4 * x.new_tensor(_HARTMANN_CENTRES)
    distance = (scales * (x.unsqueeze(-2) - centres).square()).sum(-1)
    return -((-distance).exp() @ x.new_tensor(_HARTMANN_WEIGHTS))


def ackley(dim: int) -> TestFunction:
    """Return Ackley's function of some coordinates (Ackley 1987), whose many minima lie on a bowl."""
    return TestFunction(f"ackley-{dim}", _ackley, (-32.768,) * dim, (32.768,) * dim, 0.0, ((0.0,) * dim,))


BRANIN = TestFunction(
    "branin", _branin, (-5.0, 0.0), (10.0, 15.0), 0.39788735772973816,
    ((-math.pi, 12.275), (math.pi, 2.275), (3 * math.pi, 2.475)),
)  # fmt: skip
HARTMANN = TestFunction(
    "hartmann-6", _hartmann, (0.0,) * 6, (1.0,) * 6, -3.32236801141551,
    ((0.20168952, 0.15001069, 0.47687398, 0.27533243, 0.31165162, 0.65730054),),
)  # fmt: skip
FUNCTIONS: dict[str, TestFunction] = {f.name: f for f in (BRANIN, ackley(2), ackley(5), HARTMANN)}
