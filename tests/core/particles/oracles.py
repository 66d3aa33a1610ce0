"""Small switching systems whose answers are known, and the textbook's formulas for one particle, in NumPy."""

import dataclasses
import itertools
import math

import numpy as np
import torch
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.oracles import generator
from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, map_tensors, particles
from tsforecast.core.linalg import LOG_2PI, matvec
from tsforecast.core.particles.categorical import CategoricalSwitching
from tsforecast.core.particles.filtering import Regime
from tsforecast.core.particles.proposals import DiagonalGaussian
from tsforecast.core.particles.switching import GaussianSwitching

STATES, TARGETS, SWITCHES, STEPS = 2, 2, 3, 5
AUXILIARIES = 3  # unlike the targets, so that one is never taken for the other

PRIOR = Gaussian(
    torch.tensor([0.5, -1.0], dtype=torch.float64), torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)
)


def random_cov(size: int, rng: torch.Generator, scale: float = 1.0) -> Tensor:
    root = torch.randn(size, size, generator=rng, dtype=torch.float64)
    return scale * (root @ root.mT / size + 0.3 * torch.eye(size, dtype=torch.float64))


def series(seed: int, missing: bool, steps: int = STEPS) -> tuple[Tensor, Tensor | None]:
    """Values and mask: the second observation is missing, and a part of the last but one."""
    values = torch.randn(steps, TARGETS, generator=generator(seed), dtype=torch.float64)
    if not missing:
        return values, None
    observed = torch.ones(steps, TARGETS, dtype=torch.bool)
    observed[1] = False
    observed[-2 if steps > 3 else -1, 0] = False
    return torch.where(observed, values, 0.0), observed


def wide(x: Tensor | None, count: int) -> Tensor | None:
    """The same series `count` times."""
    return None if x is None else x.unsqueeze(1).expand(-1, count, -1)


def many(prior: Gaussian, count: int) -> Gaussian:
    return Gaussian(prior.mean.expand(count, -1), prior.cov.expand(count, -1, -1))


def run(system, values, observed, count, num_particles, seed, prior=PRIOR, **options):
    """The filter on `count` copies of one series."""
    return particles.filter(
        system,
        system.begin(num_particles, many(prior, count)),
        wide(values, count),
        wide(observed, count),
        generator=generator(seed),
        **options,
    )


def leaves(record) -> list[Tensor]:
    return [x for x in pytree.tree_leaves(record) if x is not None]


def assert_same(found, expected, **tolerance) -> None:
    """Tensors or records of them, bit for bit where no tolerance is given."""
    for x, y in zip(leaves(found), leaves(expected), strict=True):
        torch.testing.assert_close(x, y, **(tolerance or {"rtol": 0, "atol": 0}))


def errors_from_one(estimates: Tensor, exact: Tensor) -> float:
    """How many standard errors the mean of Z / Z* is away from one."""
    ratio = (estimates - exact).exp()
    return float((ratio.mean() - 1) / (ratio.std() / math.sqrt(len(ratio))))


def errors_from(samples: Tensor, exact: Tensor, allowance: float = 0.0) -> float:
    """The largest distance in standard errors between means over the first dimension and what they should be."""
    standard = samples.std(0) / math.sqrt(len(samples))
    return float((((samples.mean(0) - exact).abs() - allowance).clamp_min(0.0) / standard).max())


def cast(x, dtype: torch.dtype):
    """A model, a record or a tensor with all its tensors in another precision."""
    if isinstance(x, Tensor):
        return x.to(dtype) if x.is_floating_point() else x
    if isinstance(x, dict):
        return {name: cast(value, dtype) for name, value in x.items()}
    if isinstance(x, (Mixed, Recurrent, Chain, LinearDecoder)):
        copy = dataclasses.replace(x)
        for name, value in vars(x).items():
            setattr(copy, name, cast(value, dtype))
        return copy
    return map_tensors(lambda v: cast(v, dtype), x)


