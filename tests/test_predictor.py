"""What a forecast does not depend on, and what a prediction refuses."""

import numpy as np
import pytest
import torch

from tests.test_estimator import make_entries, make_estimator, seeded
from tests.test_live import same_beliefs
from tests.test_live import seeded as seeded_call
from tsforecast.live import load_beliefs, save_beliefs
from tsforecast.models import MODELS

pytestmark = pytest.mark.filterwarnings("ignore:.*logging interval", "ignore:.*does not have many workers")


@pytest.fixture(scope="module", params=MODELS)
def trained(request):
    return make_estimator(request.param, epochs=1).train(make_entries())


def later(count=5):
    """Series whose first values are there."""
    return make_entries(count, missing=False)


def with_missing_before(entries, steps):
    """The same series, which begin with so many missing values; the first is left as it is."""
    prefixed = [
        {**e, "start": e["start"] - n, "target": np.concatenate([np.full(n, np.nan, np.float32), e["target"]])}
        for e, n in zip(entries, [0, *[steps + k for k in range(1, len(entries))]], strict=True)
    ]
    return prefixed


def test_missing_values_before_the_first_make_no_difference(trained):
    plain, prefixed = (seeded(trained, data) for data in (later(), with_missing_before(later(), 12)))
    for mine, its in zip(prefixed, plain, strict=True):
        assert mine.start_date == its.start_date
        np.testing.assert_array_equal(mine.samples, its.samples)


def test_a_belief_begins_at_the_first_value(trained, tmp_path):
    plain = seeded_call(trained.filter, later())
    same_beliefs(seeded_call(trained.filter, with_missing_before(later(), 12)), plain)
    nothing = [{**e, "start": e["start"] - 9, "target": np.full(6, np.nan)} for e in later()]
    waiting = trained.filter(nothing)
    save_beliefs(tmp_path / "beliefs.pt", waiting.values(), trained.prediction_net)
    waiting = load_beliefs(tmp_path / "beliefs.pt", trained.prediction_net)
    same_beliefs(seeded_call(trained.update, waiting, later()), plain)
    with pytest.raises(ValueError, match=r"'s0': expected observations from .* on"):
        trained.update(waiting, [{**later(1)[0], "start": nothing[0]["start"]}])


def test_of_several_targets_the_first_value_of_any_is_the_beginning():
    entries = [{**e, "target": np.stack([e["target"], e["target"] + 1])} for e in later(3)]
    for entry in entries:
        entry["target"][1, :6] = np.nan
    predictor = make_estimator("gls", epochs=1).train(entries)
    wide = [{**e, "start": e["start"] - 5, "target": np.pad(e["target"], [(0, 0), (5, 0)])} for e in entries]
    for entry in wide:
        entry["target"][:, :5] = np.nan
    for mine, its in zip(seeded(predictor, wide), seeded(predictor, entries), strict=True):
        np.testing.assert_allclose(mine.samples, its.samples, rtol=1e-5)


def test_a_model_learns_the_same_from_series_with_missing_values_before_the_first():
    trained = [
        make_estimator("rsgls-issm", epochs=1).train(data) for data in (later(), with_missing_before(later(), 30))
    ]
    states = [predictor.network.state_dict() for predictor in trained]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())
