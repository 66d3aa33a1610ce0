"""Options of training, and the optimiser with its groups of parameters."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from tsforecast.models.parts.bounds import above_zero, at_least, one_of

Group = tuple[list[torch.nn.Parameter], float, Callable[[int], float]]

OBJECTIVES = ("likelihood", "crps")


def _check(options: Any) -> None:
    """Refuses options of training out of their range."""
    values = dataclasses.asdict(options)
    one_of(OBJECTIVES, objective=values.pop("objective"))
    del values["seed"]
    if not 0 <= values.get("linear_share", 0) <= 1:
        raise ValueError(f"expected linear_share to be between 0 and 1, got {values['linear_share']}")
    above_zero(reconstruction_weight=values.pop("reconstruction_weight", None))
    at_least(0, **values)


@dataclasses.dataclass(frozen=True)
class Training:
    """Options of training for a model whose likelihood is in closed form.

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

    @property
    def objective(self) -> str:
        """Return "crps": like it, the sum of the members' losses is of the future of a window."""
        return "crps"


@dataclasses.dataclass(frozen=True)
class SwitchingTraining:
    """Options of training for a structural model with switches.

    Attributes:
        objective: "likelihood", the Monte Carlo objective sum_t log p^(y_t | y_1, ..., y_{t-1}) of the particle filter
            (FIVO; Maddison et al. 2017, Naesseth et al. 2018, Le et al. 2018); or "crps" of reparametrised sample paths
            of a window's future.
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
    """Options of training for a model whose switches weigh dense base matrices.

    Attributes:
        objective: "likelihood", the Monte Carlo objective sum_t log p^(y_t | y_1, ..., y_{t-1}) of the particle filter
            (FIVO; Maddison et al. 2017, Naesseth et al. 2018, Le et al. 2018); or "crps" of reparametrised sample paths
            of a window's future.
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
            lower bound of a Kalman VAE; or "crps" of reparametrised sample paths of a window's future.
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


@dataclasses.dataclass(frozen=True)
class ParameterGroups:
    """Which parameters of a model learn at which rate, and when.

    Attributes:
        learning_rate: Learning rate of all parameters that belong to no other group.
        networks: Prefixes of the names of parameters of networks.
        network_learning_rate: Learning rate of these networks.
        matrices: Names of parameters that are dense matrices of a linear system.
        matrix_learning_rate: Learning rate of these matrices; None for `learning_rate`.
        network_rise: Share of the training in which the learning rate of networks rises.
        linear_epochs: Epochs at the beginning in which networks do not learn.
        linear_share: Share of their rates with which all but networks begin once more after these epochs.
    """

    learning_rate: float
    networks: tuple[str, ...] = ()
    network_learning_rate: float = 0.0
    matrices: tuple[str, ...] = ()
    matrix_learning_rate: float | None = None
    network_rise: float = 0.2
    linear_epochs: int = 0
    linear_share: float = 0.0

    def optimizer(
        self, parameters: Iterable[tuple[str, torch.nn.Parameter]], total: float, max_epochs: int | None
    ) -> Any:
        """Return Adam over the groups, and the learning rate schedule of each.

        Args:
            parameters: The parameters, with their names.
            total: Steps of the training.
            max_epochs: Epochs of the training.

        Returns:
            What `configure_optimizers` of Lightning returns.
        """
        return adam(self.groups(parameters, total, max_epochs), total)

    def groups(
        self, parameters: Iterable[tuple[str, torch.nn.Parameter]], total: float, max_epochs: int | None
    ) -> list[Group]:
        """Return the groups with their learning rates, which fall exponentially by a factor of 100.

        That of networks rises first, so that they learn differences after the rest has learnt what is common. While
        noises are still wrong by orders of magnitude, networks would run into corners from which no gradient leads
        back. Matrices have a rate of their own: every step of Adam moves all their entries, and what a transition keeps
        for hundreds of steps is soon lost.

        Args:
            parameters: The parameters, with their names.
            total: Steps of the training.
            max_epochs: Epochs of the training.
        """
        named = list(parameters)
        networks = [p for name, p in named if name.startswith(self.networks)]
        matrices = [p for name, p in named if name in self.matrices]
        apart = {id(p) for p in (*networks, *matrices)}
        alone = self.linear_epochs / max(max_epochs or 1, self.linear_epochs, 1) * total
        of_networks = partial(learning_rate_factor, first=alone, last=total, rise=self.network_rise)
        of_rest = partial(learning_rate_factor, first=0.0, last=alone or total, again=total, share=self.linear_share)
        matrix_rate = self.learning_rate if self.matrix_learning_rate is None else self.matrix_learning_rate
        found = [
            ([p for _, p in named if id(p) not in apart], self.learning_rate, of_rest),
            (matrices, matrix_rate, of_rest),
            (networks, self.network_learning_rate, of_networks),
        ]
        return [group for group in found if group[0]]


@dataclasses.dataclass(frozen=True)
class PoolGroups:
    """The groups of parameters of all members, see `ParameterGroups`.

    Attributes:
        members: Those of each member.
    """

    members: tuple[ParameterGroups, ...]

    @property
    def linear_epochs(self) -> int:
        """Return the largest of the members'."""
        return max(member.linear_epochs for member in self.members)

    def optimizer(
        self, parameters: Iterable[tuple[str, torch.nn.Parameter]], total: float, max_epochs: int | None
    ) -> Any:
        """Return the optimiser and schedules of all members, see `ParameterGroups.optimizer`."""
        named = list(parameters)
        groups = []
        for k, member in enumerate(self.members):
            prefix = f"members.{k}."
            own = [(name.removeprefix(prefix), p) for name, p in named if name.startswith(prefix)]
            groups += member.groups(own, total, max_epochs)
        return adam(groups, total)


def adam(groups: Sequence[Group], total: float) -> Any:
    """Return Adam with the momenta of the switching-model papers, and the learning rate schedule of each group.

    Args:
        groups: Parameters, learning rates, and functions from a step to the factor of that rate.
        total: Steps of the training; not finite or 0 for no schedule.

    Returns:
        What `configure_optimizers` of Lightning returns.
    """
    optimizer = torch.optim.Adam([{"params": group[0], "lr": group[1]} for group in groups], betas=(0.9, 0.95))
    if not math.isfinite(total) or total <= 0:
        return optimizer
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, [of_group for _, _, of_group in groups])
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def learning_rate_factor(
    step: int, first: float, last: float, rise: float = 0.0, again: float = 0.0, share: float = 0.0
) -> float:
    """Return the factor that the learning rate has at a step.

    It falls exponentially from 1 at the first step to 0.01 at the last, times a factor that rises like a square at the
    beginning. From the last step on it stays, or it falls once more from a `share` where that is larger, until the step
    `again`.

    Args:
        step: Number of the step.
        first: First step with a rate above zero.
        last: Step at which the factor is 0.01.
        rise: Share of these steps in which the rate rises; 0 for none.
        again: Step at which the second fall ends; 0 for no second fall.
        share: Factor with which the second fall begins.
    """
    if step < first:
        return 0.0
    length = max(last - first, 1.0)
    passed = min((step - first) / length, 1.0)
    risen = min((step - first + 1) / (rise * length), 1.0) if rise else 1.0
    falling = risen**2 * 0.01**passed
    return max(falling, share * learning_rate_factor(step, last, again)) if step >= last < again else falling
