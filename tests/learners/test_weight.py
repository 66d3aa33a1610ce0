"""How much outliers count."""

import itertools
import math

import pytest
import torch
from torch import nn

from tests.learners.dense import (
    assert_belief,
    assert_same,
    bayes,
    jacobian_of,
    mlp,
    moments,
    outputs_of,
    randn,
    vector_of,
)
from tests.oracles import generator, random_covariance
from tsforecast.core import Gaussian as Normal
from tsforecast.learners import (
    LOFI,
    LRKF,
    BernoulliLikelihood,
    BlockDiagonal,
    CategoricalLikelihood,
    Diagonal,
    EmpiricalFisher,
    Full,
    Gate,
    GaussianLikelihood,
    InverseMultiquadric,
    Linearised,
    MomentMatched,
    MonteCarloHessian,
    PoissonLikelihood,
    ekf,
    wolf_ekf,
)
from tsforecast.learners.loop import run

pytestmark = pytest.mark.usefixtures("float64")

FAMILIES = {
    "full": Full(),
    "precision": Diagonal("precision"),
    "covariance": Diagonal("covariance"),
    "blocks": BlockDiagonal((6, 6)),
    "lofi": LOFI(3),
    "lrkf": LRKF(4),
}
EVIDENCES = {
    "linearised": Linearised(),
    "linearised-fisher": EmpiricalFisher(0),
    "empirical-fisher": EmpiricalFisher(3),
    "hessian": MonteCarloHessian(3),
}
# Hessians are for full and diagonal families.
PAIRS = [
    (family, evidence)
    for family, evidence in itertools.product(FAMILIES, EVIDENCES)
    if evidence != "hessian" or family in ("full", "precision", "covariance")
]


def problem(points: int = 3):
    module = mlp(2, 2, 2)
    return module, randn(points, 2, seed=1), 2 * randn(points, 2, seed=2)


@pytest.mark.parametrize("norm", ["noise", "predictive"])
@pytest.mark.parametrize("weight", ["power-1", "power-2", "gate"])
def test_the_noise_of_a_point_is_divided_by_its_weight(norm, weight):
    """Oracle: Mahalanobis distances with R, or with J S J' + R, of each point; then Bayes with R / w."""
    module, inputs, target = problem()
    threshold, noise = 1.7, random_covariance((), 2, generator(3))
    prior = Normal(vector_of(module), 0.3 * random_covariance((), 12, generator(4)))
    outputs, rows = outputs_of(module, prior.mean, inputs), jacobian_of(module, prior.mean, inputs)
    precision, score = torch.linalg.inv(prior.cov), torch.zeros(12)
    weights = []
    for f, y, h in zip(outputs, target, rows, strict=True):
        among = noise if norm == "noise" else noise + h @ prior.cov @ h.T
        squared = (y - f) @ torch.linalg.solve(among, y - f)
        ratio = squared / threshold**2
        w = {"power-1": (1 + ratio) ** -0.5, "power-2": 1 / (1 + ratio), "gate": (ratio < 1).double()}[weight]
        weights.append(w)
        precision = precision + w * h.T @ torch.linalg.solve(noise, h)
        score = score + w * h.T @ torch.linalg.solve(noise, y - f)
    assert max(weights) - min(weights) > 0.1
    chosen = Gate(threshold, norm) if weight == "gate" else InverseMultiquadric(threshold, int(weight[-1]), norm)
    learner = ekf(module, GaussianLikelihood(noise), weight=chosen)
    belief = learner.update(prior, inputs, target)
    assert_belief(belief, prior.mean + torch.linalg.solve(precision, score), torch.linalg.inv(precision))


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical", "poisson"])
def test_the_log_likelihood_of_a_point_is_multiplied_by_its_weight(likelihood):
    """Gradient and curvature are, of any likelihood; the distance is that of the whitened residual."""
    module, inputs, _ = problem()
    target = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    target = target[:, :1] if likelihood == "categorical" else target
    weights = vector_of(module)
    precision, score = torch.eye(12) / 0.4, torch.zeros(12)
    for x, y in zip(inputs, target, strict=True):
        f, h = outputs_of(module, weights, x[None])[0], jacobian_of(module, weights, x[None])[0]
        if likelihood == "categorical":
            p = f.softmax(-1)
            curvature, gradient = torch.diag(p) - torch.outer(p, p), torch.eye(2)[y.long()[0]] - p
            squared = (gradient**2 / p).sum()
        else:
            mean = f.exp() if likelihood == "poisson" else f.sigmoid()
            variance = mean if likelihood == "poisson" else mean * (1 - mean)
            curvature, gradient = torch.diag(variance), y - mean
            squared = (gradient**2 / variance).sum()
        w = 1 / (1 + squared / 0.9**2)
        precision, score = precision + w * h.T @ curvature @ h, score + w * h.T @ gradient
    chosen = {
        "bernoulli": BernoulliLikelihood(),
        "categorical": CategoricalLikelihood(smoothing=0.0),
        "poisson": PoissonLikelihood(),
    }[likelihood]
    learner = wolf_ekf(module, chosen, 0.4, threshold=0.9)
    belief = learner.update(learner.init(), inputs, target)
    assert_belief(belief, weights + torch.linalg.solve(precision, score), torch.linalg.inv(precision))


