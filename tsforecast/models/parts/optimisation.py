"""Options of training."""

import dataclasses
from typing import Any

from tsforecast.models.bounds import above_zero, at_least, one_of

OBJECTIVES = ("likelihood", "crps")


def _check(options: Any) -> None:
    """Refuses options of training out of their range."""
    values = dataclasses.asdict(options)
    one_of(OBJECTIVES, objective=values.pop("objective"))
    del values["seed"]  # None is no number
    if not 0 <= values.get("linear_share", 0) <= 1:
        raise ValueError(f"expected linear_share to be between 0 and 1, got {values['linear_share']}")
    above_zero(reconstruction_weight=values.pop("reconstruction_weight", None))
    at_least(0, **values)


@dataclasses.dataclass(frozen=True)
class Training:
    """Options of training for a model with a likelihood in closed form.

    Attributes:
        objective: "crps" of the forecast of a window's future from its past, which is robust where the model is not
            true. Or "likelihood", the exact one of past and future, which is efficient where the model is true.
        learning_rate: Learning rate of the parameters of the state-space model. It falls to a hundredth over the
            training.
        network_learning_rate: Learning rate of networks, likewise.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "crps"
    learning_rate: float = 0.1
    network_learning_rate: float = 0.01
    seed: int | None = None

    __post_init__ = _check


@dataclasses.dataclass(frozen=True)
class MatrixTraining:
    """Options of training for a linear system of dense matrices.

    Attributes:
        objective: "crps" of the forecast of a window's future from its past, which is robust where the model is not
            true. Or "likelihood", the exact one of past and future, which is efficient where the model is true.
        learning_rate: Learning rate of scales and prior. It falls to a hundredth over the training.
        matrix_learning_rate: Learning rate of transition, emission and the matrices of inputs.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "crps"
    learning_rate: float = 0.1
    matrix_learning_rate: float = 3e-3
    seed: int | None = None

    __post_init__ = _check


@dataclasses.dataclass(frozen=True)
class BankTraining:
    """Options of training for a bank of models.

    Attributes:
        objective: "crps" of the mixture's forecast of a window's future from its past, or "likelihood" of that future.
        learning_rate: Learning rate of all parameters. It falls to a hundredth over the training.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "crps"
    learning_rate: float = 0.1
    seed: int | None = None

    __post_init__ = _check


@dataclasses.dataclass(frozen=True)
class PoolTraining:
    """Options of training for a pool of models, beside those of its members.

    Attributes:
        seed: Seed of what is random in training; None for not reproducible.
    """

    seed: int | None = None

    objective = "crps"  # like it, the sum of the members' losses is of the future of a window


@dataclasses.dataclass(frozen=True)
class SwitchingTraining:
    """Options of training for a structural model with switches.

    Attributes:
        objective: "likelihood", the Monte Carlo objective sum_t log p^(y_t | y_1, ..., y_{t-1}) of the particle filter
            (FIVO; Maddison et al. 2017, Naesseth et al. 2018, Le et al. 2018); or "crps" of reparametrised paths of a
            window's future: of switches where these give Gaussians, else of values.
        learning_rate: Learning rate of the parameters of the linear model inside. It falls to a hundredth over the
            training.
        network_learning_rate: Learning rate of everything else.
        gradient_length: With the objective "crps", steps at the end of a window's past through which gradients go back;
            0 for all. This truncated backpropagation through time is faster, takes less memory, and is blind to what
            takes longer.
        linear_epochs: Epochs at the beginning in which the linear model inside is trained alone, by the closed-form
            CRPS of its forecasts. Such epochs are far faster than those with particles.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "likelihood"
    learning_rate: float = 0.1
    network_learning_rate: float = 5e-3
    gradient_length: int = 0
    linear_epochs: int = 0
    seed: int | None = None

    __post_init__ = _check


@dataclasses.dataclass(frozen=True)
class DenseTraining:
    """Options of training for a model with switches that weigh dense base matrices.

    Attributes:
        objective: "likelihood", the Monte Carlo objective sum_t log p^(y_t | y_1, ..., y_{t-1}) of the particle filter
            (FIVO; Maddison et al. 2017, Naesseth et al. 2018, Le et al. 2018); or "crps" of reparametrised paths of a
            window's future: of switches where these give Gaussians, else of values.
        learning_rate: Learning rate of scales and prior. It falls to a hundredth over the training.
        network_learning_rate: Learning rate of networks.
        matrix_learning_rate: Learning rate of base matrices; None for `learning_rate`.
        gradient_length: With the objective "crps", steps at the end of a window's past through which gradients go back;
            0 for all. This truncated backpropagation through time is faster, takes less memory, and is blind to what
            takes longer.
        linear_epochs: Epochs at the beginning in which the linear model inside is trained alone, by the closed-form
            CRPS of its forecasts. Such epochs are far faster than those with particles.
        linear_share: Share of their learning rates with which all but networks begin once more when networks join after
            `linear_epochs`. 0 keeps the linear model nearly as it is. Gradients of particles are noisy, and a
            transition that carries a season over weeks is soon damped by them.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "likelihood"
    learning_rate: float = 5e-3
    network_learning_rate: float = 5e-3
    matrix_learning_rate: float | None = None
    gradient_length: int = 0
    linear_epochs: int = 0
    linear_share: float = 0.3
    seed: int | None = None

    __post_init__ = _check


@dataclasses.dataclass(frozen=True)
class AuxiliaryTraining:
    """Options of training for a model with an auxiliary variable.

    Attributes:
        objective: "likelihood", a lower bound of it: the Monte Carlo objective of the particle filter, or the evidence
            lower bound of a Kalman VAE; or "crps" of reparametrised paths of a window's future.
        learning_rate: Learning rate of scales and prior. It falls to a hundredth over the training.
        network_learning_rate: Learning rate of networks.
        matrix_learning_rate: Learning rate of base matrices; None for `learning_rate`.
        reconstruction_weight: Weight of log p(y_t | z_t). Frames have so many pixels that at 1 the dynamics hardly
            count, and the model only learns to draw.
        gradient_length: With the objective "crps", steps at the end of a window's past through which gradients go back;
            0 for all. This truncated backpropagation through time is faster, takes less memory, and is blind to what
            takes longer.
        linear_epochs: Epochs at the beginning in which the linear model inside is trained alone, by the closed-form
            CRPS of its forecasts. Such epochs are far faster than those with particles.
        linear_share: Share of their learning rates with which all but networks begin once more when networks join after
            `linear_epochs`. 0 keeps the linear model nearly as it is.
        seed: Seed of what is random in training; None for not reproducible.

    Raises:
        ValueError: If the objective is not known, or a number is out of its range.
    """

    objective: str = "likelihood"
    learning_rate: float = 5e-3
    network_learning_rate: float = 5e-3
    matrix_learning_rate: float | None = None
    reconstruction_weight: float = 1.0
    gradient_length: int = 0
    linear_epochs: int = 0
    linear_share: float = 0.3
    seed: int | None = None

    __post_init__ = _check
