"""Networks as functions of their weights; learners as programs over beliefs: many at once, in parts, and refusals."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from tests.learners.dense import (
    assert_belief,
    assert_same,
    jacobian_of,
    mlp,
    moments,
    outputs_of,
    randn,
    vector_of,
)
from tests.oracles import generator
from tsforecast.core import Gaussian as Normal
from tsforecast.core import NotPositiveDefiniteError, map_tensors
from tsforecast.learners import (
    BBB,
    BLR,
    BOG,
    BONG,
    LEARNERS,
    LOFI,
    LRKF,
    BayesianForgetting,
    BernoulliLikelihood,
    BlockDiagonal,
    CategoricalLikelihood,
    ConjugateRegression,
    Diagonal,
    EmpiricalFisher,
    GaussianLearner,
    GaussianLikelihood,
    GradientDescent,
    InverseMultiquadric,
    LayerChain,
    ModuleNetwork,
    MonteCarloHessian,
    OrnsteinUhlenbeck,
    PoissonLikelihood,
    Subspace,
    Wiener,
    adf,
    as_network,
    basis_of_iterates,
    bbb,
    blr,
    ekf,
    lofi,
    ogd,
    random_basis,
    weights_of,
)
from tsforecast.learners.loop import run, run_many
from tsforecast.learners.networks import layer_chain
from tsforecast.learners.networks.network import uniform_prior

pytestmark = pytest.mark.usefixtures("float64")


# Networks.


class Residual(nn.Module):
    """A submodule, a parameter and a buffer of its own; one number for each point."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([0.3, -0.2]))
        self.inner = nn.Linear(2, 2)
        self.register_buffer("shift", torch.tensor(0.7))

    def forward(self, x):
        return (x + self.gain * torch.tanh(self.inner(x)) + self.shift).sum(-1)


class Doubled(nn.Sequential):
    """A sequence that does more than its parts."""

    def forward(self, x):
        return 2 * super().forward(x)


def reused():
    """One activation at two places."""
    activation = nn.Tanh()
    return nn.Sequential(nn.Linear(2, 3), activation, nn.Linear(3, 3), activation, nn.Linear(3, 2))


def tied():
    """One layer at two places: its weights are the same."""
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.Tanh(), layer)


CHAINS = {
    "linear": lambda: nn.Linear(3, 2),
    "linear without bias": lambda: nn.Linear(3, 2, bias=False),
    "one output": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)),
    "relu": lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)),
    "sigmoid": lambda: nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)),
    "mixed": lambda: nn.Sequential(
        nn.Linear(3, 4, bias=False),
        nn.Tanh(),
        nn.Linear(4, 5),
        nn.Linear(5, 2, bias=False),
        nn.Sigmoid(),
        nn.Identity(),
    ),
    "ends bent": lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
    "reused activation": lambda: nn.Sequential(nn.Linear(3, 2), *reused()),
}
OTHERS = {
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(4, 2)
    ),
    "layer norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 2)),
    "other activation": lambda: nn.Sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2)),
    "two activations": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ReLU(), nn.Linear(4, 2)),
    "activation first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(3, 2)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.Tanh()), nn.Linear(4, 2)),
    "own": lambda: nn.Sequential(nn.Linear(3, 2), Residual()),
    "sequence with more": lambda: Doubled(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "tied layers": lambda: nn.Sequential(nn.Linear(3, 2), *tied()),
}


@pytest.mark.parametrize("points", [1, 5])
@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_outputs_and_jacobian_are_those_of_the_module(name, points):
    """Oracle: the module itself and reverse-mode differentiation by its parameters, at weights that are not its own."""
    torch.manual_seed(0)
    module = {**CHAINS, **OTHERS}[name]()
    network = as_network(module)
    weights, inputs = randn(len(vector_of(module)), seed=1), randn(points, 3, seed=2)
    assert network.size == len(weights)
    outputs, jacobian = network.linearise(weights, inputs)
    assert_same(outputs, outputs_of(module, weights, inputs))
    assert_same(jacobian, jacobian_of(module, weights, inputs))
    assert_same(network(weights, inputs), outputs)
    found = network(weights_of(module), inputs)
    direct = module(inputs)
    assert_same(found, direct.detach().view(points, -1))