@pytest.mark.parametrize("norm", ["noise", "predictive"])
@pytest.mark.parametrize(
    "likelihood", [GaussianLikelihood(0.5), BernoulliLikelihood(), PoissonLikelihood()], ids=lambda x: type(x).__name__
)
def test_missing_components_do_not_count_in_the_distance(likelihood, norm):
    """Oracle: the observed output alone, by precisions."""
    module, inputs = nn.Linear(2, 2), randn(1, 2)
    mean = torch.tensor([3.0, 1.0, 0.5, -1.0, 2.0, 0.3])
    learner = ekf(module, likelihood, 0.4, mean=mean, weight=InverseMultiquadric(0.5, norm=norm))
    target, observed = torch.tensor([[torch.nan, 1.0]]), torch.tensor([[False, True]])
    belief = learner.update(learner.init(), inputs, target, observed)
    seen = [2, 3, 5]
    assert_belief(belief.marginal(seen), *weighted(likelihood, mean[seen], inputs, norm))
    assert torch.equal(belief.mean[[0, 1, 4]], mean[[0, 1, 4]])


def weighted(likelihood, mean, inputs, norm):
    """The update of one output of a linear network, for a target of 1, threshold 0.5 and a prior variance of 0.4."""
    row = torch.cat([inputs[0], torch.ones(1)])
    f = row @ mean
    if isinstance(likelihood, GaussianLikelihood):
        curvature, score = torch.tensor(1 / 0.5), (1 - f) / 0.5
    else:
        expected = f.exp() if isinstance(likelihood, PoissonLikelihood) else f.sigmoid()
        curvature = expected if isinstance(likelihood, PoissonLikelihood) else expected * (1 - expected)
        score = 1 - expected
    squared = score**2 / curvature / (1 if norm == "noise" else 1 + curvature * 0.4 * row @ row)
    w = 1 / (1 + squared / 0.5**2)
    precision = torch.eye(3) / 0.4 + w * curvature * torch.outer(row, row)
    return mean + torch.linalg.solve(precision, w * score * row), torch.linalg.inv(precision)


@pytest.mark.parametrize("evidence", EVIDENCES)
def test_every_kind_of_evidence_is_scaled_by_the_weight(evidence):
    """Of one point, at once: curvature C and gradient g of the unweighted evidence become w C and w g."""
    module, inputs, target = problem(1)
    weights, prior = vector_of(module), 0.05 * torch.eye(12)
    outputs, h = outputs_of(module, weights, inputs)[0], jacobian_of(module, weights, inputs)[0]
    w = 1 / (1 + (target[0] - outputs).square().sum() / 0.5 / 0.7**2)
    assert w < 0.6
    log_prob = lambda t: -(target - outputs_of(module, t, inputs)).square().sum()  # noqa: E731
    noise = torch.randn(3, 12, generator=generator(0)) * math.sqrt(0.05)
    draws = weights + noise - noise.mean(0)
    gradients = torch.stack([torch.func.grad(log_prob)(t) for t in draws])
    if evidence == "linearised":
        curvature, gradient = h.T @ h / 0.5, h.T @ (target[0] - outputs) / 0.5
    elif evidence == "linearised-fisher":
        gradient = torch.func.grad(log_prob)(weights)
        curvature = torch.outer(gradient, gradient)
    else:
        gradient = gradients.mean(0)
        curvature = gradients.T @ gradients / 3
        if evidence == "hessian":
            values, vectors = torch.linalg.eigh(-torch.stack([torch.func.hessian(log_prob)(t) for t in draws]).mean(0))
            curvature = vectors @ torch.diag(values.clamp_min(0)) @ vectors.T
    precision = torch.linalg.inv(prior) + w * curvature
    learner = ekf(module, GaussianLikelihood(0.5), 0.05, evidence=EVIDENCES[evidence], weight=InverseMultiquadric(0.7))
    belief = learner.update(learner.init(), inputs, target, generator=generator(0))
    assert_belief(belief, weights + torch.linalg.solve(precision, w * gradient), torch.linalg.inv(precision))


