"""Rao-Blackwellised particle filters against exact likelihoods: enumerated, by quadrature, or a Kalman filter's."""

import dataclasses
import itertools
import math

import pytest
import torch
from torch import Tensor

from tsforecast.core import Gaussian, LinearGaussian, LinearSystem, kalman, particles
from tsforecast.core.particle_smoother import smooth
from tsforecast.core.particles import Regime
from tsforecast.core.switching import CategoricalSwitching, Diagonal, GaussianSwitching

STATES, TARGETS, SWITCHES, STEPS = 2, 2, 3, 5


@pytest.fixture(autouse=True)
def _float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def random_cov(size: int, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    root = torch.randn(size, size, generator=generator)
    return scale * (root @ root.mT / size + 0.3 * torch.eye(size))


@dataclasses.dataclass
class Chain:
    """A random categorical system."""

    log_initial: Tensor
    log_transition: Tensor
    matrices: dict[str, Tensor]

    @classmethod
    def random(cls, seed: int) -> "Chain":
        g = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=g)

        def covs(size, scale):
            return torch.stack([random_cov(size, g, scale) for _ in range(SWITCHES)])

        return cls(
            torch.log_softmax(normal(SWITCHES), -1),
            torch.log_softmax(normal(SWITCHES, SWITCHES), -1),
            {
                "A": 0.6 * normal(SWITCHES, STATES, STATES), "b": normal(SWITCHES, STATES), "R": covs(STATES, 0.3),
                "C": normal(SWITCHES, TARGETS, STATES), "d": normal(SWITCHES, TARGETS), "Q": covs(TARGETS, 0.5),
            },
        )  # fmt: skip

    def regime(self, switch: Tensor) -> Regime:
        mix = {name: torch.tensordot(switch, x, 1) for name, x in self.matrices.items()}
        return Regime(LinearGaussian(mix["A"], mix["b"], mix["R"]), LinearGaussian(mix["C"], mix["d"], mix["Q"]))

    def system(self, num_series: int, optimal: bool = True) -> CategoricalSwitching:
        return CategoricalSwitching(
            self.log_initial.expand(1, num_series, SWITCHES),
            lambda switch, time: switch @ self.log_transition,
            lambda switch, time: self.regime(switch),
            optimal,
        )

    def paths(self) -> Tensor:
        return torch.tensor(list(itertools.product(range(SWITCHES), repeat=STEPS)))

    def exact(self, prior: Gaussian, values: Tensor, observed: Tensor | None) -> tuple[Tensor, Tensor, kalman.Smoothed]:
        """Of all paths of switches: log p(path, y), the paths, and the smoothed states; one series."""
        paths = self.paths()
        log_prior = self.log_initial[paths[:, 0]]
        for t in range(1, STEPS):
            log_prior = log_prior + self.log_transition[paths[:, t - 1], paths[:, t]]
        pick = {name: x[paths.T] for name, x in self.matrices.items()}  # (time, path, ...)
        system = LinearSystem(
            LinearGaussian(pick["A"], pick["b"], pick["R"]), LinearGaussian(pick["C"], pick["d"], pick["Q"])
        )
        mask = None if observed is None else observed.unsqueeze(1).expand(-1, len(paths), -1)
        smoothed = kalman.smooth(system, prior, values.unsqueeze(1).expand(-1, len(paths), -1), mask)
        return log_prior + smoothed.log_likelihood.sum(0), paths, smoothed


def series(seed: int, missing: bool) -> tuple[Tensor, Tensor | None]:
    g = torch.Generator().manual_seed(seed)
    values = torch.randn(STEPS, TARGETS, generator=g)
    if not missing:
        return values, None
    observed = torch.ones(STEPS, TARGETS, dtype=torch.bool)
    observed[1] = False  # a whole observation
    observed[3, 0] = False  # a part of one
    return torch.where(observed, values, 0.0), observed


PRIOR = Gaussian(
    torch.tensor([0.5, -1.0], dtype=torch.float64), torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)
)


def run(system, values, observed, prior, count, num_particles, generator, **options):
    """The filter on `count` copies of one series."""

    def wide(x):
        return None if x is None else x.unsqueeze(1).expand(-1, count, -1)

    many = Gaussian(prior.mean.expand(count, -1), prior.cov.expand(count, -1, -1))
    return particles.filter(
        system, system.begin(num_particles, many), wide(values), wide(observed), generator=generator, **options
    )


def standard_errors_from(estimates: Tensor, exact: Tensor) -> float:
    """How many standard errors the mean of Z / Z* is away from one."""
    ratio = (estimates - exact).exp()
    return float((ratio.mean() - 1) / (ratio.std() / math.sqrt(len(ratio))))