def random_proposal(seed: int, size: int, count: int, steps: int = STEPS, variance: float = 4.0) -> DiagonalGaussian:
    """A poor proposal, so that importance weighting has something to correct."""
    mean = 0.5 * torch.randn(steps, 1, size, generator=generator(seed), dtype=torch.float64)
    return DiagonalGaussian(mean.expand(-1, count, -1), torch.full((1, count, size), variance, dtype=torch.float64))


@dataclasses.dataclass
class LinearDecoder:
    """p(y | z) = N(W z + c, diag(variance))."""

    weight: Tensor
    offset: Tensor
    variance: Tensor

    @classmethod
    def random(cls, seed: int, auxiliaries: int = AUXILIARIES) -> "LinearDecoder":
        rng = generator(seed)
        weight = 0.5 * torch.randn(TARGETS, auxiliaries, generator=rng, dtype=torch.float64)
        offset = torch.randn(TARGETS, generator=rng, dtype=torch.float64)
        return cls(weight, offset, torch.tensor([1.5, 2.5], dtype=torch.float64))

    def log_prob(self, auxiliary: Tensor, value: Tensor, observed: Tensor | None, time: int) -> Tensor:
        square = (value - auxiliary @ self.weight.mT - self.offset).square() / self.variance
        each = -0.5 * (square + self.variance.log() + LOG_2PI)
        return (each if observed is None else torch.where(observed, each, 0.0)).sum(-1)

    def sample(self, auxiliary: Tensor, time: int, generator: torch.Generator | None) -> Tensor:
        mean = auxiliary @ self.weight.mT + self.offset
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
        return mean + self.variance.sqrt() * noise

    def after(self, emission: LinearGaussian) -> LinearGaussian:
        """p(y | x), the auxiliary integrated out."""
        noise = self.weight @ emission.noise @ self.weight.mT + torch.diag(self.variance)
        offset = emission.offset @ self.weight.mT + self.offset
        return LinearGaussian(self.weight @ emission.matrix, offset, noise)