def test_a_matched_moment_is_scaled_by_the_weight():
    """Oracle: the unweighted learner's site, from its change of natural parameters."""
    module, x, y = nn.Linear(2, 1, bias=False), torch.tensor([[3.0, -1.0]]), torch.ones(1, 1)
    mean = torch.tensor([-1.0, 1.0])
    plain, weighted = (
        ekf(module, BernoulliLikelihood(), 0.5, mean=mean, evidence=MomentMatched(), **chosen)
        for chosen in ({}, {"weight": InverseMultiquadric(2.0)})
    )
    after = plain.update(plain.init(), x, y)
    before, full = torch.eye(2) / 0.5, torch.linalg.inv(after.cov)
    p = torch.sigmoid(x[0] @ mean)
    w = 1 / (1 + (1 - p) ** 2 / (p * (1 - p)) / 2.0**2)
    assert w < 0.2
    precision = before + w * (full - before)
    natural = before @ mean + w * (full @ after.mean - before @ mean)
    belief = weighted.update(weighted.init(), x, y)
    assert_belief(belief, torch.linalg.solve(precision, natural), torch.linalg.inv(precision))


@pytest.mark.parametrize("evidence", EVIDENCES)
@pytest.mark.parametrize("norm", ["noise", "predictive"])
def test_an_infinite_threshold_is_no_weight(evidence, norm):
    module, inputs, target = problem()
    for weight in (InverseMultiquadric(math.inf, 1, norm), InverseMultiquadric(1e12, 2, norm), Gate(math.inf, norm)):
        plain, weighted = (
            ekf(module, GaussianLikelihood(0.5), 0.05, evidence=EVIDENCES[evidence], **chosen)
            for chosen in ({}, {"weight": weight})
        )
        expected = plain.update(plain.init(), inputs, target, generator=generator(0))
        belief = weighted.update(weighted.init(), inputs, target, generator=generator(0))
        assert_belief(belief, *moments(expected))


@pytest.mark.parametrize(("family", "evidence"), PAIRS)
def test_a_weight_of_zero_is_a_missing_observation_bit_for_bit(family, evidence):
    module, inputs, target = problem()
    learner = ekf(
        module, GaussianLikelihood(0.5), 0.05, family=FAMILIES[family], evidence=EVIDENCES[evidence], weight=Gate(1e-3)
    )
    start = learner.init()
    weighted = learner.update(start, inputs, target, generator=generator(0))
    missing = torch.zeros_like(target, dtype=torch.bool)
    unseen = ekf(module, GaussianLikelihood(0.5), 0.05, family=FAMILIES[family], evidence=EVIDENCES[evidence])
    expected = unseen.update(start, inputs, target, missing, generator=generator(0))
    for one, two in zip(
        torch.utils._pytree.tree_leaves(weighted), torch.utils._pytree.tree_leaves(expected), strict=True
    ):
        assert torch.equal(one, two)
    assert_belief(weighted, *moments(start))


def outlier(power: int, size: float, norm: str = "noise"):
    """The shift of the mean by one outlier, the prior's covariance, the row, and the belief after."""
    prior, row = Normal(randn(3), random_covariance((), 3, generator(1))), randn(1, 3, seed=2)
    learner = ekf(nn.Linear(3, 1, bias=False), GaussianLikelihood(0.6), weight=InverseMultiquadric(1.5, power, norm))
    belief = learner.update(prior, row, row @ prior.mean[:, None] + size)
    return belief.mean - prior.mean, prior.cov, row[0], belief


