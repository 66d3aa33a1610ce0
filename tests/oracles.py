"""Independent forms of what the core computes, in float64 and without its code; and random systems to compare on."""

import dataclasses

import numpy as np
import torch
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_covariance(shape: tuple[int, ...], dim: int, rng: torch.Generator) -> torch.Tensor:
    """Well conditioned: a Wishart draw plus a multiple of the identity."""
    root = torch.randn(*shape, dim, dim, generator=rng, dtype=torch.float64)
    return root @ root.mT / dim + 0.3 * torch.eye(dim, dtype=torch.float64)


def random_gaussian(shape: tuple[int, ...], dim: int, rng: torch.Generator) -> Gaussian:
    mean = torch.randn(*shape, dim, generator=rng, dtype=torch.float64)
    return Gaussian(mean, random_covariance(shape, dim, rng))


def random_conditional(shape: tuple[int, ...], out: int, dim: int, rng: torch.Generator) -> LinearGaussian:
    """With a matrix whose powers stay bounded."""
    matrix = torch.randn(*shape, out, dim, generator=rng, dtype=torch.float64) / (1.2 * dim**0.5)
    offset = torch.randn(*shape, out, generator=rng, dtype=torch.float64)
    return LinearGaussian(matrix, offset, random_covariance(shape, out, rng))


def random_system(shape: tuple[int, ...], states: int, targets: int, rng: torch.Generator) -> LinearSystem:
    """`shape` is (time or 1, *batch)."""
    return LinearSystem(random_conditional(shape, states, states, rng), random_conditional(shape, targets, states, rng))


def random_data(
    shape: tuple[int, ...], targets: int, rng: torch.Generator, missing: float = 0.3
) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and mask; missing are single components, and every fourth step as a whole."""
    values = torch.randn(*shape, targets, generator=rng, dtype=torch.float64)
    observed = torch.rand(*shape, targets, generator=rng) > missing
    observed[1::4] = False
    return values, observed


@dataclasses.dataclass(frozen=True)
class Plain:
    """One series as lists of NumPy matrices: transition (a, b, r) and emission (c, d, q) of every step."""

    a: list[np.ndarray]
    b: list[np.ndarray]
    r: list[np.ndarray]
    c: list[np.ndarray]
    d: list[np.ndarray]
    q: list[np.ndarray]
    m0: np.ndarray
    v0: np.ndarray

    @property
    def num_steps(self) -> int:
        return len(self.a)


def plain(system: LinearSystem, prior: Gaussian, num_steps: int, index: tuple[int, ...] = ()) -> Plain:
    """The system of one series, picked from the batch at `index` (trailing dimensions of the index broadcast)."""

    def steps(x: torch.Tensor, event_ndim: int) -> list[np.ndarray]:
        x = x.expand(num_steps, *x.shape[1:])
        batch = x.ndim - 1 - event_ndim
        picked = x[(slice(None), *_broadcast_index(index, x.shape[1 : 1 + batch]))]
        return list(picked.detach().double().numpy())

    def one(x: torch.Tensor, event_ndim: int) -> np.ndarray:
        batch = x.ndim - event_ndim
        return x[_broadcast_index(index, x.shape[:batch])].detach().double().numpy()

    transition, emission = system.transition, system.emission
    return Plain(
        steps(transition.matrix, 2),
        steps(transition.offset, 1),
        steps(transition.noise, 2),
        steps(emission.matrix, 2),
        steps(emission.offset, 1),
        steps(emission.noise, 2),
        one(prior.mean, 1),
        one(prior.cov, 2),
    )


def _broadcast_index(index: tuple[int, ...], shape: torch.Size) -> tuple[int, ...]:
    index = index[len(index) - len(shape) :]
    return tuple(i if size > 1 else 0 for i, size in zip(index, shape, strict=True))


@dataclasses.dataclass(frozen=True)
class Joint:
    """The joint density of x_0, ..., x_T (first) and y_1, ..., y_T, as one big Gaussian."""

    mean: np.ndarray
    cov: np.ndarray
    num_states: int
    num_targets: int
    num_steps: int

    def state(self, time: int) -> slice:
        """Where x_time lies."""
        return slice(time * self.num_states, (time + 1) * self.num_states)

    def observations(self, until: int | None = None) -> np.ndarray:
        """Where y_1, ..., y_until lie."""
        first = (self.num_steps + 1) * self.num_states
        until = self.num_steps if until is None else until
        return np.arange(first, first + until * self.num_targets)

    def given(self, values: np.ndarray, observed: np.ndarray, until: int) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of all states given the observed components of y_1, ..., y_until."""
        seen = self.observations(until)[observed[:until].ravel()]
        states = slice(0, (self.num_steps + 1) * self.num_states)
        cross = self.cov[states][:, seen]
        gain = np.linalg.solve(self.cov[np.ix_(seen, seen)], cross.T).T if len(seen) else cross
        residual = values[:until].ravel()[observed[:until].ravel()] - self.mean[seen]
        return self.mean[states] + gain @ residual, self.cov[states, states] - gain @ cross.T

    def log_density(self, values: np.ndarray, observed: np.ndarray, until: int) -> float:
        """log p of the observed components of y_1, ..., y_until."""
        seen = self.observations(until)[observed[:until].ravel()]
        residual = values[:until].ravel()[observed[:until].ravel()] - self.mean[seen]
        cov = self.cov[np.ix_(seen, seen)]
        quadratic = residual @ np.linalg.solve(cov, residual) if len(seen) else 0.0
        return -0.5 * (quadratic + np.linalg.slogdet(cov)[1] + len(seen) * np.log(2 * np.pi))