@dataclasses.dataclass
class Chain:
    """A random categorical system. Its tensors may have a leading dimension of series, each with its own."""

    parameters: dict[str, Tensor]

    @classmethod
    def random(cls, seed: int) -> "Chain":
        rng = generator(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        def covs(size, scale):
            return torch.stack([random_cov(size, rng, scale) for _ in range(SWITCHES)])

        return cls(
            {
                "initial": normal(SWITCHES), "transition": normal(SWITCHES, SWITCHES),
                "A": 0.6 * normal(SWITCHES, STATES, STATES), "b": normal(SWITCHES, STATES), "R": covs(STATES, 0.3),
                "C": normal(SWITCHES, TARGETS, STATES), "d": normal(SWITCHES, TARGETS), "Q": covs(TARGETS, 0.5),
            },
        )  # fmt: skip

    def moved(self, shift: Tensor) -> "Chain":
        """Every parameter moved along a random direction of its own, by one of the numbers in (series, parameter)."""
        rng, parameters = generator(99), {}
        for name, by in zip(self.parameters, shift.unbind(-1), strict=True):
            value = self.parameters[name]
            direction = torch.randn(value.shape, generator=rng, dtype=torch.float64)
            if name in ("R", "Q"):  # these stay covariances
                direction = 0.3 * (direction + direction.mT)
            parameters[name] = value + by.reshape(*by.shape, *[1] * value.ndim) * direction
        return Chain(parameters)

    @property
    def moving(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    def regime(self, switch: Tensor) -> Regime:
        """A one-hot switch (..., series, switch) chooses."""
        picked = {}
        for name in ("A", "b", "R", "C", "d", "Q"):
            value = self.parameters[name]
            axes = "ij"[: value.ndim - (2 if self.own else 1)]
            series = "n" if self.own else ""
            picked[name] = torch.einsum(f"...{series}k,{series}k{axes}->...{series}{axes}", switch, value)
        return Regime(
            LinearGaussian(picked["A"], picked["b"], picked["R"]),
            LinearGaussian(picked["C"], picked["d"], picked["Q"]),
        )

    @property
    def own(self) -> bool:
        return self.parameters["initial"].ndim == 2

    @property
    def log_initial(self) -> Tensor:
        return torch.log_softmax(self.parameters["initial"], -1)

    @property
    def log_transition(self) -> Tensor:
        return torch.log_softmax(self.parameters["transition"], -1)

    def system(self, num_series: int, optimal: bool = True, **options) -> CategoricalSwitching:
        log_transition = self.log_transition

        def transition(switch: Tensor, time: int) -> Tensor:
            return (switch.unsqueeze(-2) @ log_transition).squeeze(-2)

        return CategoricalSwitching(
            self.log_initial.expand(1, num_series, SWITCHES),
            transition,
            lambda switch, time: self.regime(switch),
            optimal,
            **options,
        )

    def exact(
        self, values: Tensor, observed: Tensor | None, prior: Gaussian = PRIOR
    ) -> tuple[Tensor, Tensor, kalman.Smoothed]:
        """Of all paths of switches: log p(path, y), the paths (path, time), the smoothed states; one series."""
        steps = len(values)
        paths = torch.tensor(list(itertools.product(range(SWITCHES), repeat=steps)))
        log_prior = self.log_initial[paths[:, 0]]
        for t in range(1, steps):
            log_prior = log_prior + self.log_transition[paths[:, t - 1], paths[:, t]]
        pick = {name: self.parameters[name][paths.T] for name in ("A", "b", "R", "C", "d", "Q")}  # (time, path, ...)
        system = LinearSystem(
            LinearGaussian(pick["A"], pick["b"], pick["R"]), LinearGaussian(pick["C"], pick["d"], pick["Q"])
        )
        smoothed = kalman.smooth(system, prior, wide(values, len(paths)), wide(observed, len(paths)))
        return log_prior + smoothed.log_likelihood.sum(0), paths, smoothed


@dataclasses.dataclass
class Recurrent:
    """s_t = F x_{t-1} + G s_{t-1} + f + eps moves only the offset of x_t, so that (x, s) is a linear system."""

    seed: int = 5
    size: int = 2
    decoder: LinearDecoder | None = None

    def __post_init__(self):
        rng = generator(self.seed)

        def normal(*shape):
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        k, emitted = self.size, TARGETS if self.decoder is None else AUXILIARIES
        self.A, self.B, self.R = 0.6 * normal(STATES, STATES), 0.4 * normal(STATES, k), random_cov(STATES, rng, 0.3)
        self.C, self.Q = 0.8 * normal(emitted, STATES), random_cov(emitted, rng)
        self.F, self.G, self.f = 0.7 * normal(k, STATES), 0.3 * normal(k, k), normal(k)
        self.S, self.m1, self.V1 = 0.3 * normal(k).exp(), normal(k), 0.5 * normal(k).exp()
        self.d = torch.zeros(emitted, dtype=torch.float64)

    def system(self, num_series: int, proposal: DiagonalGaussian | None = None, **options) -> GaussianSwitching:
        k = self.size

        def parameters(switch: Tensor, time: int) -> Regime:
            batch = switch.shape[:-1]
            return Regime(
                LinearGaussian(self.A, matvec(self.B, switch), self.R),
                LinearGaussian(self.C, self.d, self.Q),
                self.F.expand(*batch, k, STATES),
                self.S.expand(*batch, k),
            )

        return GaussianSwitching(
            DiagonalGaussian(self.m1.expand(1, num_series, k), self.V1.expand(1, num_series, k)),
            lambda switch, time: matvec(self.G, switch) + self.f,
            parameters,
            proposal,
            likelihood=self.decoder,
            auxiliary_dim=0 if self.decoder is None else AUXILIARIES,
            **{"recurrent": True, **options},
        )

    def moved(self, shift: Tensor) -> "Recurrent":
        """See `Chain.moved`."""
        rng, model = generator(99), dataclasses.replace(self)
        for name, by in zip(self.moving, shift.unbind(-1), strict=True):
            value = getattr(self, name)
            direction = torch.randn(value.shape, generator=rng, dtype=torch.float64)
            setattr(model, name, value + by.reshape(*by.shape, *[1] * value.ndim) * direction)
        return model

    @property
    def moving(self) -> tuple[str, ...]:
        return ("A", "B", "C", "F", "G", "f", "m1")

    def linear(self, steps: int = STEPS, begun: bool = False) -> tuple[LinearSystem, Gaussian]:
        """The system of (x_t, s_t), and the prior of (x_0, s_0) that makes s_1 what it is.

        Args:
            steps: How many.
            begun: Whether the first of them is none of the series' first.
        """
        k = self.size
        # x_t = A x_{t-1} + B s_t + w; s_t = F x_{t-1} + G s_{t-1} + f + e; the first s_t has neither F nor G.
        later = torch.cat([torch.cat([self.A + self.B @ self.F, self.B @ self.G], -1), torch.cat([self.F, self.G], -1)])
        eye = torch.eye(k, dtype=torch.float64)
        first = torch.cat([torch.cat([self.A, self.B], -1), torch.cat([torch.zeros_like(self.F), eye], -1)])
        spread = torch.cat([self.B, eye])
        noise = spread @ torch.diag(self.S) @ spread.mT
        noise[:STATES, :STATES] += self.R
        first_noise = torch.block_diag(self.R, torch.zeros_like(eye))
        offset = spread @ self.f
        matrices, offsets, noises = [later] * steps, [offset] * steps, [noise] * steps
        if not begun:
            matrices[0], offsets[0], noises[0] = first, torch.zeros_like(offset), first_noise
        emission = LinearGaussian(self.C, self.d, self.Q)
        emission = emission if self.decoder is None else self.decoder.after(emission)
        nothing = torch.zeros(TARGETS, k, dtype=torch.float64)
        system = LinearSystem(
            LinearGaussian(torch.stack(matrices), torch.stack(offsets), torch.stack(noises)),
            LinearGaussian(
                torch.cat([emission.matrix, nothing], -1)[None], emission.offset[None], emission.noise[None]
            ),
        )
        prior = Gaussian(torch.cat([PRIOR.mean, self.m1]), torch.block_diag(PRIOR.cov, torch.diag(self.V1)))
        return system, prior

    def data(self, missing: bool, steps: int = STEPS) -> tuple[Tensor, Tensor | None, Tensor]:
        """A series of the model, what is observed of it, and its exact log-likelihood."""
        system, prior = self.linear(steps)
        values = kalman.simulate(system, prior, steps, 1, generator(self.seed))[1][:, 0]
        observed = series(0, missing, steps)[1]
        values = values if observed is None else torch.where(observed, values, 0.0)
        return values, observed, system.log_likelihood(prior, values, observed).sum()


@dataclasses.dataclass
class Mixed:
    """Base matrices mixed by softmax of a layer of the switch, and a drift that bends: nothing about it is linear."""

    seed: int = 0
    size: int = 1
    recurrent: bool = False
    decoder: LinearDecoder | None = None
    bases: int = 3

    def __post_init__(self):
        rng = generator(self.seed)

        def normal(*shape):
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        k, number, emitted = self.size, self.bases, TARGETS if self.decoder is None else AUXILIARIES
        self.parameters = {
            "U": 1.5 * normal(number, k), "v": 0.5 * normal(number),
            "A": 0.7 * normal(number, STATES, STATES), "b": normal(number, STATES), "R": 0.5 * normal(number, STATES),
            "C": normal(number, emitted, STATES), "d": normal(number, emitted), "Q": 0.5 * normal(number, emitted),
            "F": 0.7 * normal(number, k, STATES), "S": 0.3 * normal(number, k),
            "G": 0.7 * normal(k, k), "g": 0.5 * normal(k), "m1": normal(k), "V1": 0.2 + normal(k).square(),
        }  # fmt: skip

    def drift(self, switch: Tensor, time: int) -> Tensor:
        """Depends on the step."""
        p = self.parameters
        return switch @ p["G"].mT + 0.8 * torch.sin(2 * switch) + (1 + 0.5 * time) * p["g"]

    def regime(self, switch: Tensor, time: int) -> Regime:
        p = self.parameters
        mixing = torch.softmax(switch @ p["U"].mT + p["v"], -1)

        def mix(name: str) -> Tensor:
            return (mixing @ p[name].flatten(1)).unflatten(-1, p[name].shape[1:])

        def variances(name: str) -> Tensor:
            return (-2 * mix(name)).exp()

        return Regime(
            LinearGaussian(mix("A"), mix("b") + 0.1 * time, torch.diag_embed(variances("R"))),
            LinearGaussian(mix("C"), mix("d"), torch.diag_embed(variances("Q"))),
            mix("F") if self.recurrent else None,
            variances("S"),
        )

    def system(self, num_series: int, **options) -> GaussianSwitching:
        shape = (1, num_series, self.size)
        return GaussianSwitching(
            DiagonalGaussian(self.parameters["m1"].expand(shape), self.parameters["V1"].expand(shape)),
            self.drift,
            self.regime,
            likelihood=self.decoder,
            recurrent=self.recurrent,
            auxiliary_dim=0 if self.decoder is None else AUXILIARIES,
            **options,
        )

    def by_quadrature(self, values: Tensor, observed: Tensor | None, nodes: int) -> Tensor:
        """log p(y): Gauss-Hermite nodes of every switch given the one before, a Kalman filter for every path."""
        assert self.size == 1
        assert not self.recurrent
        points, weights = (torch.as_tensor(x) for x in np.polynomial.hermite_e.hermegauss(nodes))
        log_weights = weights.log() - 0.5 * LOG_2PI
        mean, variance = self.parameters["m1"].expand(1, 1), self.parameters["V1"].expand(1, 1)
        log_prob, path = torch.zeros(1, dtype=torch.float64), []
        for t in range(len(values)):
            switch = (mean + variance.sqrt() * points).reshape(-1, 1)
            log_prob = (log_prob.unsqueeze(-1) + log_weights).flatten()
            path = [x.repeat_interleave(nodes, 0) for x in path] + [switch]
            mean, variance = self.drift(switch, t + 1), self.regime(switch, t).switch_noise
        regimes = [self.regime(switch, t) for t, switch in enumerate(path)]
        emissions = [r.emission if self.decoder is None else self.decoder.after(r.emission) for r in regimes]
        stack = lambda parts: LinearGaussian(  # noqa: E731
            *(torch.stack([getattr(p, name) for p in parts]) for name in ("matrix", "offset", "noise"))
        )
        system = LinearSystem(stack([r.transition for r in regimes]), stack(emissions))
        count = len(log_prob)
        found = kalman.filter(system, many(PRIOR, count), wide(values, count), wide(observed, count)).log_likelihood
        return torch.logsumexp(log_prob + found.sum(0), 0)


def systems(count: int, steps: int = STEPS) -> dict:
    """One of each kind, with nothing about it that is easy."""
    proposal, seen = random_proposal(0, 2, count, steps), random_proposal(1, AUXILIARIES, count, steps)
    return {
        "chain": Chain.random(3).system(count, optimal=False),
        "optimal": Chain.random(3).system(count),
        "open": Mixed(7, 2).system(count, proposal=proposal),
        "recurrent": Mixed(7, 2, True).system(count, proposal=proposal),
        "auxiliary": Mixed(7, 2, True, LinearDecoder.random(1)).system(
            count, proposal=proposal, auxiliary_proposal=seen
        ),
    }


def later(system, pad: int, steps: int = STEPS):
    """The same system, all series of which begin only after `pad` steps."""
    num_series = system.initial.shape[1] if isinstance(system, CategoricalSwitching) else system.initial.mean.shape[1]
    active = torch.arange(pad + steps)[:, None].expand(-1, num_series) >= pad
    if isinstance(system, CategoricalSwitching):
        return dataclasses.replace(
            system,
            transition=lambda switch, time: system.transition(switch, time - pad),
            parameters=lambda switch, time: system.parameters(switch, time - pad),
            active=active,
        )

    def shift(proposal: DiagonalGaussian | None) -> DiagonalGaussian | None:
        front = lambda x: torch.cat([torch.ones(pad, *x.shape[1:], dtype=x.dtype), x])  # noqa: E731
        return None if proposal is None else map_tensors(lambda x: x if len(x) == 1 else front(x), proposal)

    return dataclasses.replace(
        system,
        drift=lambda switch, time: system.drift(switch, time - pad),
        parameters=lambda switch, time: system.parameters(switch, time - pad),
        proposal=shift(system.proposal),
        auxiliary_proposal=shift(system.auxiliary_proposal),
        active=active,
    )


def padded(x: Tensor, pad: int) -> Tensor:
    """Zeros, or False, in front."""
    return torch.cat([torch.zeros(pad, *x.shape[1:], dtype=x.dtype), x])


# The textbook's formulas for one particle of one series, with inverses.


@dataclasses.dataclass
class Step:
    """What one step of one particle finds.

    Attributes:
        switch: Moments of p(s_t | history).
        emitted: Moments of p(z_t | history), or of y_t.
        belief: Over x_t.
    """

    switch: tuple[np.ndarray, np.ndarray]
    emitted: tuple[np.ndarray, np.ndarray]
    belief: tuple[np.ndarray, np.ndarray]


def condition(
    mean: np.ndarray, cov: np.ndarray, matrix: np.ndarray, offset: np.ndarray, noise: np.ndarray, value: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """p(a | b) for b = matrix a + offset + noise."""
    gain = cov @ matrix.T @ np.linalg.inv(matrix @ cov @ matrix.T + noise)
    return mean + gain @ (value - matrix @ mean - offset), cov - gain @ matrix @ cov


def follow(
    model: Mixed,
    belief: tuple[np.ndarray, np.ndarray],
    before: Tensor | None,
    switches: Tensor,
    emitted: Tensor,
    observed: Tensor,
    first: int = 0,
) -> list[Step]:
    """The steps of a particle whose switches, and auxiliaries or observations, are given.

    Args:
        model: Of which the particle is.
        belief: Over the state before.
        before: The switch before; None at the begin of a series.
        switches: (time, switch).
        emitted: (time, auxiliary or target).
        observed: Which components of the `emitted` the belief is conditioned on.
        first: Index of the first step.
    """
    (mean, cov), steps = belief, []
    for t, switch in enumerate(switches, first):
        if before is None:
            mean_s, cov_s = model.parameters["m1"].numpy(), np.diag(model.parameters["V1"].numpy())
        else:
            past = model.regime(before, t - 1)
            mean_s, cov_s = model.drift(before, t).numpy(), np.diag(past.switch_noise.numpy())
            if model.recurrent:
                matrix, offset, noise = past.recurrence.numpy(), mean_s, cov_s
                mean_s, cov_s = matrix @ mean + offset, matrix @ cov @ matrix.T + noise
                mean, cov = condition(mean, cov, matrix, offset, noise, switch.numpy())
        regime, before = model.regime(switch, t), switch
        matrix, offset, noise = (getattr(regime.transition, x).numpy() for x in ("matrix", "offset", "noise"))
        mean, cov = matrix @ mean + offset, matrix @ cov @ matrix.T + noise
        matrix, offset, noise = (getattr(regime.emission, x).numpy() for x in ("matrix", "offset", "noise"))
        emission = matrix @ mean + offset, matrix @ cov @ matrix.T + noise
        rows = observed[t - first].numpy()
        if rows.any():
            mean, cov = condition(
                mean, cov, matrix[rows], offset[rows], noise[np.ix_(rows, rows)], emitted[t - first].numpy()[rows]
            )
        steps.append(Step((mean_s, cov_s), emission, (mean, cov)))
    return steps


def log_density(moments: tuple[np.ndarray, np.ndarray], value: Tensor, rows: Tensor | None = None) -> float:
    """Of some components of a Gaussian."""
    mean, cov = moments
    keep = np.ones(len(mean), dtype=bool) if rows is None else rows.numpy()
    if not keep.any():
        return 0.0
    return float(multivariate_normal.logpdf(value.numpy()[keep], mean[keep], cov[np.ix_(keep, keep)]))


def product(moments: tuple[np.ndarray, np.ndarray], proposal: DiagonalGaussian) -> tuple[np.ndarray, np.ndarray]:
    """The renormalised product of two Gaussians: precisions add."""
    (mean, cov), precision = moments, np.diag(1 / proposal.variance.numpy())
    joint = np.linalg.inv(np.linalg.inv(cov) + precision)
    return joint @ (np.linalg.solve(cov, mean) + precision @ proposal.mean.numpy()), joint