def test_a_growing_outlier_moves_the_mean_to_a_bound_with_power_one():
    """C |S H'| / R, with the threshold c = 1.5 sqrt(R) in units of the target."""
    shift, cov, row, _ = outlier(1, 1e9)
    assert_same(shift, 1.5 * math.sqrt(0.6) * cov @ row / 0.6, rtol=1e-6)


def test_a_growing_outlier_is_forgotten_with_power_two():
    """The shift falls as 1 / size: it has a largest one at some size."""
    sizes = [10.0**k for k in range(10)]
    lengths = [outlier(2, size)[0].norm().item() for size in sizes]
    _, cov, row, _ = outlier(2, 1.0)
    assert lengths[-1] < 1e-8
    assert_same(lengths[-1] * 1e9, 1.5**2 * (cov @ row).norm().item(), rtol=1e-6)
    assert max(lengths) > 0.1


@pytest.mark.parametrize("norm", ["noise", "predictive"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3, 1e9])
def test_the_covariance_after_an_outlier_never_exceeds_the_prior(power, size, norm):
    _, cov, _, belief = outlier(power, size, norm)
    assert torch.linalg.eigvalsh(cov - belief.cov).min() > -1e-12
    assert torch.linalg.eigvalsh(belief.cov).min() > 0


def test_a_weighted_filter_learns_a_curve_through_outliers():
    """15 % of the targets are uniform over (-50, 50): the plain filter's error is many times larger."""
    rng = generator(0)
    x = 4 * torch.rand(300, 1, 1, generator=rng) - 2
    clean = torch.sin(2 * x)
    target = clean + 0.1 * torch.randn(300, 1, 1, generator=rng)
    wild = torch.rand(300, 1, 1, generator=rng) < 0.15
    target = torch.where(wild, 100 * torch.rand(300, 1, 1, generator=rng) - 50, target)
    errors = {}
    for name, chosen in {
        "plain": {},
        "power-1": {"weight": InverseMultiquadric(2.0, 1)},
        "power-2": {"weight": InverseMultiquadric(2.0, 2)},
    }.items():
        learner = ekf(mlp(1, 10, 1), GaussianLikelihood(0.01), 1.0, **chosen)
        _, prediction = run(learner, learner.init(), x, target)
        errors[name] = (prediction.mean - clean)[-100:].square().mean().sqrt().item()
    assert errors["plain"] > 0.5
    assert max(errors["power-1"], errors["power-2"]) < 0.15


def test_settings_outside_of_their_range_are_refused():
    for make in (InverseMultiquadric, Gate):
        for threshold in (0.0, -1.0, math.nan):
            with pytest.raises(ValueError, match="expected threshold to be positive"):
                make(threshold)
        with pytest.raises(ValueError, match="expected norm to be one of noise, predictive"):
            make(1.0, norm="euclid")
    with pytest.raises(ValueError, match="expected power to be 1 or 2"):
        InverseMultiquadric(power=3)


def test_a_weighted_update_is_that_of_more_noise():
    shift, cov, row, belief = outlier(2, 4.0)
    w = 1 / (1 + 16.0 / 0.6 / 1.5**2)
    expected = bayes(torch.zeros(3), cov, row[None], torch.tensor([[0.6 / w]]), torch.tensor([4.0]))
    assert_same(shift, expected[0])
    assert_same(belief.cov, expected[1])


def test_an_outlier_that_counts_twice_has_twice_its_weight():
    """Of one linear weight: precision 1 / v + c w x^2 / noise, with w = (1 + e^2 / (noise threshold^2))^-1."""
    learner = ekf(
        nn.Linear(1, 1, bias=False), GaussianLikelihood(0.5), 2.0, mean=torch.zeros(1).double(),
        weight=InverseMultiquadric(2.0),
    )  # fmt: skip
    x, y = torch.tensor([[1.5]]).double(), torch.tensor([[4.0]]).double()
    weight = 1 / (1 + 16 / (0.5 * 4))
    for count in (2.0, 0.5):
        found = learner.update(learner.init(), x, y, counts=torch.tensor([count]).double())
        precision = 1 / 2.0 + count * weight * 1.5**2 / 0.5
        torch.testing.assert_close(found.cov[0, 0], torch.tensor(1 / precision).double(), rtol=1e-6, atol=0)
        mean = torch.tensor(count * weight * 1.5 * 4 / 0.5 / precision).double()
        torch.testing.assert_close(found.mean[0], mean, rtol=1e-6, atol=0)