def joint(model: Plain) -> Joint:
    """Written as (I - L) x = noise, y = C x + noise, with all times stacked: no recursion."""
    steps, states, targets = model.num_steps, len(model.m0), len(model.d[0])
    size = (steps + 1) * states
    lower, noise, offset = np.eye(size), np.zeros((size, size)), np.zeros(size)
    noise[:states, :states], offset[:states] = model.v0, model.m0
    count = steps * targets
    emission, blur, shift = np.zeros((count, size)), np.zeros((count, count)), np.zeros(count)
    for t in range(1, steps + 1):
        now, before = slice(t * states, (t + 1) * states), slice((t - 1) * states, t * states)
        lower[now, before] = -model.a[t - 1]
        noise[now, now], offset[now] = model.r[t - 1], model.b[t - 1]
        out = slice((t - 1) * targets, t * targets)
        emission[out, now], blur[out, out], shift[out] = model.c[t - 1], model.q[t - 1], model.d[t - 1]
    inverse = np.linalg.inv(lower)
    mean, cov = inverse @ offset, inverse @ noise @ inverse.T
    return Joint(
        np.concatenate([mean, emission @ mean + shift]),
        np.block([[cov, cov @ emission.T], [emission @ cov, emission @ cov @ emission.T + blur]]),
        states,
        targets,
        steps,
    )


def statsmodels_smoother(model: Plain, values: np.ndarray, observed: np.ndarray):
    """The results of statsmodels' KalmanSmoother; its first state is our x_1, predicted from x_0.

    Its transition at t leads to t + 1, ours into t: matrices are shifted by one step.
    """
    steps, states, targets = model.num_steps, len(model.m0), len(model.d[0])
    smoother = KalmanSmoother(k_endog=targets, k_states=states, k_posdef=states)
    smoother.bind(np.where(observed, values, np.nan))
    last = model.a[-1], model.b[-1], model.r[-1]
    smoother["design"] = np.stack(model.c, -1)
    smoother["obs_intercept"] = np.stack(model.d, -1)
    smoother["obs_cov"] = np.stack(model.q, -1)
    smoother["transition"] = np.stack([*model.a[1:], last[0]], -1)
    smoother["state_intercept"] = np.stack([*model.b[1:], last[1]], -1)
    smoother["selection"] = np.eye(states)
    smoother["state_cov"] = np.stack([*model.r[1:], last[2]], -1)
    first = model.a[0] @ model.m0 + model.b[0]
    smoother.initialize_known(first, model.a[0] @ model.v0 @ model.a[0].T + model.r[0])
    smoother.tolerance = 0.0  # no steady state
    assert steps == len(values)
    return smoother.smooth()


