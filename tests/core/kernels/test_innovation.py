"""Whole series by the compiled program beside the blocks of `core.series`, in float64."""

import dataclasses

import pytest
import torch

from tests.core.kernels.test_steps import same, symmetric
from tests.core.test_structural import CASES, STEPS, SUMS, problem, random_issm, rebuild
from tests.oracles import generator, random_gaussian
from tsforecast.core import Gaussian, Harmonics, Level, NotPositiveDefiniteError, Season, Trend, map_tensors
from tsforecast.core.kernels import calls, innovation
from tsforecast.core.structural import ISSM

pytestmark = pytest.mark.usefixtures("program")
BOTH = {"innovation_forward", "innovation_backward"}
# Every sum once, in turn with parameters of series, of steps, and of series that have not begun; states that fill one
# row of vectors, two, and more.
WIDE = (Trend(damped=True), Season(24), Level(damped=True), Season(7))
PROBLEMS = [(s, CASES[1 + i % 3], i % 2 == 0, i % 4 < 2) for i, s in enumerate([*SUMS, WIDE, (*WIDE, Season(40))])]


@pytest.mark.parametrize(("components", "case", "missing", "in_parts"), PROBLEMS)
def test_values_and_gradients(components, case, missing, in_parts, by_torch, monkeypatch):
    system, prior, values, observed = problem(components, case)

    def filtered(*leaves):
        model, start, y = rebuild(system, leaves)
        form = ISSM.innovations if in_parts else ISSM.posterior
        belief, *terms = form(model, start, y, observed if missing else None)
        return belief.mean + 0 * leaves[2].sum(), symmetric(belief.cov), *terms

    parameters = system.state_noise, system.emission_noise, system.damping, system.offset
    assert same(filtered, (*parameters, prior.mean, prior.cov, values), by_torch, monkeypatch) >= BOTH


@pytest.mark.parametrize(("components", "case"), [problem[:2] for problem in PROBLEMS[::2]])
def test_marginals_and_their_gradients(components, case, by_torch, monkeypatch):
    system, prior, values, _ = problem(components, case)

    def ahead(*leaves):
        model, start, y = rebuild(system, leaves)
        found = model.marginals(start, STEPS)
        return found.mean + 0 * (leaves[2].sum() + y.sum()), found.cov

    parameters = system.state_noise, system.emission_noise, system.damping, system.offset
    assert same(ahead, (*parameters, prior.mean, prior.cov, values), by_torch, monkeypatch) >= BOTH


def test_series_alike_are_filtered_as_each_alone_bit_for_bit():
    """Equal parameters and days, for which covariances are computed once, beside a series that lacks other values."""
    system, prior, values, observed = problem(WIDE, CASES[1])

    def of(rows):
        by_time = {
            name: getattr(system, name)[:, rows] for name in ("index", "state_noise", "emission_noise", "offset")
        }
        start = Gaussian(prior.mean[[0, 1, 2]][: len(rows)], prior.cov[rows])
        return dataclasses.replace(system, damping=system.damping[rows], **by_time), start, observed[:, rows]

    several, start, seen = of([0, 0, 1])
    belief, terms = several.posterior(start, values, seen)
    for series, row in enumerate([0, 0, 1]):
        one, _, known = of([row])
        begin = Gaussian(start.mean[[series]], prior.cov[[row]])
        own, expected = one.posterior(begin, values[:, [series]], known)
        assert torch.equal(terms[:, series], expected[:, 0])
        assert torch.equal(belief.cov[series], own.cov[0])
        assert torch.equal(belief.mean[series], own.mean[0])


DIFFERENT = ["season", "harmonics", "state_noise", "emission_noise", "damping", "active", "cov", "observed"]


@pytest.mark.parametrize("name", DIFFERENT)
def test_series_alike_but_for_one_thing_have_covariances_of_their_own(name):
    system, prior, values, observed = problem((*WIDE, Harmonics(9, 2)), CASES[3])

    def of(*rows):
        """Series of which only the named thing is that of its row."""
        pick = lambda x, own: x[:, list(rows) if own == name else [0] * len(rows)]  # noqa: E731
        names = "state_noise", "emission_noise", "active", "offset"
        by_time = {own: pick(getattr(system, own), own) for own in names}
        index = torch.cat([pick(system.index[..., :-1], "season"), pick(system.index[..., -1:], "harmonics")], -1)
        damping, cov = (pick(x.unsqueeze(0), own)[0] for x, own in ((system.damping, "damping"), (prior.cov, "cov")))
        several = dataclasses.replace(system, index=index, damping=damping, **by_time)
        start = Gaussian(prior.mean[[0] * len(rows)], cov)
        belief, terms = several.posterior(start, values[:, [0] * len(rows)], pick(observed, "observed"))
        return belief.cov, terms

    cov, terms = of(0, 1)
    assert not torch.equal(cov[0], cov[1])
    for series in range(2):
        own, expected = of(series)
        assert torch.equal(cov[series], own[0])
        assert torch.equal(terms[:, series], expected[:, 0])


