"""The workloads of `filtering.py`: series and the parameters of the linear-Gaussian systems that made them.

Time convention: the prior is over x_0, the state of the first observation; A and Q (for the ISSM q[:, t]) lead from x_t
to x_{t+1}. Everything is float64 here; contenders cast.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

HOURS_A_WEEK = 168
ISSM_STATES = 1 + 24 + 7  # level, hour of the day, day of the week


@dataclasses.dataclass(frozen=True)
class Problem:
    """Series, parameters and what the log-likelihood is differentiated by.

    Attributes:
        name: As on the command line.
        kind: "issm" (A = I, one target; arrays q, r, active), "dense" (A, C, Q, R of each series) or "shared" (the same
            for all series). R is always diagonal and given by its diagonal.
        arrays: y (series, time, target), zero where missing; m0 (state,), P0 (state, state), shared by the series; and
            for the ISSM: q (series, time, 3), r (series, time) variances, active (time, 3) or (series, time, 3) indices
            of the states that are emitted at a step and moved after it.
        observed: Like y, False where missing; None if nothing is.
        wrt: Names of the arrays to differentiate by.
        jitter: Variance added to all of the ISSM's states at every step, for contenders which cannot do without.
    """

    name: str
    kind: str
    arrays: dict[str, np.ndarray]
    observed: np.ndarray | None
    wrt: tuple[str, ...]
    jitter: float = 0.0

    @property
    def num_series(self) -> int:
        """Number of series."""
        return self.arrays["y"].shape[0]

    @property
    def num_steps(self) -> int:
        """Length of each."""
        return self.arrays["y"].shape[1]

    def first(self, num_series: int) -> "Problem":
        """The problem of the first series only."""
        return self.part(slice(0, min(num_series, self.num_series)))

    def part(self, series: slice) -> "Problem":
        """The problem of some of the series."""
        per_series = {"y", *({"q", "r"} if self.kind == "issm" else "ACQR" if self.kind == "dense" else "")}
        if self.kind == "issm" and self.arrays["active"].ndim == 3:
            per_series.add("active")
        arrays = {name: x[series] if name in per_series else x for name, x in self.arrays.items()}
        observed = None if self.observed is None else self.observed[series]
        return dataclasses.replace(self, arrays=arrays, observed=observed)

    def with_nans(self) -> np.ndarray:
        """The series with NaN where missing."""
        y = self.arrays["y"]
        return y if self.observed is None else np.where(self.observed, y, np.nan)

    def active(self) -> np.ndarray:
        """Indices of the active states for each series, (series, time, 3)."""
        active = self.arrays["active"]
        return np.tile(active, (self.num_series, 1, 1)) if active.ndim == 2 else active

    def emission(self) -> np.ndarray:
        """The ISSM's C, a sum of unit vectors: (time, 1, state), or (series, time, 1, state) with phases."""
        return np.eye(ISSM_STATES)[self.arrays["active"]].sum(-2)[..., None, :]

    def state_noise(self) -> np.ndarray:
        """The ISSM's Q as full matrices, (series, time, state, state)."""
        diagonal = np.zeros((self.num_series, self.num_steps, ISSM_STATES))
        np.put_along_axis(diagonal, self.active(), self.arrays["q"], -1)
        return (diagonal + self.jitter)[..., None] * np.eye(ISSM_STATES)


