"""Beliefs of series with clocks of their own: kept, moved on by new observations, saved and read."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tsforecast.forecasting.beliefs import belief_of, join, plain_belief, signature, split
from tsforecast.forecasting.timed_batches import Clock
from tsforecast.io.tensors import expect_like, load_tensors, save_tensors
from tsforecast.models import FORMAT, AbstractForecaster, Belief


@dataclass(frozen=True)
class TimedBelief:
    """The belief of a model about one series, and when it ends.

    Attributes:
        item_id: Identifier of the series.
        time: Of its last observation, in nanoseconds since 1970.
        belief: One series wide; its scale is that of the history with which filtering began.
    """

    item_id: str
    time: int
    belief: Belief

    @classmethod
    def of(cls, item_id: str, time: int, belief: Belief, row: int) -> "TimedBelief":
        """Return that of one series of a batch."""
        return cls(item_id, time, split(belief)[row])


def joined_beliefs(beliefs: Sequence[Belief]) -> Belief:
    """Return beliefs about one series each as one about all of them."""
    return join(list(beliefs))


def save_timed(path: str | Path, beliefs: Iterable[TimedBelief], net: AbstractForecaster) -> None:
    """Writes beliefs of a model into one file; an older one is replaced when all is written."""
    rows = [{"item_id": one.item_id, "time": one.time, "belief": plain_belief(one.belief)} for one in beliefs]
    save_tensors({"tsforecast_format": FORMAT, "timed": True, "signature": signature(net), "beliefs": rows}, path)


def load_timed(path: str | Path, net: AbstractForecaster) -> dict[str, TimedBelief]:
    """Reads what `save_timed` wrote; no code of the file is run.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged, of another program or format, or of another model.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    payload = load_tensors(path)
    if payload.get("tsforecast_format") != FORMAT or payload.get("timed") is not True:
        raise ValueError(f"{path} holds no beliefs in continuous time of format {FORMAT}; filter the history again")
    if payload.get("signature") != signature(net):
        raise ValueError(f"{path} holds beliefs of another model; filter the history again with this one")
    like, found = None, {}
    try:
        for row in payload["beliefs"]:
            item, time, belief = row["item_id"], row["time"], row["belief"]
            if not isinstance(item, str) or type(time) is not int:
                raise ValueError(f"expected a name and a time of each series, got {item!r:.80} and {time!r:.80}")
            like = like or _like(net)
            expect_like(belief, like, f"series {item!r:.80}")
            found[item] = TimedBelief(item, time, belief_of(belief))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} holds no readable beliefs ({error}); filter the history again") from error
    return found


def _like(net: AbstractForecaster) -> dict[str, Any]:
    """What a belief of the model looks like, as plain values."""
    data = net.data
    batch = {
        "past_target": torch.zeros(1, 1, data.num_targets, dtype=torch.float64),
        "past_observed": torch.zeros(1, 1, data.num_targets, dtype=torch.bool),
        "past_is_pad": torch.zeros(1, 1, dtype=torch.bool),
        "past_time_feat": torch.zeros(1, 1, Clock.of(net, ()).num_features, dtype=torch.float64),
        "past_season_index": torch.zeros(1, 1, 0, dtype=torch.long),
        "past_dynamic_real": torch.zeros(1, 1, data.num_dynamic_real, dtype=torch.float64),
        "series_index": torch.zeros(1, dtype=torch.long),
        "static_cat": torch.zeros(1, len(data.cardinality), dtype=torch.long),
        "static_real": torch.zeros(1, 0, dtype=torch.float64),
    }
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return plain_belief(split(net.filter(batch)[0])[0])
