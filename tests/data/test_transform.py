import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from tsforecast.data.calendar.frequency import to_period
from tsforecast.data.epochs import EpochLoader
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import collate, cut
from tsforecast.seasons import CYCLES, SEASONS


def prepare(length=10, seasons=(), freq="D", **options):
    return Prepare(3, list(seasons), ["a", "b"], [], **options)


def entry(length=10, freq="D", begin="2024-01-03", **fields):
    return {"item_id": "b", "start": to_period(begin, freq), "target": np.arange(length, dtype=np.float32), **fields}


def test_missing_values_are_masked_and_replaced():
    data = entry(target=np.array([1.0, np.nan, np.inf, 4.0]))
    out = prepare().map_transform(data, is_train=True)
    assert out["observed"][:, 0].tolist() == [True, False, False, True]
    assert out["target"][:, 0].tolist() == [1, 0, 0, 4]
    assert np.isnan(data["target"][1])  # the caller's array is not touched


@pytest.mark.parametrize(("is_train", "length"), [(True, 10), (False, 13)])
def test_the_calendar_reaches_over_the_horizon_at_prediction(is_train, length):
    out = prepare(seasons=["day_of_week", "cycle_of_4"]).map_transform(entry(), is_train)
    assert len(out["time_feat"]) == length
    times = pd.period_range("2024-01-03", periods=length, freq="D")
    assert out["season_index"][:, 0].tolist() == list(times.dayofweek)
    assert (np.diff(out["season_index"][:, 1]) % 4 == 1).all()
    assert abs(out["time_feat"]).max() <= 0.5


@pytest.mark.parametrize(("steps", "past"), [(1, 1), (2, 1), (6, 4), (7, 4)])
def test_a_series_too_short_for_a_window_goes_on_with_missing_values(steps, past):
    covariates = np.arange(2.0 * steps).reshape(2, steps)
    units = [[0.0, 1.0], [0.0, 1.0]]
    shorter = prepare(seasons=["day_of_week"], dynamic_units=units).for_windows(7)
    out = shorter.map_transform(entry(steps, feat_dynamic_real=covariates), True)
    assert out["observed"][:, 0].tolist() == [True] * steps + [False] * (past + 7 - steps)
    assert out["target"][:steps, 0].tolist() == list(range(steps))
    assert out["season_index"][:, 0].tolist() == [(2 + step) % 7 for step in range(past + 7)]
    assert len(out["time_feat"]) == past + 7
    np.testing.assert_array_equal(out["dynamic_real"][:steps].T, covariates)
    assert (out["dynamic_real"][steps:] == covariates[:, -1]).all()


def test_other_series_stay_as_they_are():
    for length, is_train, scored in ((8, True, 7), (7, False, 7), (7, True, 0)):
        found = prepare().for_windows(scored).map_transform(entry(length), is_train)
        assert len(found["target"]) == length


def test_windows_of_a_short_series_have_a_past_and_a_future():
    data = prepare().for_windows(7).apply([entry(6, item_id="a"), entry(20)], is_train=True)
    seen = set()
    for batch in EpochLoader(data, 5, 7, 2, 40, 0):
        steps = torch.stack([batch[f"{part}_observed"].sum((1, 2)) for part in ("past", "future")], 1).tolist()
        seen |= {tuple(pair) for pair, item in zip(steps, batch["item_id"], strict=True) if item == "a"}
    assert seen == {(2, 2), (2, 3), (2, 4)}
    (last,) = EpochLoader(prepare().apply([entry(7), entry(20)], is_train=True), 5, 7, 2, None, 0, at_end=True)
    assert last["future_target"][:, :, 0].tolist() == [list(range(13, 20))]  # none of the short one


def test_a_smooth_cycle_counts_as_that_of_factors_does():
    index = prepare(seasons=["cycle_of_5", "cycle_of_5_with_2_harmonics"]).map_transform(entry(), True)["season_index"]
    assert index[:, 0].tolist() == index[:, 1].tolist()
    assert set(index[:, 0]) == set(range(5))


def test_a_year_goes_on_evenly_over_its_end():
    """Leap years, too: steps of a day differ by what a day is of 365 or 366."""
    index = prepare(seasons=["year"]).map_transform(entry(1500, "D", "2023-01-01"), True)["season_index"][:, 0]
    steps = np.diff(index) % CYCLES["year"].positions
    assert set(steps) == {1440, 1443, 1444}


