import itertools
import warnings

import pandas as pd
import pytest
from gluonts.time_feature import get_seasonality, time_features_from_frequency_str
from hypothesis import given
from hypothesis import strategies as st

from tsforecast.data.calendar.frequency import (
    default_horizon,
    default_season,
    default_windows,
    expected_alias_warnings,
    offset_alias,
    period_alias,
    step_nanoseconds,
    to_period,
)

# written by users, as a period, as an offset, season
CASES = [
    ("H", "h", "h", 24),
    ("h", "h", "h", 24),
    ("1h", "h", "h", 24),
    ("60min", "h", "h", 24),
    ("60T", "h", "h", 24),
    ("2H", "2h", "2h", 12),
    ("7h", "7h", "7h", 1),
    ("24h", "24h", "24h", 7),
    ("T", "min", "min", 1440),
    ("min", "min", "min", 1440),
    ("15min", "15min", "15min", 96),
    ("30T", "30min", "30min", 48),
    ("90min", "90min", "90min", 16),
    ("S", "s", "s", 3600),
    ("10s", "10s", "10s", 360),
    ("L", "ms", "ms", 1),
    ("D", "D", "D", 7),
    ("1D", "D", "D", 7),
    ("B", "B", "B", 5),
    ("W", "W-SUN", "W-SUN", 52),
    ("W-SUN", "W-SUN", "W-SUN", 52),
    ("W-WED", "W-WED", "W-WED", 52),
    ("2W", "2W-SUN", "2W-SUN", 26),
    ("M", "M", "ME", 12),
    ("ME", "M", "ME", 12),
    ("MS", "M", "ME", 12),
    ("BME", "M", "ME", 12),
    ("3MS", "3M", "3ME", 4),
    ("Q", "Q-DEC", "QE-DEC", 4),
    ("QE", "Q-DEC", "QE-DEC", 4),
    ("QS", "Q-DEC", "QE-DEC", 4),
    ("QS-OCT", "Q-DEC", "QE-DEC", 4),
    ("QS-FEB", "Q-JAN", "QE-JAN", 4),
    ("Q-NOV", "Q-NOV", "QE-NOV", 4),
    ("A", "Y-DEC", "YE-DEC", 1),
    ("Y", "Y-DEC", "YE-DEC", 1),
    ("YE-JUN", "Y-JUN", "YE-JUN", 1),
    ("YS-APR", "Y-MAR", "YE-MAR", 1),
    ("AS", "Y-DEC", "YE-DEC", 1),
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("written", "period", "offset", "season"), CASES)
def test_aliases_are_those_of_pandas(written, period, offset, season):
    assert period_alias(written) == period
    assert to_period("2024-05-15", written).freqstr == period
    assert offset_alias(written) == offset
    assert pd.tseries.frequencies.to_offset(offset).freqstr == offset
    assert default_season(written) == season


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("written", [case[0] for case in CASES])
def test_aliases_are_stable_and_gluonts_takes_them(written):
    assert period_alias(period_alias(written)) == period_alias(offset_alias(written)) == period_alias(written)
    if written != "L":  # GluonTS has no season for milliseconds
        get_seasonality(offset_alias(written))
        time_features_from_frequency_str(offset_alias(written))


@pytest.mark.parametrize("written", [case[0] for case in CASES])
def test_period_means_what_pandas_means(written):
    """The step of our period is the step of the user's offset."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        offset = pd.tseries.frequencies.to_offset(written)
        stamps = pd.date_range("2024-03-05", periods=5, freq=offset)
    ordinals = [to_period(stamp, written).ordinal for stamp in stamps]
    assert len(set(ordinals)) == 5
    steps = {later - earlier for earlier, later in itertools.pairwise(ordinals)}
    assert steps == {to_period("2024-03-05", written).freq.n}


@pytest.mark.parametrize("wrong", ["", "hourly", "0h", "x", "M-JAN", "W-XYZ", "-1D", "SM", "h h", "1.5h"])
def test_unknown_frequency_is_refused_with_examples(wrong):
    with pytest.raises(ValueError, match="frequency"):
        period_alias(wrong)


@pytest.mark.parametrize(
    ("freq", "horizon", "windows"),
    [
        *(
            ("h", 24, 7),
            ("30min", 48, 7),
            ("15min", 96, 7),
            ("5min", 12, 7),
            ("min", 60, 7),
            ("2h", 12, 7),
            ("s", 60, 7),
        ),
        *(("D", 30, 5), ("24h", 30, 5), ("B", 30, 5), ("W", 8, 5), ("M", 12, 5), ("Q", 8, 5), ("Y", 6, 5)),
    ],
)
def test_customary_horizon_and_windows(freq, horizon, windows):
    assert (default_horizon(freq), default_windows(freq)) == (horizon, windows)


@given(st.integers(1, 500), st.sampled_from(["s", "min", "h", "D", "ms"]))
def test_fixed_steps_have_their_length(multiple, unit):
    freq = f"{multiple}{unit}"
    assert step_nanoseconds(freq) == pd.Timedelta(freq) / pd.Timedelta(1, "ns")
    assert step_nanoseconds(period_alias(freq)) == step_nanoseconds(freq)
    assert step_nanoseconds("B") is None


@pytest.mark.filterwarnings("error")
def test_business_days_only_silence_their_own_warning():
    with expected_alias_warnings():
        assert str(to_period("2024-05-17", "B") + 1) == "2024-05-20"
    with pytest.warns(FutureWarning, match="BDay"):
        to_period("2024-05-17", "B") + 1
    with expected_alias_warnings(), pytest.raises(FutureWarning, match="deprecated"):
        pd.tseries.frequencies.to_offset("H")


@pytest.mark.parametrize("wrong", [None, "yesterday", float("nan")])
def test_no_time_stamp(wrong):
    with pytest.raises(ValueError, match=r"time stamp|datetime"):
        to_period(wrong, "h")
