"""Effects on low counts: quasi-Poisson regression whose levels drop out."""

import numpy as np
import pandas as pd
from statsmodels.discrete.conditional_models import ConditionalPoisson

from tsforecast.data.effects.count_response import working
from tsforecast.data.effects.effects import COVARIATES
from tsforecast.data.effects.fitting import fit_effects

FOUR_WEEKS = 28
PROMOTION, PRICE = np.log(2.0), -1.5


def test_steps_end_at_the_conditional_likelihood():
    """Least squares of the working response, again and again, against the conditional likelihood of statsmodels."""
    rng = np.random.default_rng(0)
    levels = np.repeat(np.exp(rng.normal(0, 1, 8)), FOUR_WEEKS)
    columns = rng.normal(size=(len(levels), 2))
    counts = rng.poisson(levels * np.exp(columns @ [0.4, -0.2])).astype(float)
    counts[:FOUR_WEEKS] = 0  # which says nothing
    found = np.zeros(2)
    for _ in range(20):
        (part,) = working([columns], [counts], found[None])
        found = np.linalg.lstsq(part.rows, part.values, rcond=None)[0]
    groups = np.arange(len(counts)) // FOUR_WEEKS
    likelihood = ConditionalPoisson(counts[FOUR_WEEKS:], columns[FOUR_WEEKS:], groups=groups[FOUR_WEEKS:])
    np.testing.assert_allclose(likelihood.score(found), 0.0, atol=1e-8)
    assert part.steps.min() == FOUR_WEEKS


def goods(mean, count=25, days=300):
    """Return sales of goods with campaigns, price cuts of their own, and a column of noise."""
    rng = np.random.default_rng(0)
    entries = []
    for k in range(count):
        promoted, cut = np.zeros((2, days))
        for number, begin in enumerate(range(int(rng.integers(40)), days, 45)):
            (promoted, cut)[number % 2][begin : begin + 8] = 1
        price = np.exp(rng.normal()) * (1 - 0.3 * cut)
        rate = mean * np.exp(rng.normal(0, 0.5) + PROMOTION * promoted + PRICE * np.log1p(-0.3 * cut))
        sold = rng.negative_binomial(1, 1 / (1 + rate)).astype(float)
        given = np.stack([promoted, price, rng.normal(size=days)])
        entries.append({"item_id": str(k), "start": pd.Period("2021-01-01", "D"), "target": sold, COVARIATES: given})
    return entries


def test_campaigns_and_prices_multiply_counts_that_are_mostly_zero():
    mean = 0.4
    effects = fit_effects(entries := goods(mean), "D")
    assert effects is not None
    assert {one.column for one in effects.basis.signals} == {0, 1}
    changes = []
    for entry in entries:
        logs = effects.adjusted(entry)["effect"] / effects.bend
        promoted, price, _ = entry[COVARIATES]
        cheap = price < price.max()
        usual = logs[(promoted == 0) & ~cheap].mean()
        changes.append([logs[promoted == 1].mean() - usual, logs[cheap].mean() - usual])
    error = np.sqrt((1 + mean) / mean / (25 * 26))  # of 26 campaign days of 25 goods
    found = np.mean(changes, 0)
    np.testing.assert_allclose(found, [PROMOTION, PRICE * np.log(0.7)], atol=3 * error)
