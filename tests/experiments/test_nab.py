"""The score of the Numenta Anomaly Benchmark, on a file whose score is worked out by hand."""

import math

import numpy as np
import pytest

from experiments.nab import benchmark as nab

DAYS = np.datetime64("2024-01-01") + np.arange(200)
FILE = nab.Labelled(DAYS, np.zeros(200), ((DAYS[100], DAYS[109]), (DAYS[150], DAYS[159])))


def scaled(position):
    return 2 / (1 + math.exp(5 * position)) - 1


def alarms(*places):
    score = np.zeros(200)
    score[list(places)] = 1
    return score


@pytest.mark.parametrize("name", nab.PROFILES)
def test_the_score_of_alarms_is_the_sum_of_what_each_counts(name):
    profile = nab.PROFILES[name]
    # 5: probation; 40: far from any window; 104 and 106: one window, of which the earlier counts; 112: just behind it
    found = nab.evaluate([FILE], [alarms(5, 40, 104, 106, 112)], profile, 0.5)
    first = profile.hit * scaled(-6 / 10) / scaled(-1)
    raw = first - profile.miss - profile.false_alarm + profile.false_alarm * scaled(3 / 9)
    assert found.raw == pytest.approx(raw, abs=1e-12)
    lowest, highest = -2 * profile.miss, 2 * profile.hit
    assert found.score == pytest.approx(100 * (raw - lowest) / (highest - lowest), abs=1e-12)
    assert (found.hits, found.windows, found.false_alarms) == (1, 2, 2)


def test_no_alarm_scores_nothing_and_the_first_record_of_each_window_all():
    for outcome in nab.evaluate_all([FILE, FILE], [np.full(200, 0.5)] * 2).values():
        assert (outcome.score, outcome.hits, outcome.threshold) == (0.0, 0, np.inf)
    for outcome in nab.evaluate_all([FILE], [alarms(100, 150)]).values():
        assert outcome.score == pytest.approx(100)


def test_the_threshold_is_the_best_of_all():
    rng = np.random.default_rng(0)
    scores = [np.round(rng.uniform(size=200), 2) for _ in range(3)]
    files = [FILE, FILE, nab.Labelled(DAYS, np.zeros(200), ())]
    for profile in nab.PROFILES.values():
        best = nab.evaluate(files, scores, profile)
        every = [nab.evaluate(files, scores, profile, level).raw for level in np.unique(scores)]
        assert best.raw == pytest.approx(max(every), abs=1e-12)
        assert nab.evaluate(files, scores, profile, best.threshold).raw == pytest.approx(best.raw, abs=1e-12)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="expected 200 finite scores of file 0"):
        nab.evaluate([FILE], [np.zeros(199)], nab.Profile())
    with pytest.raises(ValueError, match="expected records at"):
        nab.Labelled(DAYS, np.zeros(200), ((DAYS[3], DAYS[199] + 1),)).places()


def test_a_folder_in_the_layout_of_the_benchmark_is_read_and_checked(tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "data" / "real").mkdir(parents=True)
    rows = [f"2024-01-01 00:{k:02d}:00,{k}" for k in (0, 5, 10, 10, 15)]
    (tmp_path / "data" / "real" / "a.csv").write_text("\n".join(["timestamp,value", *rows]))
    labels = tmp_path / nab.LABELS
    labels.write_text('{"real/a.csv": [["2024-01-01 00:05:00.000000", "2024-01-01 00:10:00.000000"]]}')
    found = nab.read_benchmark(tmp_path)["real/a.csv"]
    assert found.places() == [(1, 2)]
    assert found.values.tolist() == [0, 5, 10, 10, 15]
    labels.write_text('{"real/a.csv": [["2024-01-01 00:05:00", "2024-01-01 00:11:00"]]}')
    with pytest.raises(ValueError, match=r"a\.csv: expected records at .*00:11:00"):
        nab.read_benchmark(tmp_path)
