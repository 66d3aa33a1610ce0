"""GRU-D on a series with gaps."""

import numpy as np
import pytest

from experiments.irregular.gru_d import GRUDBaseline
from tests.evaluation.test_timed import HOUR, entry
from tsforecast.evaluation.timed import score_timed, whole_past


@pytest.mark.usefixtures("unchecked_types")
def test_gru_d_learns_what_lies_between_observations():
    one = entry(count=200)
    hidden = np.arange(10, 190, 6)
    seen = {**one, "times": np.delete(one["times"], hidden), "target": np.delete(one["target"], hidden)}
    network = GRUDBaseline([seen], HOUR, steps=60, window=24)
    pair = [(seen, {"item_id": "a", "times": one["times"][hidden], "target": one["target"][hidden]})]
    answers = [how(seen, one["times"][hidden]) for how in (network.quantiles, whole_past)]
    scores = [score_timed(pair, [answer]).overall["crps"] for answer in answers]
    assert scores[0] < 0.6 * scores[1]
