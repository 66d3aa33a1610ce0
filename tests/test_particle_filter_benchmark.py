"""What the benchmark divides by computes the same as the library."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import iteration
import textbook

JOB = {"particles": 3, "series": 3, "steps": iteration.HORIZON + 6, "device": "cpu"}


@pytest.fixture(params=iteration.MODEL_OPTIONS)
def job(request):
    return {**JOB, "model": request.param}


def test_the_textbook_form_equals_the_library_on_the_same_random_numbers(job):
    for mode, error in iteration.check(job).items():
        assert error <= iteration.TOLERANCES[mode], mode


def test_a_wrong_textbook_form_is_noticed(job, monkeypatch):
    def only_guess(predictive, guess):
        return textbook.Normal(guess.mean.expand_as(predictive.mean), guess.cov.expand_as(predictive.cov))

    monkeypatch.setattr(textbook, "product", only_guess)
    errors = iteration.check(job)
    assert errors["value"] > 1e-3
    assert errors["value+gradient"] > 1e-3


def covariances():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(2, 3, 3, generator=generator, dtype=torch.float64)
    prior = root[0] @ root[0].mT + torch.eye(3)
    return prior, torch.diag_embed(root[1, 0].square() + 0.1), root[1, 1:]


def test_the_product_adds_precisions():
    prior, guess, means = covariances()
    product = textbook.product(textbook.Normal(means[0], prior), textbook.Normal(means[1], guess))
    precision = prior.inverse() + guess.inverse()
    torch.testing.assert_close(product.cov, precision.inverse(), rtol=1e-8, atol=1e-8)
    want = precision.inverse() @ (prior.inverse() @ means[0] + guess.inverse() @ means[1])
    torch.testing.assert_close(product.mean, want, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("as_library", [False, True])
def test_draws_have_the_moments_of_the_product(as_library):
    prior, guess, means = covariances()
    draw = textbook.draw
    if as_library:
        draw = iteration.draw_like_the_library()
        draw(*[textbook.Normal(means[0], prior)] * 3)  # the first, which is drawn directly
    runs = 20000
    normals = [
        textbook.Normal(mean.expand(runs, 3), cov.expand(runs, 3, 3))
        for mean, cov in zip(means, (prior, guess), strict=True)
    ]
    product = textbook.product(*normals)
    torch.manual_seed(0)
    white = torch.linalg.solve_triangular(
        product.factor, (draw(*normals, product) - product.mean)[..., None], upper=False
    )
    second = white * white.mT - torch.eye(3)
    for moment in (white, second):
        score = moment.mean(0) / (moment.std(0) / runs**0.5)
        assert (score.abs() < 4).all()