@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_chains_of_layers_have_their_jacobian_in_closed_form_and_others_do_not(name):
    assert isinstance(as_network({**CHAINS, **OTHERS}[name]()), LayerChain if name in CHAINS else ModuleNetwork)


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_the_module_that_it_was_made_of(name):
    """The closed form and the general one agree, and count the same weights."""
    module = CHAINS[name]()
    chain, general = as_network(module), ModuleNetwork(module)
    assert chain.sizes == general.sizes
    weights, inputs = randn(chain.size, seed=1), randn(4, 3, seed=2)
    for one, two in zip(chain.linearise(weights, inputs), general.linearise(weights, inputs), strict=True):
        assert_same(one, two)


@pytest.mark.parametrize("name", [*CHAINS, *OTHERS])
def test_products_with_a_jacobian_are_those_of_the_module(name):
    """By rows of each point, their squares, and the spread of independent weights; oracle as above."""
    torch.manual_seed(0)
    module = {**CHAINS, **OTHERS}[name]()
    network = as_network(module)
    weights, inputs = randn(network.size, seed=1), randn(5, 3, seed=2)
    jacobian = jacobian_of(module, weights, inputs)
    rows, residual = randn(5, 3, jacobian.shape[1], seed=3), randn(5, 3, seed=5)
    expected = torch.einsum("pro,pow->prw", rows, jacobian)
    gradient, square = network.terms(weights, inputs, rows, residual)
    assert_same(gradient, torch.einsum("pr,prw->pw", residual, expected))
    assert_same(square, expected.square().sum(1))
    assert_same(network.squares(weights, inputs, rows), expected.square().sum((0, 1)))
    variance = randn(network.size, seed=4).square()
    outputs, cov = network.spread(weights, variance, inputs)
    assert_same(outputs, outputs_of(module, weights, inputs))
    assert_same(cov, torch.einsum("pow,w,pqw->poq", jacobian, variance, jacobian))


@pytest.mark.parametrize("name", CHAINS)
def test_a_jacobian_of_many_numbers_is_that_of_few(name, monkeypatch):
    """Written in place, but not where that is transformed or recorded; and so what points add to a fit."""
    chain = as_network(CHAINS[name]())
    assert isinstance(chain, LayerChain)
    weights, inputs = randn(chain.size, seed=1), randn(4, 3, seed=2)
    read = lambda weights: chain.linearise(weights, inputs)[1]  # noqa: E731
    expected = read(weights)
    sensitivity = torch.func.jacrev(read)(weights)
    rows, residual = randn(4, 2, expected.shape[1], seed=3), randn(4, 2, seed=4)
    terms = chain.terms(weights, inputs, rows, residual)
    with monkeypatch.context() as patch:
        patch.setattr(layer_chain, "_MANY", 1)
        assert_same(read(weights), expected)
        for one, two in zip(chain.terms(weights, inputs, rows, residual), terms, strict=True):
            assert_same(one, two)
        each = torch.func.vmap(lambda x: chain.linearise(weights, x.unsqueeze(0))[1][0])(inputs)
        assert_same(each, expected)
        assert_same(torch.func.jacrev(read)(weights), sensitivity)
        recorded = weights.clone().requires_grad_()
        (read(recorded) + 0 * recorded).square().sum().backward()  # that of a linear network does not depend on them
        assert_same(recorded.grad, 2 * torch.einsum("pow,powv->v", expected, sensitivity))


def test_the_sizes_of_layers_are_in_the_order_of_the_weights():
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 5, bias=False), nn.Linear(5, 2))
    assert as_network(module).sizes == (16, 20, 12)
    assert ModuleNetwork(Residual()).sizes == (2, 6)
    assert_same(weights_of(module), vector_of(module))
    assert_same(weights_of(Residual())[:2], torch.tensor([0.3, -0.2]))
    per_layer = uniform_prior((16, 20, 12), (1.0, 2.0, 3.0))
    assert_same(per_layer, torch.cat([torch.full((n,), v) for n, v in ((16, 1.0), (20, 2.0), (12, 3.0))]))


