import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsforecast.io.packed import pack, unpack


@pytest.mark.parametrize("top", [0, 1, 255, 256, 70_000, 2**33])
def test_integers_come_back_whatever_their_size(tmp_path, top):
    values = np.array([[0.0, 1.0, top], [top, 0.0, 0.0]])
    pack(tmp_path / "a.npz", values, np.ones(2), "2024-01-01", ["a", "b"])
    again, start, items = unpack(tmp_path / "a.npz")
    assert again.dtype == np.float64
    np.testing.assert_array_equal(again, values)
    assert (start, items) == ("2024-01-01", ["a", "b"])


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=20), st.floats(0.1, 1000))
def test_sums_of_rounded_readings_come_back_bit_for_bit(tmp_path_factory, integers, divisor):
    """As in the electricity set: quotients, rounded to 15 digits in print, added up."""
    path = tmp_path_factory.mktemp("packed") / "a.npz"
    values = np.array([[sum(float(f"{share / divisor:.15g}") for share in (k // 3, k - k // 3)) for k in integers]])
    pack(path, values, np.array([divisor]), "2024-01-01", ["a"])
    assert unpack(path)[0].tobytes() == values.tobytes()


@pytest.mark.parametrize(("value", "message"), [(0.5, "integers"), (-1.0, "non-negative"), (1 + 1e-5, "last place")])
def test_what_can_not_be_restored_is_refused(tmp_path, value, message):
    with pytest.raises(ValueError, match=message):
        pack(tmp_path / "a.npz", np.array([[1.0, value]]), np.ones(1), "2024-01-01", ["a"])
    assert not (tmp_path / "a.npz").exists()
