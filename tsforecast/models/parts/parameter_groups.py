"""Groups of parameters with learning rates of their own, and the optimiser over them."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

Group = tuple[list[torch.nn.Parameter], float, Callable[[int], float]]


@dataclasses.dataclass(frozen=True)
class ParameterGroups:
    """The learning rates of groups of parameters over the training.

    Attributes:
        learning_rate: Learning rate of all parameters that belong to no other group.
        networks: Prefixes of the names of parameters of networks.
        network_learning_rate: Learning rate of these networks.
        matrices: Names of parameters that are dense matrices of a linear system.
        matrix_learning_rate: Learning rate of these matrices; None for `learning_rate`.
        components: Prefixes of the names of parameters of components beside a dense part.
        components_learning_rate: Learning rate of these components.
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
    components: tuple[str, ...] = ()
    components_learning_rate: float = 0.0

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
        """Return the groups with their learning rates; these fall exponentially by a factor of 100.

        The rate of networks rises first: they learn differences after the other parameters have learnt the common part.
        While noises are wrong by orders of magnitude, networks would run into corners without a gradient back. Matrices
        have a rate of their own, because every step of Adam moves all their entries. A transition would soon lose its
        memory of hundreds of steps.

        Args:
            parameters: The parameters, with their names.
            total: Steps of the training.
            max_epochs: Epochs of the training.
        """
        named = list(parameters)
        networks = [p for name, p in named if name.startswith(self.networks)]
        matrices = [p for name, p in named if name in self.matrices]
        components = [p for name, p in named if name.startswith(self.components)]
        apart = {id(p) for p in (*networks, *matrices, *components)}
        alone = self.linear_epochs / max(max_epochs or 1, self.linear_epochs, 1) * total  # in steps
        of_networks = partial(learning_rate_factor, first=alone, last=total, rise=self.network_rise)
        of_rest = partial(learning_rate_factor, first=0.0, last=alone or total, again=total, share=self.linear_share)
        matrix_rate = self.learning_rate if self.matrix_learning_rate is None else self.matrix_learning_rate
        groups = [
            ([p for _, p in named if id(p) not in apart], self.learning_rate, of_rest),
            (components, self.components_learning_rate, of_rest),
            (matrices, matrix_rate, of_rest),
            (networks, self.network_learning_rate, of_networks),
        ]
        return [group for group in groups if group[0]]


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
    if not math.isfinite(total) or total <= 0:  # no last step is known to fall towards
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
    if step < first:  # networks wait while the linear model is trained alone
        return 0.0
    length = max(last - first, 1.0)
    passed = min((step - first) / length, 1.0)
    risen = min((step - first + 1) / (rise * length), 1.0) if rise else 1.0
    falling = risen**2 * 0.01**passed
    return max(falling, share * learning_rate_factor(step, last, again)) if step >= last < again else falling