def issm(name: str, num_series: int, phases: bool = False, missing: float = 0.0, num_steps: int = 168) -> Problem:
    """Level + hour of the day + day of the week, noises of each series and step; phases: series start at any hour."""
    rng = np.random.default_rng(1)
    start = rng.integers(HOURS_A_WEEK, size=(num_series, 1)) if phases else np.zeros((1, 1), int)
    hour = start + np.arange(num_steps)
    active = np.stack([np.zeros_like(hour), 1 + hour % 24, 25 + hour // 24 % 7], -1)
    q = rng.uniform(0.01, 0.2, (num_series, num_steps, 3)) ** 2
    r = rng.uniform(0.1, 0.7, (num_series, num_steps)) ** 2
    state = rng.standard_normal((num_series, ISSM_STATES))
    y = np.empty((num_series, num_steps, 1))
    rows = np.arange(num_series)[:, None]
    for t in range(num_steps):
        y[:, t, 0] = state[rows, active[:, t]].sum(-1) + np.sqrt(r[:, t]) * rng.standard_normal(num_series)
        state[rows, active[:, t]] += np.sqrt(q[:, t]) * rng.standard_normal((num_series, 3))
    arrays = {"q": q, "r": r, "active": active if phases else active[0], **_prior(ISSM_STATES, 1.0)}
    return _problem(name, "issm", y, arrays, ("q", "r"), missing, rng)


def dense(name: str, num_targets: int, num_series: int = 500, num_states: int = 16, num_steps: int = 168) -> Problem:
    """Every series has its own stable system, as have the particles of a switching model."""
    rng = np.random.default_rng(2)
    square = (num_series, num_states, num_states)
    transition = 0.97 * np.linalg.qr(rng.standard_normal(square))[0]
    emission = rng.standard_normal((num_series, num_targets, num_states)) / np.sqrt(num_states)
    root = rng.standard_normal(square) / np.sqrt(num_states)
    noise = 0.1 * (root @ root.swapaxes(-1, -2) + np.eye(num_states))
    variances = rng.uniform(0.1, 0.5, (num_series, num_targets))
    y = _simulate(rng, transition, emission, noise, variances, rng.standard_normal((num_series, num_states)), num_steps)
    arrays = {"A": transition, "C": emission, "Q": noise, "R": variances, **_prior(num_states, 1.0)}
    return _problem(name, "dense", y, arrays, tuple("ACQR"), 0.0, rng)


def shared(name: str, missing: float = 0.0, num_series: int = 992, num_steps: int = 1000) -> Problem:
    """Tracking in the plane by noisy positions: states (position, velocity) for each axis, one system for all."""
    rng = np.random.default_rng(3)
    axis = np.array([[1.0, 1.0], [0.0, 0.95]])
    transition = np.kron(np.eye(2), axis)
    emission = np.kron(np.eye(2), np.array([[1.0, 0.0]]))
    noise = np.diag([0.01, 0.1, 0.01, 0.1])
    variances = np.array([1.0, 1.5])
    y = _simulate(rng, transition, emission, noise, variances, 2 * rng.standard_normal((num_series, 4)), num_steps)
    arrays = {"A": transition, "C": emission, "Q": noise, "R": variances, **_prior(4, 4.0)}
    return _problem(name, "shared", y, arrays, tuple("ACQR"), missing, rng)


def _prior(num_states: int, variance: float) -> dict[str, np.ndarray]:
    return {"m0": np.zeros(num_states), "P0": variance * np.eye(num_states)}


def _simulate(
    rng: np.random.Generator,
    transition: np.ndarray,
    emission: np.ndarray,
    noise: np.ndarray,
    variances: np.ndarray,
    state: np.ndarray,
    num_steps: int,
) -> np.ndarray:
    root = np.linalg.cholesky(noise)
    y = np.empty((len(state), num_steps, emission.shape[-2]))
    for t in range(num_steps):
        y[:, t] = (emission @ state[..., None])[..., 0] + np.sqrt(variances) * rng.standard_normal(y[:, t].shape)
        state = (transition @ state[..., None] + root @ rng.standard_normal((*state.shape, 1)))[..., 0]
    return y


def _problem(
    name: str,
    kind: str,
    y: np.ndarray,
    arrays: dict[str, np.ndarray],
    wrt: tuple[str, ...],
    missing: float,
    rng: np.random.Generator,
) -> Problem:
    observed = rng.random(y.shape) >= missing if missing else None
    if observed is not None:
        y = np.where(observed, y, 0.0)
    return Problem(name, kind, {"y": y, **arrays}, observed, wrt)


# "gaps" adds what batches of real series have: 10 % missing values and, for the ISSM, a phase of the season per series.
PROBLEMS: dict[str, Callable[[str], Problem]] = {
    "issm50": lambda name: issm(name, 50),
    "issm50-gaps": lambda name: issm(name, 50, phases=True, missing=0.1),
    "issm370": lambda name: issm(name, 370),
    "issm370-gaps": lambda name: issm(name, 370, phases=True, missing=0.1),
    "dense10": lambda name: dense(name, 10),
    "dense1": lambda name: dense(name, 1),
    "small": shared,
    "small-gaps": lambda name: shared(name, missing=0.1),
}