def test_a_cycle_is_the_same_whenever_a_series_begins():
    for freq in ("D", "B", "W-SUN", "M", "2h", "15min"):
        early = prepare(seasons=["cycle_of_5"]).map_transform(entry(20, freq, "1969-01-01"), True)
        start = entry(20, freq, "1969-01-01")["start"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            later = prepare(seasons=["cycle_of_5"]).map_transform({**entry(13, freq), "start": start + 7}, True)
        assert early["season_index"][7:].tolist() == later["season_index"].tolist()


@pytest.mark.parametrize("name", SEASONS)
def test_seasons_use_all_of_their_factors(name):
    freq = "min" if "minute" in name else "30min" if "half" in name else "h" if "hour" in name else "D"
    length = {"min": 120, "30min": 48 * 8, "h": 24 * 8, "D": 366}[freq]
    index = prepare(seasons=[name]).map_transform(entry(length, freq, "2024-01-01"), True)["season_index"]
    assert set(index[:, 0]) == set(range(SEASONS[name][0]))


def test_identity():
    out = prepare().map_transform(entry(), True)
    assert out["series_index"] == 2
    for other in ({"item_id": "z"}, {"item_id": None}):
        assert prepare().map_transform({**entry(), **other}, True)["series_index"] == 0
    assert Prepare(3, [], ["7"], []).map_transform(entry(item_id=7), True)["series_index"] == 1


def test_static_and_dynamic_numbers_are_standardised():
    transform = prepare(static_units=[[10.0, 2.0]], dynamic_units=[[1.0, 0.5], [0.0, 1.0]])
    covariates = np.stack([np.arange(15.0), np.ones(15)])
    out = transform.map_transform(entry(feat_static_real=[14.0], feat_dynamic_real=covariates), False)
    assert out["static_real"].tolist() == [2.0]
    np.testing.assert_allclose(out["dynamic_real"], np.stack([(np.arange(13) - 1) / 0.5, np.ones(13)], 1))


def test_known_future():
    transform = prepare(num_targets=1)
    out = transform.map_transform(entry(known_future=[1.0, np.nan]), False)
    np.testing.assert_array_equal(out["known_future"][:, 0], [1.0, np.nan, np.nan])
    assert np.isnan(transform.map_transform(entry(known_future=[1.0, 2.0]), True)["known_future"]).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"feat_static_cat": [3]}, "'b'.*below .3.*got .3."),
        ({"feat_static_cat": [-1]}, "below"),
        ({"feat_static_cat": [0, 0]}, "feat_static_cat of 1 rows.*got 2"),
        ({"feat_static_cat": []}, "feat_static_cat of 1 rows.*got 0"),
    ],
)
def test_categories(fields, message):
    transform = Prepare(3, [], [], [3])
    assert transform.map_transform(entry(feat_static_cat=[2.0]), True)["static_cat"].tolist() == [2]
    assert transform.map_transform(entry(), True)["static_cat"].tolist() == [-1]
    with pytest.raises(ValueError, match=message):
        transform.map_transform(entry(**fields), True)


