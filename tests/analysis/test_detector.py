"""The online detector: the same for one record and many, and alarms that are news."""

import numpy as np
import pytest

from tsforecast.analysis.detector import Detector
from tsforecast.analysis.judging import Judge, grown

LEARN, RECORDS, AT = 240, 480, 400


def series(seed=0):
    """Hours of ten days and as many again, with a daily pattern, a gap, and a day that is another one."""
    rng = np.random.default_rng(seed)
    hours = np.datetime64("2024-01-01T00", "us") + np.arange(RECORDS) * np.timedelta64(1, "h")
    values = 10 + 5 * np.sin(np.arange(RECORDS) * 2 * np.pi / 24) + rng.normal(size=RECORDS)
    values[300] = np.nan
    values[AT : AT + 10] += 30
    return hours, values


def begun(detector, hours, values):
    return detector.begin(hours[:LEARN], values[:LEARN])


def test_a_record_is_rare_by_its_surprise_and_by_its_distance_from_all_values_before():
    hours, values = series()
    detector = Detector(silence=0.05)
    state = begun(detector, hours, values)
    assert state.recent.shape == (12,)
    end = grown(LEARN)
    _, found = detector.step(state, hours[LEARN:end], values[LEARN:end])
    model = detector.model.step(detector.model.begin(hours[:LEARN], values[:LEARN]), hours[:end], values[:end])[1]
    novelty = np.array([np.nan] + [np.abs(values[:k] - values[k]).min() for k in range(1, end)])
    statistics = np.stack([model.surprise, novelty], 1)
    judge = Judge.of(statistics[:LEARN])
    np.testing.assert_array_equal(found.tail, judge.probabilities(statistics[LEARN:]))
    np.testing.assert_array_equal(found.follows, model.regimes[LEARN:].sum(2))
    alone = [tail.probabilities(x) for tail, x in zip(judge.tails, statistics[LEARN:].T, strict=True)]
    as_rare = np.arange(LEARN, end) * alone[0] * alone[1]
    news = [(as_rare[k] < as_rare[max(k - 12, 0) : k]).all() for k in range(end - LEARN)]
    np.testing.assert_allclose(found.alarm, np.where(news, 1 / (1 + as_rare), 0), rtol=1e-12)
    assert 0 < np.sum(news) < len(news)


def test_one_record_at_a_time_is_all_at_once():
    hours, values = series()
    detector = Detector(memory=300)
    state = begun(detector, hours, values)
    last, whole = detector.step(state, hours[LEARN:], values[LEARN:])
    parts = []
    for first, end in ((LEARN, LEARN + 1), (LEARN + 1, 299), *((k, k + 1) for k in range(299, 320)), (320, RECORDS)):
        state, found = detector.step(state, hours[first:end], values[first:end])
        parts.append(found)
    for name in ("expected", "tail", "alarm", "follows"):
        np.testing.assert_array_equal(np.concatenate([getattr(p, name) for p in parts]), getattr(whole, name))
    np.testing.assert_array_equal(last.values, np.delete(values, 300)[-300:])
    np.testing.assert_array_equal(state.values, last.values)


def test_the_strange_day_is_told_once():
    hours, values = series()
    detector = Detector()
    _, found = detector.step(begun(detector, hours, values), hours[LEARN:], values[LEARN:])
    assert np.isnan(found.tail).nonzero()[0].tolist() == [300 - LEARN]
    first = int(found.alarm.argmax())
    assert AT - LEARN <= first < AT - LEARN + 10
    assert (found.alarm[AT - LEARN + 10 :][:60] == 0).all()
    assert found.tail[first] < 0.01
    assert found.alarm[first] > 0.99
    assert np.nanmean(found.tail[: AT - LEARN] < 0.1) < 0.2
    np.testing.assert_allclose(found.follows.sum(1), 1)
    assert np.median(found.follows[:, 0]) < 0.5  # the wave is told by the time of the day or of the week


def test_what_can_not_be_is_refused():
    hours, values = series()
    with pytest.raises(ValueError, match="at least 22 values to learn what is ordinary, got 5"):
        Detector().begin(hours[:5], values[:5])