def test_inputs_may_have_any_shape():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Flatten(), nn.Linear(8, 2))
    weights, inputs = vector_of(module), randn(4, 1, 3, 3)
    assert_same(as_network(module).linearise(weights, inputs)[1], jacobian_of(module, weights, inputs))
    learner = ekf(module, GaussianLikelihood(0.5))
    belief = learner.update(learner.init(), inputs, torch.ones(4, 2))
    near = (1 - outputs_of(module, belief.mean, inputs)).norm()
    assert near < 0.5 * (1 - outputs_of(module, weights, inputs)).norm()


def test_weights_shared_by_two_modules_count_once():
    module = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
    module[2].weight = module[0].weight
    network = as_network(module)
    assert network.size == len(vector_of(module)) == 9 + 3 + 6 + 3
    inputs = randn(2, 3)
    assert_same(network.linearise(vector_of(module), inputs)[1], jacobian_of(module, vector_of(module), inputs))


def test_a_subspace_moves_along_its_basis():
    module, basis, inputs = mlp(2, 3, 2), randn(17, 4), randn(5, 2)
    network = Subspace(as_network(module), vector_of(module), basis)
    z = randn(4, seed=1)
    weights = vector_of(module) + basis @ z
    assert network.size == 4
    assert_same(network.weights(z), weights)
    assert_same(network(z, inputs), outputs_of(module, weights, inputs))
    outputs, jacobian = network.linearise(z, inputs)
    assert_same(outputs, outputs_of(module, weights, inputs))
    assert_same(jacobian, jacobian_of(module, weights, inputs) @ basis)


def test_the_basis_of_iterates_are_the_leading_directions_of_their_covariance():
    """Oracle: eigenvectors of the covariance of the iterates, which are far from zero on average."""
    iterates = 10 + randn(9, 6) * torch.tensor([5.0, 3.0, 1.0, 0.5, 0.2, 0.1])
    basis = basis_of_iterates(iterates, 3)
    _, vectors = torch.linalg.eigh(torch.cov(iterates.T))
    assert_same(basis @ basis.T, vectors[:, -3:] @ vectors[:, -3:].T)
    assert_same((basis * vectors[:, -3:].flip(1)).sum(0).abs(), torch.ones(3))
    with pytest.raises(ValueError, match="expected at least 10 iterates"):
        basis_of_iterates(iterates, 10)


def test_random_directions_have_length_one():
    basis = random_basis(50, 7, generator(0))
    assert_same(basis.norm(dim=0), torch.ones(7))
    assert torch.equal(random_basis(50, 7, generator(0)), basis)
    assert random_basis(5, 2, dtype=torch.float32).dtype == torch.float32


# Learners as programs.


def learners():
    module = mlp(2, 2, 2)
    filters = {
        "full": {"drift": Wiener(0.1), "weight": InverseMultiquadric(2.0, norm="predictive")},
        "precision": {"family": Diagonal(), "drift": BayesianForgetting(0.1)},
        "covariance": {"family": Diagonal("covariance"), "drift": OrnsteinUhlenbeck(0.1)},
        "blocks": {"family": BlockDiagonal((6, 6)), "drift": BayesianForgetting(0.1)},
        "lofi": {"family": LOFI(3), "drift": Wiener(0.1)},
        "lofi-forgetting": {"family": LOFI(3), "drift": BayesianForgetting(0.1)},
        "lrkf": {"family": LRKF(3), "drift": Wiener(0.1)},
        "iterated": {"rule": BONG(3)},
        "blr": {"rule": BLR(2, 0.5)},
        "bog": {"rule": BOG(0.01)},
        "bbb": {"rule": BBB(2, 0.01)},
        "linearised-fisher": {"evidence": EmpiricalFisher(0)},
    }
    made = {name: ekf(module, GaussianLikelihood(0.5), 0.3, **chosen) for name, chosen in filters.items()}
    made["categorical"] = ekf(module, CategoricalLikelihood(), 0.3)
    made["poisson"] = ekf(module, PoissonLikelihood(prediction="moderated"), 0.3)
    made["matched"] = adf(mlp(2, 2, 1), variance=0.3)
    made["conjugate"] = ConjugateRegression(torch.zeros(2), torch.ones(2), forgetting=0.1)
    made["descent"] = ogd(module, GaussianLikelihood(0.5))
    made["empirical-fisher"] = ekf(module, GaussianLikelihood(0.5), 0.05, evidence=EmpiricalFisher(4))
    made["hessian"] = ekf(module, GaussianLikelihood(0.5), 0.05, evidence=MonteCarloHessian(4))
    return made