def test_windows():
    prepared = prepare().map_transform(entry(10), True)
    window = cut(prepared, 6, 4, 3)
    assert window["past_target"][:, 0].tolist() == [2, 3, 4, 5]
    assert window["future_target"][:, 0].tolist() == [6, 7, 8]
    assert window["forecast_start"] == pd.Period("2024-01-09", "D")
    assert cut(prepared, 6, None, 3)["past_target"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    at_end = cut(prepare().map_transform(entry(10), False), 10, 4, 3)
    assert "future_target" not in at_end
    assert len(at_end["future_time_feat"]) == 3


def test_business_days_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared = prepare().map_transform(entry(10, "B"), True)
        window = cut(prepared, 7, None, 3)
    assert str(window["forecast_start"]) == "2024-01-12"


def test_batches_are_padded_at_the_beginning():
    windows = [cut(prepare().map_transform(entry(n), True), n - 3, None, 3) for n in (5, 8)]
    batch = collate(windows)
    assert batch["past_target"][..., 0].tolist() == [[0, 0, 0, 0, 1], [0, 1, 2, 3, 4]]
    assert batch["past_is_pad"].tolist() == [[True] * 3 + [False] * 2, [False] * 5]
    assert not batch["past_observed"][0, :3].any()
    assert batch["item_id"] == ["b", "b"]
    assert batch["future_target"].shape == (2, 3, 1)


def loader(count=7, seed=0, past=4, num_batches=None, **options):
    data = [prepare().map_transform({**entry(12 + k), "item_id": f"s{k}"}, True) for k in range(count)]
    return EpochLoader(data, past, 3, 2, num_batches, seed, **options)


def names(batches):
    return [name for batch in batches for name in batch["item_id"]]


@pytest.mark.parametrize("wrapped", [False, True])
def test_epochs_shorter_than_the_data_are_samples_of_all_series(wrapped):
    """Each series once in an epoch, and all of them in the long run; those not drawn are not prepared."""
    prepared = []

    class Counting(Prepare):
        def map_transform(self, data, is_train):
            prepared.append(data["item_id"])
            return super().map_transform(data, is_train)

    raw = [{**entry(12), "item_id": f"s{k}"} for k in range(7)]
    transformation = Counting(3, [], [], [])
    data = transformation.apply(raw, is_train=True)
    make = lambda: EpochLoader(data if wrapped else list(data), 4, 3, 2, 2, 0, count=7)  # noqa: E731
    loader = make()
    prepared.clear()
    seen = []
    for epoch in range(12):
        loader.set_epoch(epoch)
        drawn = names(loader)
        assert len(set(drawn)) == len(drawn) == 4
        seen += drawn
    assert set(seen) == {f"s{k}" for k in range(7)}
    assert not wrapped or sorted(prepared) == sorted(seen)
    again = make()
    again.set_epoch(11)
    assert names(again) == seen[-4:]
    walk = EpochLoader(list(data), 4, 3, 2, 5, 0, count=7)  # ten windows of seven series
    assert set(names(walk)) == {f"s{k}" for k in range(7)}


def content(batches):
    return [(batch["item_id"], batch["past_target"], batch["future_target"]) for batch in batches]


def same(some, others):
    pairs = zip(content(some), content(others), strict=True)
    return all(a[0] == b[0] and all(map(torch.equal, a[1:], b[1:])) for a, b in pairs)


def test_an_epoch_follows_from_seed_and_number():
    first, again = loader(num_batches=4), loader(num_batches=4)
    epochs = [list(first)]
    first.set_epoch(1)
    epochs.append(list(first))
    again.set_epoch(1)
    assert same(list(again), epochs[1])
    assert not same(epochs[0], epochs[1])
    assert not same(list(loader(num_batches=4, seed=1)), epochs[0])
    assert not same(list(loader(num_batches=4, seed=None)), list(loader(num_batches=4, seed=None)))


def test_one_pass_has_every_series_once():
    items = [item for batch in loader() for item in batch["item_id"]]
    assert sorted(items) == [f"s{k}" for k in range(7)]
    assert items != sorted(items)
    with pytest.raises(TypeError, match="not known"):
        len(loader())


@pytest.mark.parametrize("num_batches", [1, 3, 9])
def test_the_number_of_batches(num_batches):
    batches = list(loader(num_batches=num_batches))
    assert len(batches) == len(loader(num_batches=num_batches)) == num_batches
    assert all(len(batch["item_id"]) == 2 for batch in batches)
    counts = np.unique([item for batch in batches for item in batch["item_id"]], return_counts=True)[1]
    assert counts.max() - counts.min() <= 1


def test_windows_lie_within_their_series():
    splits = set()
    for epoch in range(30):
        batches = loader(count=1, num_batches=2)
        batches.set_epoch(epoch)
        for batch in batches:
            past, future = batch["past_target"][0, :, 0], batch["future_target"][0, :, 0]
            assert len(past) == 4
            assert torch.equal(torch.cat([past, future]).diff(), torch.ones(6))
            splits.add(int(future[0]))
    assert splits == set(range(4, 10))  # every split that has 4 steps before it and 3 after


def test_growing_windows_have_all_of_the_past():
    """From the series' begin, or so many steps as are wanted; what is not used of the end stays unused."""
    lengths = set()
    for epoch in range(30):
        batches = loader(count=1, past=6, num_batches=2, recent=11, growing=True)
        batches.set_epoch(epoch)
        for batch in batches:
            past = batch["past_target"][0, ~batch["past_is_pad"][0], 0]
            assert past[0] == max(1, past[-1] - 5)
            lengths.add(len(past))
    assert lengths == {5, 6}


def test_recent_windows():
    firsts = {
        int(b["past_target"][0, 0, 0]) for _ in range(5) for b in loader(count=1, num_batches=9, recent=10, seed=None)
    }
    assert firsts == {2, 3, 4, 5}  # of 12 steps the first two are not used, and 7 are a window


def test_validation_takes_the_last_window_of_every_series():
    batches = list(loader(at_end=True))
    assert [item for b in batches for item in b["item_id"]] == [f"s{k}" for k in range(7)]
    assert [int(t) for b in batches for t in b["future_target"][:, -1, 0]] == [11 + k for k in range(7)]
    assert same(batches, list(loader(at_end=True)))


def test_processes_share_the_windows_of_an_epoch():
    """Each has its own, as many as the others, and together those of one with larger batches."""
    data = [prepare().map_transform({**entry(12 + k), "item_id": f"s{k}"}, True) for k in range(7)]

    def epoch(rank, processes, size):
        found = EpochLoader(data, 4, 3, size, 4, seed=1)
        found.place = lambda: (rank, processes)
        found.set_epoch(2)
        return [list(zip(batch["item_id"], batch["forecast_start"], strict=True)) for batch in found]

    whole, parts = epoch(0, 1, 6), [epoch(rank, 3, 2) for rank in range(3)]
    assert [len(part) for part in parts] == [4, 4, 4]
    for number, batch in enumerate(whole):
        assert sorted(batch) == sorted(window for part in parts for window in part[number])


def test_shuffling_holds_few_windows():
    drawn = 0

    class Data:
        def __iter__(self):
            nonlocal drawn
            for _ in range(1000):
                drawn += 1
                yield prepared

    prepared = prepare().map_transform(entry(), True)
    batches = iter(EpochLoader(Data(), 4, 3, 2, None, 0, buffer=20))
    next(batches)
    assert drawn <= 20 + 2


@pytest.mark.parametrize("options", [{}, {"recent": 9}, {"at_end": True}, {"past": None}])
def test_windows_of_a_series_begin_at_its_first_value(options):
    """With missing values before it, or without: the same windows; and so where a window begins in a gap."""
    plain = [entry(n, target=np.r_[0.0, np.full(3, np.nan), np.arange(4.0, n)]) for n in (12, 15)]
    prefixed = [{**e, "start": e["start"] - 20, "target": np.r_[np.full(20, np.nan), e["target"]]} for e in plain]

    def batches(entries):
        prepared = [prepare(seasons=["day_of_week"]).map_transform(e, True) for e in entries]
        return EpochLoader(
            prepared, **{"past": 8, "future": 3, "batch_size": 2, "num_batches": 20, "seed": 0, **options}
        )

    for mine, its in zip(batches(prefixed), batches(plain), strict=True):
        assert mine.keys() == its.keys()
        for name, value in its.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(mine[name], value, rtol=0, atol=0, equal_nan=True)
            else:
                assert mine[name] == value
        first = (~mine["past_is_pad"]).int().argmax(1)
        assert mine["past_observed"][torch.arange(2), first].all()


@pytest.mark.parametrize(
    ("name", "freq", "begin", "expected"),
    [
        ("hour_of_week", "h", "2024-01-01 00:00", 0),  # a Monday
        ("hour_of_week", "h", "2024-01-03 05:00", 53),
        ("hour_of_week", "h", "2024-01-07 23:00", 167),
        ("hour_by_kind_of_day", "h", "2024-01-05 05:00", 5),  # a Friday
        ("hour_by_kind_of_day", "h", "2024-01-06 05:00", 29),
        ("half_hour_of_day", "30min", "2024-01-01 13:30", 27),
        ("minute_of_hour", "min", "2024-01-01 13:31", 31),
        ("hour_of_day", "h", "2024-01-01 13:00", 13),
        ("day_of_week", "D", "2024-01-07", 6),
        ("day_of_month", "D", "2024-01-31", 30),
        ("week_of_year", "D", "2024-01-01", 0),
        ("week_of_year", "D", "2024-01-07", 0),
        ("week_of_year", "D", "2024-01-08", 1),
        ("week_of_year", "D", "2023-12-31", 52),
        ("month_of_year", "M", "2024-12-01", 11),
        ("quarter_of_year", "Q-DEC", "2024-07-01", 2),
        ("day", "15min", "2024-01-01 13:45", 825),
        ("week", "min", "2024-01-07 23:59", 10_079),
        ("month", "D", "2023-02-15", 22_320),  # half of 28 days are half of 31
        ("year", "D", "2024-01-01", 0),
        ("year", "h", "2023-07-02 12:00", 263_520),  # half of 365 days are half of 366
        ("year", "h", "2024-07-02 00:00", 263_520),
        ("year_with_5_harmonics", "min", "2024-12-31 23:59", 527_039),
    ],
)
def test_a_season_is_where_the_calendar_says(name, freq, begin, expected):
    index = prepare(seasons=[name]).map_transform(entry(1, freq, begin), True)["season_index"]
    assert index.tolist() == [[expected]]
