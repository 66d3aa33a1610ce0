"""The pendulum of `run.py`: motion, energy, noisy positions."""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

NOISE = 0.05  # m, standard deviation of an observed coordinate


@dataclasses.dataclass(frozen=True)
class Pendulum:
    """A damped pendulum, angle'' = -(gravity / length) sin(angle) - damping angle'; the angle is 0 at the bottom.

    Attributes:
        length: In m.
        gravity: In m/s^2.
        damping: In 1/s.
    """

    length: float = 1.0
    gravity: float = 9.81
    damping: float = 0.25

    def derivative(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of (angle, velocity), with these as first dimension."""
        angle, velocity = state
        return np.stack([velocity, -self.gravity / self.length * np.sin(angle) - self.damping * velocity])

    def energy(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        """Kinetic and potential energy per mass, in J/kg; zero at rest at the bottom."""
        angle, velocity = state
        return 0.5 * (self.length * velocity) ** 2 + self.gravity * self.length * (1 - np.cos(angle))

    def positions(self, angle: NDArray[np.float64]) -> NDArray[np.float64]:
        """Coordinates x and y around the pivot, as last dimension: (0, -length) at the bottom."""
        return self.length * np.stack([np.sin(angle), -np.cos(angle)], axis=-1)

    def swing(
        self, start: NDArray[np.float64], num_steps: int, step: float = 0.1, substep: float = 0.01
    ) -> NDArray[np.float64]:
        """(angle, velocity) at the times 0, step, ..., by the classical Runge-Kutta rule of fourth order.

        Args:
            start: Angle and velocity, (2, sequence).
            num_steps: Times.
            step: Seconds between two times.
            substep: Seconds of a step of integration, a whole number of which are a step.

        Returns:
            Of shape (2, sequence, time).
        """
        state, states = start, [start]
        for _ in range(num_steps - 1):
            for _ in range(round(step / substep)):
                first = self.derivative(state)
                second = self.derivative(state + 0.5 * substep * first)
                third = self.derivative(state + 0.5 * substep * second)
                fourth = self.derivative(state + substep * third)
                state = state + substep / 6 * (first + 2 * second + 2 * third + fourth)
            states.append(state)
        return np.stack(states, axis=-1)


def simulate(num_sequences: int, num_steps: int, seed: int) -> tuple[Tensor, Tensor]:
    """True and noisy positions in metres, (sequence, time, 2), of pendulums at rest at N(180, 10^2) degrees."""
    rng, pendulum = np.random.default_rng(seed), Pendulum()
    angle = np.deg2rad(rng.normal(180.0, 10.0, num_sequences))
    truth = pendulum.positions(pendulum.swing(np.stack([angle, np.zeros_like(angle)]), num_steps)[0])
    noisy = truth + rng.normal(0.0, NOISE, truth.shape)
    return torch.tensor(truth, dtype=torch.float32), torch.tensor(noisy, dtype=torch.float32)