NAMES = [
    *("full", "precision", "covariance", "blocks", "lofi", "lofi-forgetting", "lrkf", "iterated", "blr", "bog", "bbb"),
    *("linearised-fisher", "categorical", "poisson", "matched", "conjugate", "descent", "empirical-fisher", "hessian"),
]
SAMPLED = ("empirical-fisher", "hessian")
STEPS = 6


def streams(name: str, count: int):
    """Inputs, targets, masks and times of several streams of two points a step."""
    rng = generator(3)
    inputs = torch.randn(count, STEPS, 2, 2, generator=rng)
    target = torch.randn(count, STEPS, 2, 1 if name in ("categorical", "matched", "conjugate") else 2, generator=rng)
    target = (target > 0).double() if name in ("categorical", "matched", "poisson") else target
    observed = torch.rand(target.shape, generator=rng) > 0.2
    return inputs, target, observed, torch.rand(count, STEPS, generator=rng)


def assert_leaves(one, two, exact: bool = False):
    leaves = zip(torch.utils._pytree.tree_leaves(one), torch.utils._pytree.tree_leaves(two), strict=True)
    for a, b in leaves:
        assert torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-8, atol=1e-8)


def as_dense(name: str, belief):
    """Factors are unique up to a rotation only."""
    return moments(belief) if name.startswith("l") and hasattr(belief, "factor") else belief


