"""Bounds of several sources against evidence that is known."""

import math

import pytest
import torch

from experiments.fusion.vae import BOUNDS, MultiSourceVAE, evidence_bound, product
from tests.learners.dense import assert_same, randn


def linear(count, batch=3, seed=0):
    """x_m = a_m z + noise of variance r_m, z ~ N(0, 1): the beliefs, log p(x, z) and log p(x)."""
    a, x = randn(count, seed=seed), randn(count, batch, seed=seed + 1)
    r = 0.2 + randn(count, seed=seed + 2).square()
    variance = (1 / (1 + a.square() / r)).view(-1, 1, 1).expand(-1, batch, 1)
    mean = variance * (a / r).view(-1, 1, 1) * x.unsqueeze(-1)

    def log_joint(z, seen=range(count)):
        normal = torch.distributions.Normal
        told = sum(normal(a[m] * z[..., 0], r[m].sqrt()).log_prob(x[m]) for m in seen)
        return told + normal(torch.zeros(1).double(), 1).log_prob(z[..., 0])

    def log_evidence(seen=range(count)):
        seen = list(seen)
        cov = torch.outer(a[seen], a[seen]) + torch.diag(r[seen])
        return torch.distributions.MultivariateNormal(torch.zeros(len(seen)).double(), cov).log_prob(x[seen].T)

    return mean, variance, log_joint, log_evidence


@pytest.mark.parametrize("samples", [1, 4])
def test_the_product_of_exact_beliefs_has_the_evidence_for_any_draw(samples):
    mean, variance, log_joint, log_evidence = linear(3)
    assert_same(evidence_bound("poe", mean, variance, log_joint, None, samples), log_evidence())


@pytest.mark.parametrize("kind", BOUNDS)
def test_of_one_exact_source_all_bounds_are_the_evidence(kind):
    mean, variance, log_joint, log_evidence = linear(1)
    assert_same(evidence_bound(kind, mean, variance, log_joint), log_evidence())


@pytest.mark.usefixtures("unchecked_types")
def test_bounds_are_below_the_evidence_and_rise_with_samples():
    mean, variance, log_joint, log_evidence = linear(2)
    for kind in ("ind", "moe", "hybrid"):
        found = []
        for samples in (1, 50):
            draws = torch.stack(
                [
                    evidence_bound(kind, mean, variance, log_joint, None, samples, torch.Generator().manual_seed(k))
                    for k in range(200)
                ]
            )
            error = draws.std(0) / math.sqrt(len(draws))
            assert (draws.mean(0) < log_evidence() + 4 * error).all()
            found.append(draws.mean())
        assert found[0] < found[1]


def test_a_missing_source_is_as_if_it_were_not_there():
    mean, variance, log_joint, log_evidence = linear(3)
    observed = torch.tensor([True, False, True]).unsqueeze(-1).expand(3, 3)
    part = evidence_bound("poe", mean, variance, lambda z: log_joint(z, (0, 2)), observed)
    assert_same(part, log_evidence((0, 2)))
    for kind in ("ind", "moe"):
        found = [
            evidence_bound(kind, m, v, lambda z: log_joint(z, (0,)), seen, 2, torch.Generator().manual_seed(0))
            for m, v, seen in (
                (mean[:1], variance[:1], None),
                (mean, variance, torch.tensor([True, False, False]).unsqueeze(-1).expand(3, 3)),
            )
        ]
        assert_same(*found)
    told = product(mean, variance, observed)
    assert_same(told[1], 1 / (1 / variance[0] + 1 / variance[2] - 1))


@pytest.mark.parametrize("binary", [True, False])
def test_every_bound_trains_every_part_with_a_source_missing(binary):
    torch.manual_seed(0)
    model = MultiSourceVAE((4, 3), 2, 8, binary)
    sources = [torch.rand(6, 4).round(), torch.rand(6, 3).round()]
    observed = torch.ones(2, 6, dtype=torch.bool)
    observed[1, 2:] = False
    sources[1][2:] = math.nan
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for kind in BOUNDS:
        optimiser.zero_grad()
        (-model.bound(kind, sources, observed, 3).mean()).backward()
        used = [p for name, p in model.named_parameters() if binary is False or name != "log_noise"]
        assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in used)
    mean, variance = model.beliefs(sources, observed)
    assert (mean[1, 2:] == 0).all()
    assert (variance[1, 2:] == 1).all()
    assert (variance < 1)[observed].all()


@pytest.mark.parametrize("kind", BOUNDS)
def test_what_is_modelled_may_be_other_than_the_sources(kind):
    """Oracle: the bound on log p(x) of the modelled part by hand; sources only tell of z, and may be missing."""
    torch.manual_seed(0)
    model = MultiSourceVAE((4, 3), 2, 8, modelled=(5,), activation=torch.nn.ELU)
    sources, modelled = [torch.rand(6, 4), torch.rand(6, 3)], [torch.rand(6, 5).round()]
    observed = torch.ones(2, 6, dtype=torch.bool)
    observed[0, :3] = False
    for seen in (None, observed):
        found = model.bound(kind, sources, seen, 3, torch.Generator().manual_seed(1), modelled)

        def log_joint(z):
            prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(-1)
            told = torch.distributions.Bernoulli(logits=model.decoders[0](z)).log_prob(modelled[0]).sum(-1)
            return prior + told

        by_hand = evidence_bound(
            kind, *model.beliefs(sources, seen), log_joint, seen, 3, torch.Generator().manual_seed(1)
        )
        torch.testing.assert_close(found, by_hand)
    with pytest.raises(ValueError, match="expected what is modelled beside the sources, as the model was made"):
        model.bound(kind, sources)
    with pytest.raises(ValueError, match="expected the sources alone, as the model was made"):
        MultiSourceVAE((4, 3), 2, 8).bound(kind, sources, None, 1, None, modelled)


def test_what_is_no_bound_is_refused():
    mean, variance, log_joint, _ = linear(2)
    with pytest.raises(ValueError, match="a bound of ind, moe, poe, hybrid, got 'elbo'"):
        evidence_bound("elbo", mean, variance, log_joint)
    with pytest.raises(ValueError, match="one sample or more, got 0"):
        evidence_bound("poe", mean, variance, log_joint, None, 0)
    with pytest.raises(ValueError, match="of which all are missing"):
        evidence_bound("poe", mean, variance, log_joint, torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="one source or more"):
        MultiSourceVAE((), 2)
    with pytest.raises(ValueError, match="one source or more"):
        MultiSourceVAE((3,), 2, modelled=())
