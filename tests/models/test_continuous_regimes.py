"""Dense systems in continuous time between which a Markov chain jumps."""

import copy
import itertools

import numpy as np
import pytest
import torch

from tests.core.particles.oracles import errors_from_one, many
from tests.oracles import generator
from tsforecast.core import Gaussian, particles
from tsforecast.core.continuous import JumpChain
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.models import Series, make_model
from tsforecast.models.continuous import TimedGLSForecaster, TimedSGLSForecaster

pytestmark = pytest.mark.usefixtures("float64")
UNIT = 1000


def model(regimes: int = 2, **options) -> TimedSGLSForecaster:
    torch.manual_seed(0)
    options = {"num_series": 1, "unit": UNIT, "state_dim": 3, "switch_dim": regimes, **options}
    net = make_model(TimedSGLSForecaster, **options).double()
    with torch.no_grad():  # regimes that differ, in drift too
        net.dynamics.turns.mul_(10)
        net.dynamics.dampings.mul_(10)
    return net


def slice_of(net, times: np.ndarray):
    entry = {"item_id": "a", "times": times, "target": 2 * np.sin(times / 700.0)}
    batch = Clock.of(net, ["a"]).past([entry])
    return net.inference.slice_of(batch, "past"), Series.of(batch), batch


def test_the_estimated_likelihood_is_that_of_all_paths_of_regimes():
    """Oracle: the filter along each of the 32 paths through five cells, weighed by exp(Q g) by hand."""
    net = model()
    # Five cells, one of them without observation.
    times = np.array([500, 1500, 2000, 3500, 3500, 4000, 5000, 9000]) + 10**6
    time_slice, series, _ = slice_of(net, times)
    one = torch.ones(1, 1)
    system, prior = net.dynamics.switching(time_slice, series, 0 * one, one, proposing=True)
    values, observed = time_slice.values, time_slice.observed
    chain = JumpChain(net.dynamics.log_rates.detach())
    moves = [0, *(torch.nonzero(time_slice.time_feat[:, 0, -1]).flatten().tolist())]
    assert (len(values), len(moves)) == (len(times) + 2, 5)  # with moments at the ends of two cells
    paths = torch.tensor(list(itertools.product(range(2), repeat=len(moves))))
    jump = chain.transition(torch.tensor([2.0]))[0].log()  # over a cell of two units
    log_weight = chain.stationary.log()[paths[:, 0]] + jump[paths[:, :-1], paths[:, 1:]].sum(-1)
    belief, terms = many(_one(prior), len(paths)), log_weight
    for time in range(len(values)):
        switch = torch.eye(2)[paths[:, sum(time >= move for move in moves) - 1]]
        step = system.regime(switch.unsqueeze(1), time)
        belief = Gaussian(*(x.unsqueeze(1) for x in (belief.mean, belief.cov)))
        belief, log_prob = step.emission.posterior(step.transition.marginal(belief), values[time], observed[time])
        belief = Gaussian(belief.mean[:, 0], belief.cov[:, 0])
        terms = terms + log_prob[:, 0]
    exact = torch.logsumexp(terms, 0).detach()
    count = 300
    with torch.no_grad():
        begun = system.begin(4, many(_one(prior), count))
        wide = lambda x: x.expand(-1, count, -1)  # noqa: E731
        found = particles.filter(system, begun, wide(values), wide(observed), generator=generator(0))
    assert abs(errors_from_one(found.log_likelihood.sum(0), exact)) < 4
    assert float((terms - log_weight).detach().std()) > 0.3  # regimes matter here


def _one(prior: Gaussian) -> Gaussian:
    return Gaussian(prior.mean[0], prior.cov.expand(1, -1, -1)[0])


def test_with_one_regime_that_changes_nothing_it_is_the_dense_system():
    net = model(1)
    with torch.no_grad():
        for name in ("turns", "dampings", "factors"):
            getattr(net.dynamics, name).zero_()
    alone = make_model(TimedGLSForecaster, num_series=1, unit=UNIT, state_dim=3).double()
    alone.dynamics.load_state_dict(copy.deepcopy(net.dynamics.inside.state_dict()))
    times = np.sort(np.random.default_rng(0).integers(0, 30 * UNIT, 20))
    entry = {"item_id": "a", "times": times, "target": np.sin(times / 700.0)}
    pasts = [Clock.of(one, ["a"]).past([entry]) for one in (net, alone)]
    found, expected = (one.filter(past)[1].sum() for one, past in zip((net, alone), pasts, strict=True))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_training_reaches_every_parameter():
    net, rng = model(3), np.random.default_rng(0)
    times = np.sort(rng.integers(0, 30 * UNIT, 20))
    entry = {"item_id": "a", "times": times, "target": rng.standard_normal(20)}
    early, late = ({n: entry[n][part] for n in ("times", "target")} for part in (slice(15), slice(15, None)))
    clock = Clock.of(net, ["a"])
    batch = clock.past([{**entry, **early}]) | clock.future([late], [int(times[14])], with_targets=True)
    net.inference.loss(batch, linear=False).sum().backward()
    without = [
        n for n, p in net.named_parameters() if p.grad is None or not bool(p.grad.isfinite().all() & p.grad.any())
    ]
    assert without == []