@pytest.mark.parametrize("name", NAMES)
def test_many_learners_are_one_program(name):
    """Different streams from different beliefs, by `vmap`, are those learnt one after another with the same noise."""
    learner = learners()[name]
    inputs, target, observed, dt = streams(name, 3)
    starts = [
        learner.update(learner.init(), inputs[k, -1], target[k, -1], observed[k, -1], generator(k)) for k in range(3)
    ]
    together = torch.utils._pytree.tree_map(lambda *parts: torch.stack(parts), *starts)
    rng = generator(0)
    learn = torch.func.vmap(lambda b, *data: run(learner, b, *data, generator=rng), randomness="same")
    many = learn(together, inputs, target, observed, dt)
    for k in range(3):
        belief, prediction = run(learner, starts[k], inputs[k], target[k], observed[k], dt[k], generator(0))
        last = map_tensors(lambda x, k=k: x[k], many[0])
        assert_leaves(as_dense(name, last), as_dense(name, belief))
        assert_leaves(map_tensors(lambda x, k=k: x[k], many[1]), prediction)
    assert not torch.allclose(many[1].log_prob[0], many[1].log_prob[1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shared", [True, False])
def test_many_learners_run_together(name, shared):
    """Data begin with time, then learners; times between steps are shared or not."""
    learner = learners()[name]
    inputs, target, observed, dt = streams(name, 3)
    dt = dt[:1].expand(3, -1) if shared else dt
    start = map_tensors(lambda x: x.expand(3, *x.shape), learner.init())
    data = [x.transpose(0, 1) for x in (inputs, target, observed)]
    many = run_many(learner, start, *data, dt[0] if shared else dt.T, generator=generator(0))
    if name in SAMPLED:  # noise of their own
        same = [x[:, :1].expand_as(x) for x in data]
        found = run_many(learner, start, *same, dt[0], generator=generator(0))[0].mean
        assert not torch.allclose(found[0], found[1])
        return
    for k in range(3):
        belief, prediction = run(learner, learner.init(), inputs[k], target[k], observed[k], dt[k])
        last = map_tensors(lambda x, k=k: x[k], many[0])
        assert_leaves(as_dense(name, last), as_dense(name, belief))
        assert_leaves(map_tensors(lambda x, k=k: x[:, k], many[1]), prediction)


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("name", ["vd-ekf", "lofi"])
def test_many_learners_are_compiled_together(name, request):
    """From one belief for all, whose tensors are expanded."""
    if name == "lofi":  # the smallest program has kernels
        request.getfixturevalue("traced_loops")
    learner = LEARNERS[name](mlp(2, 1), GaussianLikelihood(0.5), 0.3, **({"rank": 1} if name == "lofi" else {}))
    inputs, target = randn(STEPS, 3, 1, 2), randn(STEPS, 3, 1, 1, seed=1)
    start = map_tensors(lambda x: x.expand(3, *x.shape), learner.init())
    belief, prediction = run_many(learner, start, inputs, target, compiled=True)
    last, expected = run_many(learner, start, inputs, target)
    for k in range(3):
        found, wanted = (as_dense(name, map_tensors(lambda x, k=k: x[k], each)) for each in (belief, last))
        assert_leaves(found, wanted)
    assert_leaves(prediction, expected)


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_compiled_run_goes_on_from_its_belief_and_from_parts_of_other_tensors():
    """Its factor lies anywhere within another tensor, and so may data."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    learner = lofi(network, GaussianLikelihood(0.5), 0.1, drift=Wiener(1e-3))
    assert learner.network.size % 4 == 1  # so that no column begins where another may
    table = torch.randn(31, 1, 3)
    parts = [(table[1:, :, :2], table[1:, :, 2:]), (table[1:, :, :2].clone(), table.view(-1)[1:31].view(30, 1, 1))]
    compiled = eager = learner.init()
    with torch.no_grad():
        for part in (*parts, parts[0]):
            compiled, predicted = run(learner, compiled, *part, compiled=True)
            eager, expected = run(learner, eager, *part)
            torch.testing.assert_close(predicted.log_prob, expected.log_prob, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [1, 4])
def test_learning_on_is_learning_at_once_bit_for_bit(name, cut):
    learner = learners()[name]
    data = [x[0] for x in streams(name, 1)]
    rng = generator(0)
    whole = run(learner, learner.init(), *data, generator=generator(0))
    belief, early = run(learner, learner.init(), *(x[:cut] for x in data), generator=rng)
    belief, late = run(learner, belief, *(x[cut:] for x in data), generator=rng)
    assert_leaves(belief, whole[0], exact=True)
    both = torch.utils._pytree.tree_map(lambda *parts: torch.cat(parts), early, late)
    assert_leaves(both, whole[1], exact=True)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_its_steps(name):
    """Each a drift, a prediction and an update; without times, one unit before each."""
    learner = learners()[name]
    inputs, target, observed, dt = (x[0] for x in streams(name, 1))
    last, predictions = run(learner, learner.init(), inputs, target, observed, dt, generator(0))
    belief, rng = learner.init(), generator(0)
    for t in range(STEPS):
        belief = learner.drift(belief, dt[t])
        mean = learner.predict(belief, inputs[t])
        mean = mean.probs if name == "categorical" else mean.mean
        assert_same(predictions.mean[t], mean)
        belief = learner.update(belief, inputs[t], target[t], observed[t], rng)
    assert_leaves(last, belief)
    unit, _ = run(learner, learner.init(), inputs, target, observed, None, generator(0))
    units, _ = run(learner, learner.init(), inputs, target, observed, torch.ones(STEPS), generator(0))
    assert_leaves(unit, units)


@pytest.mark.parametrize("name", SAMPLED)
def test_the_state_of_the_generator_decides_what_is_learnt(name):
    learner = learners()[name]
    inputs, target, *_ = (x[0] for x in streams(name, 1))
    one, two, three = (run(learner, learner.init(), inputs, target, generator=generator(k))[0] for k in (0, 0, 1))
    assert_leaves(one, two, exact=True)
    assert not torch.allclose(one.mean, three.mean)


@pytest.mark.parametrize("name", LEARNERS)
def test_every_named_learner_learns_a_line_between_two_classes(name):
    """Of a network that begins with nothing: the second half of a stream is predicted better than by chance."""
    rng = generator(0)
    inputs = torch.randn(40, 3, 2, generator=rng)
    target = (inputs.sum(-1, keepdim=True) > 0).double()
    module = mlp(2, 3, 1)
    settings = {
        "subspace-ekf": {"dim": 6, "generator": generator(1)},
        "lrkf": {"rank": 6, "rate": 0.01},
        "blr": {"iterations": 3, "step": 0.5},
        "bog": {"step": 0.1},
        "bbb": {"iterations": 3, "step": 0.05},
        "ogd": {"rate": 0.3},
    }
    learner = LEARNERS[name](module, BernoulliLikelihood(), 1.0, **settings.get(name, {}))
    _, prediction = run(learner, learner.init(), inputs, target, dt=torch.ones(40), generator=generator(2))
    score = prediction.log_prob[-20:].mean()
    assert score > 0.7 * math.log(0.5)
    assert score > prediction.log_prob[:2].mean()


@pytest.mark.parametrize("name", NAMES)
def test_draws_of_weights_come_from_the_belief(name):
    learner = learners()[name]
    inputs, target, observed, dt = (x[0] for x in streams(name, 1))
    belief, _ = run(learner, learner.init(), inputs, target, observed, dt, generator(0))
    draws = learner.sample(belief, 400, generator(1))
    error = (draws.mean(0) - belief.mean) / (draws.std(0) / math.sqrt(400)).clamp_min(1e-9)
    assert error.abs().max() < 5
    assert torch.equal(draws, learner.sample(belief, 400, generator(1)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_precision_is_that_of_prior_and_data_whatever_the_default_is(name, dtype):
    """Also of what is computed on the way: results in double precision are the same to its last digits."""
    learner = learners()[name]
    fields = {field.name: getattr(learner, field.name) for field in dataclasses.fields(learner)}
    cast = {key: value.to(dtype) for key, value in fields.items() if isinstance(value, torch.Tensor)}
    learner = dataclasses.replace(learner, **cast)
    inputs, target, observed, dt = (x[0] for x in streams(name, 1))
    data = inputs.to(dtype), target.to(dtype), observed, dt.to(dtype)
    found = []
    for default in (torch.float32, torch.float64):
        torch.set_default_dtype(default)
        found.append(run(learner, learner.init(), *data, generator=generator(0)))
    assert {leaf.dtype for leaf in torch.utils._pytree.tree_leaves(found)} == {dtype}
    if dtype == torch.float64:
        for one, two in zip(*(torch.utils._pytree.tree_leaves(result) for result in found), strict=True):
            assert torch.allclose(one, two, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["vd-ekf", "lofi", "ekf", "ogd"])
def test_a_run_without_gradients_is_the_same_and_its_results_are_ordinary_tensors(name):
    """Bit by bit; a gradient may be taken later through them, and through the prior that a drift has kept."""
    module, inputs, target = Residual(), randn(5, 1, 2), randn(5, 1, 1, seed=1)
    drift = {} if name == "ogd" else {"drift": BayesianForgetting(0.1)}
    expected, learner = (LEARNERS[name](module, GaussianLikelihood(0.5), 0.3, **drift) for _ in range(2))
    expected = run(expected, expected.init(), inputs, target)
    with torch.no_grad():
        found = run(learner, learner.init(), inputs, target)
    leaves = torch.utils._pytree.tree_leaves(found)
    for one, two in zip(leaves, torch.utils._pytree.tree_leaves(expected), strict=True):
        assert torch.equal(one, two)
        assert not one.is_inference()
    belief = map_tensors(lambda x: x.clone().requires_grad_(), found[0])
    drifted = torch.utils._pytree.tree_leaves(learner.drift(belief, 1.0))
    sum(leaf.sum() for leaf in drifted).backward()
    assert (belief.mean.grad != 0).all()


# What is refused.


def test_a_run_without_steps_is_refused():
    learner = ekf(mlp(2, 1), GaussianLikelihood())
    with pytest.raises(ValueError, match="at least 1"):
        run(learner, learner.init(), torch.zeros(0, 1, 2), torch.zeros(0, 1, 1))


def test_a_covariance_that_cannot_be_factorised_names_its_step():
    learner = ekf(mlp(2, 1), GaussianLikelihood(), drift=OrnsteinUhlenbeck(0.0))
    broken = Normal(torch.zeros(3), torch.diag(torch.tensor([1.0, -4.0, 1.0])))
    inputs = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])[:, None]
    with pytest.raises(NotPositiveDefiniteError, match="Step 2"):
        run(learner, broken, inputs, torch.zeros(3, 1, 1))


def test_priors_that_do_not_fit_the_network_are_refused():
    network = as_network(mlp(2, 1))
    for mean, variance, message in (
        (torch.zeros(2), torch.ones(2), "mean for 3 weights"),
        (torch.zeros(3), torch.tensor([1.0, 0.0, 1.0]), "positive prior variances"),
        (torch.zeros(3), torch.tensor([1.0, math.nan, 1.0]), "positive prior variances"),
    ):
        with pytest.raises(ValueError, match=message):
            GaussianLearner(network, GaussianLikelihood(), mean, variance)
    for variance in (0.0, -1.0, math.inf, (1.0, 2.0), math.nan):
        with pytest.raises(ValueError, match="positive variance"):
            ekf(mlp(2, 1), GaussianLikelihood(), variance)
    with pytest.raises(ValueError, match="weights to begin with"):
        ekf(network, GaussianLikelihood())


def test_settings_outside_of_their_range_are_refused():
    for make, message in (
        (lambda: Diagonal("both"), "projection to be one of precision, covariance"),
        (lambda: LOFI(-1), "rank to be at least 0"),
        (lambda: LRKF(0), "rank to be at least 1"),
        (lambda: LRKF(4).init(torch.zeros(3), torch.ones(3)), "rank to be at most the number of weights 3"),
        (lambda: BONG(0), "passes"),
        (lambda: BLR(0), "iterations"),
        (lambda: BLR(step=0.0), "step"),
        (lambda: BLR(step=1.5), "step"),
        (lambda: BOG(-0.1), "step"),
        (lambda: BBB(iterations=0), "iterations"),
        (lambda: BBB(step=0.0), "step"),
        (
            lambda: GradientDescent(as_network(mlp(2, 1)), GaussianLikelihood(), torch.zeros(3), 0.0),
            "rate to be positive",
        ),
        (lambda: ConjugateRegression(torch.zeros(2), torch.tensor([1.0, 0.0])), "positive variance for each weight"),
        (lambda: ConjugateRegression(torch.zeros(2), torch.ones(2), 0.0), "shape and rate to be positive"),
        (lambda: ConjugateRegression(torch.zeros(2), torch.ones(2), 1.0, -1.0), "shape and rate to be positive"),
        (lambda: ConjugateRegression(torch.zeros(2), torch.ones(2), forgetting=1.0), "forgetting"),
    ):
        with pytest.raises(ValueError, match=f"expected .*{message}"):
            make()


@pytest.mark.parametrize("make", [bbb, lambda *a, **k: ekf(*a, rule=BOG(), **k)])
def test_plain_steps_ask_for_a_family_with_a_square_root(make):
    learner = make(mlp(2, 1), GaussianLikelihood(), family=LOFI(2))
    with pytest.raises(TypeError, match="full or diagonal"):
        learner.update(learner.init(), randn(1, 2), torch.ones(1, 1))


def test_a_low_rank_covariance_cannot_take_damped_steps():
    learner = blr(mlp(2, 1), GaussianLikelihood(), family=LRKF(2))
    with pytest.raises(TypeError, match="cannot mix precisions"):
        learner.update(learner.init(), randn(1, 2), torch.ones(1, 1))
    still = ekf(mlp(2, 1), GaussianLikelihood(), family=LRKF(2))
    assert_belief(still.drift(still.init(), torch.tensor(1.0)), *moments(still.init()))
