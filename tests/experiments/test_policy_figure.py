"""The figure of the returns of policies."""

import numpy as np
import pandas as pd
import pytest

from experiments.policies.figure import plot_returns


def test_returns_of_policies_are_drawn_with_their_mean_and_the_best():
    rows = [(k, m, float(k * (m + 1))) for k in range(20) for m in range(3)]
    table = pd.DataFrame(rows, columns=["iteration", "policy", "returned"])
    (axis,) = plot_returns(table, title="three").axes
    lines = {line.get_label(): line.get_ydata() for line in axis.lines}
    np.testing.assert_allclose(lines["best in the last tenth"], 3.0 * np.arange(20))
    np.testing.assert_allclose(lines["mean of the policies"], 2.0 * np.arange(20))
    assert len(axis.lines) == 5
    (axis,) = plot_returns(table[table["policy"] == 0]).axes
    assert [line.get_label() for line in axis.lines] == ["the policy"]
    with pytest.raises(ValueError, match="there is no returned"):
        plot_returns(table.drop(columns="returned"))