@pytest.mark.parametrize("num_particles", [1, 4, 64])
@pytest.mark.parametrize("threshold", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("optimal", [False, True])
def test_categorical_estimate_is_unbiased(num_particles, threshold, missing, optimal):
    chain = Chain.random(3)
    values, observed = series(1, missing)
    exact = torch.logsumexp(chain.exact(PRIOR, values, observed)[0], 0)
    count = 8000 if num_particles < 64 else 500
    generator = torch.Generator().manual_seed(num_particles + int(10 * threshold) + 100 * missing + 1000 * optimal)
    filtered = run(
        chain.system(count, optimal), values, observed, PRIOR, count, num_particles, generator, threshold=threshold
    )
    assert abs(standard_errors_from(filtered.log_likelihood.sum(0), exact)) < 4
    assert filtered.log_likelihood.sum(0).std() > 0


def test_a_switch_that_does_not_advance_would_be_noticed():
    """The same check fails for a chain whose switch stays what it was first."""
    chain = Chain.random(3)
    values, observed = series(1, missing=False)
    exact = torch.logsumexp(chain.exact(PRIOR, values, observed)[0], 0)
    stuck = dataclasses.replace(chain.system(8000), transition=lambda switch, time: torch.where(switch > 0, 0.0, -1e3))
    filtered = run(stuck, values, observed, PRIOR, 8000, 4, torch.Generator().manual_seed(0))
    assert abs(standard_errors_from(filtered.log_likelihood.sum(0), exact)) > 20


# Gaussian switches. With constant parameters the switch of a recurrent system is one more state.


@dataclasses.dataclass
class Recurrent:
    """s_t = F x_{t-1} + G s_{t-1} + f + eps moves only the offset of x_t, so that (x, s) is a linear system."""

    seed: int
    size: int = 2

    def __post_init__(self):
        g = torch.Generator().manual_seed(self.seed)

        def normal(*shape):
            return torch.randn(*shape, generator=g)

        k = self.size
        self.A, self.B, self.R = 0.6 * normal(STATES, STATES), 0.4 * normal(STATES, k), random_cov(STATES, g, 0.3)
        self.C, self.Q = normal(TARGETS, STATES), random_cov(TARGETS, g, 0.5)
        self.F, self.G, self.f = 0.7 * normal(k, STATES), 0.3 * normal(k, k), normal(k)
        self.S, self.m1, self.V1 = torch.full((k,), 0.4), normal(k), torch.full((k,), 0.7)

    def system(self, num_series: int, guess: Diagonal | None = None, **options) -> GaussianSwitching:
        k = self.size

        def parameters(switch: Tensor, time: int) -> Regime:
            batch = switch.shape[:-1]
            return Regime(
                LinearGaussian(self.A, switch @ self.B.mT, self.R),
                LinearGaussian(self.C, torch.zeros(TARGETS), self.Q),
                self.F.expand(*batch, k, STATES),
                self.S.expand(*batch, k),
            )

        initial = Diagonal(self.m1.expand(1, num_series, k), self.V1.expand(1, num_series, k))

        def drift(switch, time):
            return switch @ self.G.mT + self.f

        return GaussianSwitching(initial, drift, parameters, guess, recurrent=True, **options)

    def linear(self) -> tuple[LinearSystem, Gaussian]:
        """The system of (x_t, s_t), and the prior of (x_0, s_0) that makes s_1 what it is."""
        k = self.size
        # x_t = A x_{t-1} + B s_t + w; s_t = F x_{t-1} + G s_{t-1} + f + e; the first s_t has neither F nor G.
        later = torch.cat([torch.cat([self.A + self.B @ self.F, self.B @ self.G], -1), torch.cat([self.F, self.G], -1)])
        first = torch.cat(
            [torch.cat([self.A, self.B @ torch.eye(k)], -1), torch.cat([torch.zeros(k, STATES), torch.eye(k)], -1)]
        )
        spread = torch.cat([self.B, torch.eye(k)])
        noise = spread @ torch.diag(self.S) @ spread.mT
        noise[:STATES, :STATES] += self.R
        first_noise = torch.zeros(STATES + k, STATES + k)
        first_noise[:STATES, :STATES] = self.R
        matrix = torch.stack([first] + [later] * (STEPS - 1))
        offset = torch.stack([torch.zeros(STATES + k)] + [spread @ self.f] * (STEPS - 1))
        system = LinearSystem(
            LinearGaussian(matrix, offset, torch.stack([first_noise] + [noise] * (STEPS - 1))),
            LinearGaussian(
                torch.cat([self.C, torch.zeros(TARGETS, k)], -1)[None], torch.zeros(1, TARGETS), self.Q[None]
            ),
        )
        prior = Gaussian(torch.cat([PRIOR.mean, self.m1]), torch.block_diag(PRIOR.cov, torch.diag(self.V1)))
        return system, prior

    def data(self, missing: bool) -> tuple[Tensor, Tensor | None, Tensor]:
        """A series of the model, what is observed of it, and its exact log-likelihood."""
        system, prior = self.linear()
        generator = torch.Generator().manual_seed(self.seed)
        values = kalman.simulate(system, prior, STEPS, 1, generator)[1][:, 0]
        observed = series(0, missing)[1]
        values = values if observed is None else torch.where(observed, values, 0.0)
        return values, observed, system.log_likelihood(prior, values, observed).sum()


@pytest.mark.parametrize("num_particles", [1, 4, 16])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("guessed", [False, True])
def test_recurrent_estimate_is_unbiased(num_particles, missing, guessed):
    model = Recurrent(5)
    values, observed, exact = model.data(missing)
    count = 4000
    guess = None
    if guessed:
        g = torch.Generator().manual_seed(0)
        guess = Diagonal(0.5 * torch.randn(STEPS, 1, 2, generator=g), torch.full((1, 1, 2), 4.0))
        guess = Diagonal(guess.mean.expand(-1, count, -1), guess.variance.expand(1, count, -1))
    generator = torch.Generator().manual_seed(7 + num_particles)
    filtered = run(model.system(count, guess), values, observed, PRIOR, count, num_particles, generator)
    estimates = filtered.log_likelihood.sum(0)
    assert abs(standard_errors_from(estimates, exact)) < 4


def test_paper_form_is_biased():
    """Without conditioning on the switch: the form that the paper prints."""
    model = Recurrent(5)
    values, observed, exact = model.data(missing=False)
    biased = model.system(4000, condition_on_switch=False)
    filtered = run(biased, values, observed, PRIOR, 4000, 16, torch.Generator().manual_seed(3))
    assert abs(standard_errors_from(filtered.log_likelihood.sum(0), exact)) > 10


# Smoothing.


@pytest.mark.parametrize("missing", [False, True])
def test_categorical_smoothing_agrees_with_enumeration(missing):
    chain = Chain.random(3)
    values, observed = series(1, missing)
    log_joint, paths, smoothed = chain.exact(PRIOR, values, observed)
    weight = torch.softmax(log_joint, 0)
    one_hot = torch.nn.functional.one_hot(paths.T, SWITCHES).double()  # (time, path, switch)
    exact_switch = torch.einsum("p,tpk->tk", weight, one_hot)
    exact_mean = torch.einsum("p,tpn->tn", weight, smoothed.states.mean)
    spread = smoothed.states.mean - exact_mean.unsqueeze(1)
    second = smoothed.states.cov + spread.unsqueeze(-1) * spread.unsqueeze(-2)
    exact_cov = torch.einsum("p,tpij->tij", weight, second)

    count, samples = 400, 50
    generator = torch.Generator().manual_seed(0)
    system = chain.system(count)
    many = Gaussian(PRIOR.mean.expand(count, -1), PRIOR.cov.expand(count, -1, -1))
    initial = system.begin(64, many)
    wide = values.unsqueeze(1).expand(-1, count, -1)
    mask = None if observed is None else observed.unsqueeze(1).expand(-1, count, -1)
    filtered = particles.filter(system, initial, wide, mask, keep_history=True, generator=generator)
    found = smooth(system, initial, filtered.history, wide, mask, num_samples=samples, generator=generator)
    # Runs are independent; the bias of 64 particles is of the order 1/64 of the posterior's spread.
    within(found.switches.mean(1), exact_switch, bias=0.01)
    within(found.mean, exact_mean, bias=0.01)
    within(found.cov, exact_cov, bias=0.02)


def within(runs: Tensor, exact: Tensor, bias: float) -> None:
    """The mean over runs (dimension 1) is within 4.5 standard errors, and what the number of particles explains."""
    error = (runs.mean(1) - exact).abs()
    standard = runs.std(1) / math.sqrt(runs.shape[1])
    assert bool((error < 4.5 * standard + bias).all()), (error - 4.5 * standard).max()


@pytest.mark.parametrize("missing", [False, True])
def test_recurrent_smoothing_agrees_with_the_kalman_smoother(missing):
    model = Recurrent(5)
    values, observed, _ = model.data(missing)
    linear, prior = model.linear()
    exact = kalman.smooth(linear, prior, values, observed).states
    count, samples = 400, 50
    generator = torch.Generator().manual_seed(0)
    system = model.system(count)
    many = Gaussian(PRIOR.mean.expand(count, -1), PRIOR.cov.expand(count, -1, -1))
    initial = system.begin(128, many)
    wide = values.unsqueeze(1).expand(-1, count, -1)
    mask = None if observed is None else observed.unsqueeze(1).expand(-1, count, -1)
    filtered = particles.filter(system, initial, wide, mask, keep_history=True, generator=generator)
    found = smooth(system, initial, filtered.history, wide, mask, num_samples=samples, generator=generator)
    within(found.mean, exact.mean[:, :STATES], bias=0.02)
    within(found.switches.mean(1), exact.mean[:, STATES:], bias=0.03)
    within(found.cov, exact.cov[:, :STATES, :STATES], bias=0.02)