def test_one_series_a_prior_of_particles_and_shared_parameters(by_torch):
    """Batches that broadcast, with a mask; and one series without any."""
    system, _, values, observed = problem(WIDE, CASES[0])
    for prior, mask in (
        (random_gaussian((2, 3), 34, generator(1)), observed),
        (random_gaussian((), 34, generator(1)), None),
    ):
        y = values if mask is not None else values[:, 0]
        found, expected = system.posterior(prior, y, mask), by_torch(system.posterior, prior, y, mask)
        torch.testing.assert_close(found[1], expected[1].expand(found[1].shape), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found[0].cov, expected[0].cov, rtol=1e-10, atol=1e-10)


def test_what_the_program_does_not_serve(monkeypatch):
    """A covariance that all series share, mapped parameters, many states, several types."""
    monkeypatch.setattr(innovation, "call", lambda *_: pytest.fail("the program was asked"))
    system, prior, values, _ = problem((Level(), Season(3)), CASES[0])
    system.posterior(prior, values)
    torch.func.vmap(lambda y: system.log_likelihood(prior, y.unsqueeze(-1)))(values[..., 0].T)
    many, wide, y, _ = problem((Level(), Season(calls.LARGEST)), CASES[1])
    many.posterior(wide, y)
    assert system.whole(prior, values.float(), None) is None


def test_a_variance_that_is_not_positive_is_named_with_its_step():
    system, prior, values, observed = problem((Level(), Season(3)), CASES[2])
    system.state_noise[17, 1] = float("nan")
    system.emission_noise[20, 0] = -50.0
    for leaf in (False, True):
        prior.mean.requires_grad_(leaf)
        with pytest.raises(NotPositiveDefiniteError, match=r"at step 17, series 1 \(2 series failed\)"):
            system.posterior(prior, values, observed)


@pytest.mark.parametrize("variance", [-50.0, float("inf")])
def test_numbers_are_missing_from_a_variance_on_that_is_not_positive_and_finite(variance, monkeypatch):
    """The states behind an infinite one would be finite, as if the step had not been observed."""
    system, prior, values, _ = problem((Level(), Season(3)), CASES[2])
    system.emission_noise[17, 1] = variance
    found, filter_series = [], innovation.filter_series
    monkeypatch.setattr(innovation, "filter_series", lambda *args: found.extend(filter_series(*args)) or found)
    with pytest.raises(NotPositiveDefiniteError, match=r"at step 17, series 1 \(1 series failed\)"):
        system.posterior(prior, values)
    for x in found[:2]:
        assert x[17:, 1].isnan().all()
        assert x[:17].isfinite().all()
        assert x[:, 0].isfinite().all()


def test_series_alike_that_fail_are_counted_each():
    system, prior, values, _ = problem((Level(), Season(3)), CASES[1])
    twice = lambda x: x[:, [0, 0]]  # noqa: E731
    several = dataclasses.replace(
        system,
        index=twice(system.index),
        state_noise=twice(system.state_noise),
        emission_noise=twice(system.emission_noise) - 50,
        offset=twice(system.offset),
        damping=system.damping[[0, 0]],
    )
    with pytest.raises(NotPositiveDefiniteError, match=r"at step 0, series 0 \(2 series failed\)"):
        several.posterior(Gaussian(prior.mean[[0, 0]], prior.cov[[0, 0]]), twice(values))


def test_a_position_beyond_its_cycle_is_refused():
    system = random_issm((Level(), Season(3)), CASES[1], 2, generator(0))
    for position in (3, -1):
        system.index[5, 1, 0] = position
        with pytest.raises(IndexError, match="a position in its cycle"):
            system.posterior(random_gaussian((2,), 4, generator(1)), torch.zeros(STEPS, 2, 1).double())


def test_second_derivatives_are_refused():
    system, prior, values, _ = problem((Level(),), CASES[1])
    y = values.clone().requires_grad_()
    gradient = torch.autograd.grad(system.log_likelihood(prior, y).sum(), y, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once differentiable"):
        torch.autograd.grad(gradient.sum(), y)


def test_filtering_on_equals_filtering_at_once_bit_for_bit():
    """Wherever the series is cut."""
    system, prior, values, observed = problem(WIDE, CASES[1])
    before, terms = system.posterior(prior, values[:7], observed[:7])
    later = map_tensors(lambda x: x[7:] if x.shape[0] == STEPS else x, system)
    belief, more = later.posterior(before, values[7:], observed[7:])
    end, whole = system.posterior(prior, values, observed)
    assert torch.equal(torch.cat([terms, more]), whole)
    assert torch.equal(belief.cov, end.cov)
    assert isinstance(belief, Gaussian)