def rts_smoother(model: Plain, filtered: list[tuple[np.ndarray, np.ndarray]]):
    """Rauch, Tung and Striebel's backward pass from the filter's moments of x_0 (the prior), x_1, ..., x_T.

    Returns lists over t = 0, ..., T of mean and covariance, and over t = 1, ..., T of Cov(x_t, x_{t-1}).
    """
    mean, cov = filtered[-1]
    means, covs, crosses = [mean], [cov], []
    for t in range(model.num_steps - 1, -1, -1):
        m, v = filtered[t]
        ahead_mean = model.a[t] @ m + model.b[t]
        ahead = model.a[t] @ v @ model.a[t].T + model.r[t]
        gain = v @ model.a[t].T @ np.linalg.inv(ahead)
        crosses.insert(0, covs[0] @ gain.T)
        means.insert(0, m + gain @ (means[0] - ahead_mean))
        covs.insert(0, v + gain @ (covs[0] - ahead) @ gain.T)
    return means, covs, crosses


def plain_log_likelihood(
    system: LinearSystem, prior: Gaussian, values: torch.Tensor, observed: torch.Tensor | None = None
) -> torch.Tensor:
    """The textbook's filter in torch, with an explicit inverse and Joseph's update, for gradients by plain autograd.

    Shapes as in the core; the missing are left out by a selection, one series at a time. (time, *batch)
    """
    batch = torch.broadcast_shapes(
        values.shape[1:-1], prior.batch_shape, system.transition.noise.shape[1:-2], system.emission.noise.shape[1:-2]
    )
    if batch:
        return torch.stack(
            [
                plain_log_likelihood(
                    _take(system, i, 1),
                    _take(prior, i, 0),
                    _take_values(values, i),
                    None if observed is None else _take_values(observed, i),
                )
                for i in range(batch[-1])
            ],
            -1,
        )
    mean, cov, terms = prior.mean, prior.cov, []
    eye = torch.eye(len(mean), dtype=mean.dtype)
    for t in range(len(values)):
        a, b, r = (x[t if len(x) > 1 else 0] for x in _parts(system.transition))
        c, d, q = (x[t if len(x) > 1 else 0] for x in _parts(system.emission))
        mean, cov = a @ mean + b, a @ cov @ a.T + r
        seen = torch.ones(len(d), dtype=torch.bool) if observed is None else observed[t]
        if not seen.any():
            terms.append(mean.sum() * 0)
            continue
        c, d, q, y = c[seen], d[seen], q[seen][:, seen], values[t][seen]
        innovation = torch.distributions.MultivariateNormal(c @ mean + d, c @ cov @ c.T + q)
        terms.append(innovation.log_prob(y))
        gain = cov @ c.T @ torch.linalg.inv(innovation.covariance_matrix)
        keep = eye - gain @ c
        mean, cov = mean + gain @ (y - c @ mean - d), keep @ cov @ keep.T + gain @ q @ gain.T
    return torch.stack(terms)


def _parts(conditional: LinearGaussian) -> tuple[torch.Tensor, ...]:
    return conditional.matrix, conditional.offset, conditional.noise


def _take_values(x: torch.Tensor, i: int) -> torch.Tensor:
    if x.ndim == 2:
        return x
    return x[..., i if x.shape[-2] > 1 else 0, :]


def _take(record, i: int, lead: int):
    """The series at position i of the last batch dimension."""

    def pick(x: torch.Tensor, event_ndim: int) -> torch.Tensor:
        dim = x.ndim - event_ndim - 1
        return x if dim < lead else x.select(dim, i if x.shape[dim] > 1 else 0)

    if isinstance(record, LinearSystem):
        return LinearSystem(_take(record.transition, i, lead), _take(record.emission, i, lead))
    if isinstance(record, LinearGaussian):
        return LinearGaussian(pick(record.matrix, 2), pick(record.offset, 1), pick(record.noise, 2))
    return Gaussian(pick(record.mean, 1), pick(record.cov, 2))
