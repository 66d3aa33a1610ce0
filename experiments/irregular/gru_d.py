"""A recurrent network with time gaps, as a baseline for series with clocks of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from tsforecast.evaluation.metrics import LEVELS

_LOWEST, _HIGHEST = -6.0, 4.0  # of the logarithm of a deviation, in scaled units
_QUERIES = 8  # times that a training window is asked at


class GRUD(nn.Module):
    """A GRU whose state decays over gaps, from both sides where there is data on both (Che et al. 2018).

    Between observations the state shrinks by exp(-max(0, w gap + b)), with weights of each unit. Values are always
    there, so that the decay of inputs and the masks of GRU-D are not needed: a step is an observation. A head reads the
    state that has decayed up to the time asked for, and the one that comes from behind; it gives a Gaussian.

    Args:
        hidden: Units of each direction.
    """

    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.cells = nn.ModuleList([nn.GRUCell(3, hidden), nn.GRUCell(3, hidden)])
        self.decays = nn.ModuleList([nn.Linear(1, hidden), nn.Linear(1, hidden)])
        self.head = nn.Sequential(nn.Linear(2 * hidden + 4, hidden), nn.Tanh(), nn.Linear(hidden, 2))

    def states(
        self, values: Float[Tensor, "series time"], gaps: Float[Tensor, "series time"], direction: int
    ) -> Float[Tensor, "series time hidden"]:
        """Return the state after every observation, beginning from the end in the second direction.

        Args:
            values: In scaled units.
            gaps: Time since the observation before, in units.
            direction: 0 forwards, 1 backwards.
        """
        cell, decay, found = self.cells[direction], self.decays[direction], []
        state = values.new_zeros(len(values), cell.hidden_size)  # pyright: ignore[reportArgumentType]
        for time in range(values.shape[1]):
            gap = gaps[:, time, None]
            state = state * torch.exp(-torch.relu(decay(gap)))
            state = cell(torch.cat([values[:, time, None], torch.log1p(gap), torch.ones_like(gap)], -1), state)
            found.append(state)
        return torch.stack(found, 1)

    def forward(
        self,
        values: Float[Tensor, "series time"],
        times: Float[Tensor, "series time"],
        asked: Float[Tensor, "series query"],
        left: Int[Tensor, "series query"],
        right: Int[Tensor, "series query"],
    ) -> tuple[Float[Tensor, "series query"], Float[Tensor, "series query"]]:
        """Return means and deviations in scaled units.

        Args:
            values: Observations.
            times: Theirs, in units, ascending.
            asked: Times asked for.
            left: Last observation that is used before each; -1 for none.
            right: First observation that is used behind each; the number of observations for none.
        """
        gaps = torch.diff(times, dim=1, prepend=times[:, :1])
        later = torch.diff(times, dim=1, append=times[:, -1:])
        both = [self.states(values, gaps, 0), self.states(values.flip(1), later.flip(1), 1).flip(1)]
        parts, count = [], values.shape[1]
        for direction, place in ((0, left), (1, right)):
            known = (place >= 0) & (place < count)
            at = place.clamp(0, count - 1)
            gap = torch.where(known, (asked - times.gather(1, at)).abs(), 0.0).unsqueeze(-1)
            state = both[direction].gather(1, at.unsqueeze(-1).expand(-1, -1, both[0].shape[-1]))
            state = state * torch.exp(-torch.relu(self.decays[direction](gap))) * known.unsqueeze(-1)
            parts += [state, torch.log1p(gap), known.unsqueeze(-1).to(state.dtype)]
        mean, log_scale = self.head(torch.cat(parts, -1)).unbind(-1)
        return mean, log_scale.clamp(_LOWEST, _HIGHEST).exp()


class GRUDBaseline:
    """A GRU-D for all series together, trained by the likelihood of observations that are taken out, and of later ones.

    Args:
        entries: Data entries of one target, see `tsforecast.data.timed_entries`.
        unit: Of time, in nanoseconds.
        steps: Of Adam.
        window: Observations of a training window.
        seed: Of initial weights and windows.
    """

    def __init__(
        self, entries: Sequence[Mapping[str, Any]], unit: int, steps: int = 150, window: int = 48, seed: int = 0
    ) -> None:
        self.unit = unit
        self.scales = {
            str(e["item_id"]): (float(np.mean(e["target"])), float(np.std(e["target"])) or 1.0) for e in entries
        }
        rng = np.random.default_rng(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = GRUD()
        optimizer = torch.optim.Adam(self.net.parameters(), 1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        length = min(window, *(len(entry["times"]) for entry in entries))
        for _ in range(steps):
            mean, deviation, values = self._trial(
                [entries[k] for k in rng.integers(len(entries), size=16)], length, rng
            )
            loss = (0.5 * ((values - mean) / deviation).square() + deviation.log()).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            optimizer.step()
            schedule.step()

    def _trial(
        self, entries: Sequence[Mapping[str, Any]], length: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Answers for some observations of random windows, half of them from the past alone, and what they were."""
        times, values = np.empty((len(entries), length)), np.empty((len(entries), length))
        for row, entry in enumerate(entries):
            first = int(rng.integers(len(entry["times"]) - length + 1))
            location, scale = self.scales[str(entry["item_id"])]
            times[row] = (entry["times"][first : first + length] - entry["times"][first]) / self.unit
            values[row] = (entry["target"][first : first + length] - location) / scale
        # What is asked for is taken out of the window; the others are its observations.
        taken = np.sort(rng.permuted(np.tile(np.arange(length), (len(entries), 1)), axis=1)[:, :_QUERIES], axis=1)
        kept = np.ones(times.shape, bool)
        np.put_along_axis(kept, taken, False, axis=1)
        left = np.cumsum(kept, axis=1) - 1
        place = np.take_along_axis(left, taken, axis=1)
        back = rng.integers(0, 6, place.shape)  # the future is further away than the next observation
        alone = rng.random(place.shape) < 0.5
        count = length - _QUERIES
        shape = (len(entries), count)
        parts = (
            values[kept].reshape(shape),
            times[kept].reshape(shape),
            np.take_along_axis(times, taken, axis=1),
        )
        tensors = [torch.as_tensor(part, dtype=torch.float32) for part in parts]
        before = torch.as_tensor(np.where(alone, np.maximum(place - back, -1), place))
        behind = torch.as_tensor(np.where(alone, count, place + 1))
        mean, deviation = self.net(*tensors, before, behind)
        return mean, deviation, torch.as_tensor(np.take_along_axis(values, taken, axis=1), dtype=torch.float32)

    def quantiles(self, past: Mapping[str, Any], asked: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return quantiles (level, time, 1) at `LEVELS`, given all observations of a series before and behind.

        Args:
            past: Data entry.
            asked: Times in nanoseconds.
        """
        location, scale = self.scales[str(past["item_id"])]
        begin = past["times"][0]
        left = np.searchsorted(past["times"], asked, side="right") - 1
        row = lambda x, dtype: torch.as_tensor(np.asarray(x), dtype=dtype).unsqueeze(0)  # noqa: E731
        with torch.no_grad():
            mean, deviation = self.net(
                row((past["target"] - location) / scale, torch.float32),
                row((past["times"] - begin) / self.unit, torch.float32),
                row((asked - begin) / self.unit, torch.float32),
                row(left, torch.long),
                row(left + 1, torch.long),
            )
        normal = torch.special.ndtri(torch.tensor(LEVELS, dtype=torch.float64))[:, None]
        found = (mean[0].double() + deviation[0].double() * normal) * scale + location
        return found.unsqueeze(-1).numpy()
