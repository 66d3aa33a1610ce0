"""The tensor program of a service: beliefs moved on by micro-batches, and forecasts from where they end."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import torch
from gluonts.model.forecast import Forecast
from numpy.typing import NDArray
from torch import Tensor

from tsforecast.data.calendar.stamps import BEGINNING, Place
from tsforecast.data.transform import Prepare, standardised
from tsforecast.data.windows import collate, first_value
from tsforecast.forecasting.predictor import StateSpacePredictor
from tsforecast.live.batches import alike, fresh_or_kept, future_batch, past_batch, past_window, with_series
from tsforecast.live.calendar import Calendar
from tsforecast.live.curves import Curves
from tsforecast.live.layout import Layout
from tsforecast.live.rows import NO_SEQUENCE, News, Rows
from tsforecast.live.steps import Begun, Moved, Steps
from tsforecast.models import Batch, Belief

_LONGEST_YOUNG = 4  # times the values after which a series is young no more, are the most steps that it has


class Engine:
    """Moves beliefs of a trained model, by the same steps to the same bits.

    Args:
        predictor: The trained model.
        warm_up: Values from which on a series keeps its scale, and is filtered on. Before it is filtered anew.
        seed: Of what is drawn; each micro-batch has a seed of its own.
        recent: Steps of the past of each series that are kept beside its belief.
        place: Of time stamps in their steps.
    """

    def __init__(
        self,
        predictor: StateSpacePredictor,
        warm_up: int,
        seed: int = 0,
        recent: int = 0,
        place: Place = BEGINNING,
    ) -> None:
        self.histories = predictor.histories()
        self.histories.alone("forecasts of a service are")
        self.net = self.histories.net
        self.data = self.net.data
        transform = self.histories.transform
        assert isinstance(transform, Prepare)
        self.transform = transform
        self.calendar = Calendar(predictor.freq, transform.seasons, place)
        self.curves = None if transform.effects is None else Curves(transform.effects, self.calendar)
        self.layout = Layout(self.net)
        self.horizon = predictor.prediction_length
        self.warm_up = min(warm_up, predictor.history_length or warm_up)
        self.seed = seed
        self.recent = recent

    def empty(self) -> Rows:
        """Return no series."""
        sizes = (self.data.num_targets, self.num_covariates, self.recent)
        return Rows.empty(self.layout.empty, *sizes, 0 if self.curves is None else len(self.curves.effects.nothing))

    @property
    def num_covariates(self) -> int:
        """Return the number of covariates that come with an observation."""
        return self.data.num_dynamic_real if self.curves is None else self.curves.effects.num_covariates

    def covariates_of(self, given: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return covariates (..., covariate) as the rows have them: standardised, but for those of curves."""
        return standardised(given, self.transform.dynamic_units) if self.curves is None else given

    def is_young(self, observed: NDArray[np.bool_]) -> bool:
        """Return whether a series is filtered anew with each value, given a mask (time, target) of its observations."""
        few = int(observed.any(1).sum()) < self.warm_up
        return few and len(observed) < _LONGEST_YOUNG * self.warm_up

    # Micro-batches.

    def moved(self, known: Rows, steps: Steps) -> Moved:
        """Return the changes by a micro-batch."""
        rows, place = np.unique(steps.rows, return_inverse=True)
        first, last = (np.full(len(rows), limit) for limit in (np.iinfo(np.int64).max, np.iinfo(np.int64).min))
        np.minimum.at(first, place, steps.ordinals)
        np.maximum.at(last, place, steps.ordinals)
        is_new = rows >= len(known)
        begin = first.copy()
        begin[~is_new] = known.end[rows[~is_new]]
        multiple = self.calendar.multiple
        news = News.missing((last - begin) // multiple + 1, known.num_targets + known.num_covariates)
        at = news.stops[place] - 1 - (last[place] - steps.ordinals) // multiple
        news.steps[at] = np.concatenate([steps.values, steps.covariates], 1)
        names, memory = [*known.names, *steps.names], np.full((len(rows), known.memory.shape[1]), np.nan)
        memory[~is_new] = known.memory[rows[~is_new]]
        if self.curves is not None:
            news, memory = self.curves.followed([names[row] for row in rows.tolist()], begin, news, memory)
        is_young = is_new | np.array([row in known.young for row in rows.tolist()], bool)
        end = last + multiple
        self.seed_of(steps.number)
        with torch.inference_mode():
            old, far = self._go_on(known, rows, news, end, np.flatnonzero(~is_young))
            histories = []
            for one in np.flatnonzero(is_young).tolist():
                tail, row = news.of(one), int(rows[one])
                histories.append(np.concatenate([known.young[row], tail]) if row in known.young else tail)
            young = self.begun(known, steps.names, rows[is_young], histories, end[is_young])
        memory[is_young, :1] = young.sizes
        return Moved(
            steps,
            rows,
            end,
            news,
            memory,
            (rows[~is_young], old),
            (rows[is_young], young.parts),
            young.exponents,
            young.histories,
            far + young.far,
        )

    def commit(self, known: Rows, moved: Moved) -> None:
        """Change the rows as a micro-batch says."""
        steps = moved.steps
        known.add(steps.names)
        for rows, parts in (moved.old, moved.young):
            if len(rows):
                known.scatter(rows, parts)
        known.end[moved.rows] = moved.end
        known.memory[moved.rows] = moved.memory
        known.remember(moved.rows, moved.news)
        known.exponents[moved.young[0]] = moved.exponents
        for row in moved.young[0].tolist():
            known.young.pop(row, None)
        known.young |= moved.histories
        given = steps.sequences != NO_SEQUENCE
        np.maximum.at(known.sequence, steps.rows[given], steps.sequences[given])

    def _go_on(
        self,
        known: Rows,
        rows: NDArray[np.int64],
        news: News,
        end: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> tuple[list[Tensor], int]:
        """Return parts of the rows at some places after their news; those with more steps begin, others join them.

        So the number of steps is that of the longest, and no step of a series is padded.
        """
        parts = known.gather(rows[places])
        if not len(places):
            return parts, 0
        lengths, exponents, far = news.lengths[places], known.exponents[rows[places]], 0
        distinct = np.unique(lengths)[::-1].tolist()
        for length, shorter in zip(distinct, [*distinct[1:], 0], strict=True):
            active = np.flatnonzero(lengths >= length)
            whole = len(active) == len(places)
            some = parts if whole else [part[torch.from_numpy(active)] for part in parts]
            belief = self.layout.belief(some)
            stretch = self.without_effects(
                news.before_end(places[active], length, shorter), known.memory[rows[places[active]], :1]
            )
            stop = end[places[active]] - self.calendar.multiple * shorter
            batch = past_batch(self.data, self.calendar, stretch, stop, exponents[active], self.net.device)
            after, _ = self.net.filter(with_series(batch, belief), belief)
            far += self._far(batch, after)
            moved = self.layout.stack(after)
            if whole:
                parts = [new.to(old.dtype) for new, old in zip(moved, parts, strict=True)]
            else:
                for part, new in zip(parts, moved, strict=True):
                    part[torch.from_numpy(active)] = new.to(part.dtype)
        return parts, far

    def begun(
        self,
        known: Rows,
        names: Sequence[str],
        rows: NDArray[np.int64],
        histories: Sequence[NDArray[np.float64]],
        end: NDArray[np.int64],
    ) -> Begun:
        """Return parts of rows with histories that are filtered from their first values."""
        every, sizes = [*known.names, *names], np.zeros((len(rows), 0))
        if self.curves is not None:
            sizes = self.curves.sizes([every[row] for row in rows.tolist()], histories)
        if not len(rows):
            return Begun([], np.zeros((0, self.data.num_targets), np.int64), sizes)
        series, targets = self.series_of(known, names, rows), self.data.num_targets
        windows, kept = [], {}
        for row, history, stop, size in zip(rows.tolist(), histories, end.tolist(), sizes, strict=True):
            given = self.without_effects(history, size)
            observed = ~np.isnan(given[:, :targets])
            begin = first_value(given[:, :targets], observed)
            windows.append(past_window(self.data, self.calendar, given[begin:], observed[begin:], stop))
            if self.is_young(observed[begin:]):
                # The size of a series is that of all its values.
                kept[row] = history[begin if self.curves is None or not observed.any() else observed.any(1).argmax() :]
        exponents, far = self.histories.exponents(windows), 0
        parts = [part[:0].new_zeros(len(rows), *part.shape[1:]) for part in self.layout.empty]
        for some in alike([len(window["past_target"]) for window in windows]):
            places = torch.from_numpy(some)
            batch = collate([windows[k] for k in some.tolist()], self.net.device, exponents[some])
            batch |= {name: values[places.to(values.device)] for name, values in series.items()}
            after, _ = self.net.filter(batch)
            far += self._far(batch, after)
            for part, new in zip(parts, self.layout.stack(after), strict=True):
                part.index_copy_(0, places.to(part.device), new.to(part.dtype))
        return Begun(parts, exponents, sizes, kept, far)

    def without_effects(self, steps: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return steps (..., time, number) as the model sees them, of series of some sizes (..., 1)."""
        return steps if self.curves is None else self.curves.taken(steps, sizes[..., 0])

    def series_of(self, known: Rows, names: Sequence[str], rows: NDArray[np.int64]) -> Batch:
        """Return who series are. New ones are those of the training data of these names, and of no known category."""
        is_new = rows >= len(known)
        kept = with_series({}, self.layout.belief(known.gather(np.where(is_new, 0, rows)))) if len(known) else {}
        data = self.data
        numbers = {len(known) + k: self.transform.index.get(name, 0) for k, name in enumerate(names)}
        fresh = {
            "series_index": torch.tensor([numbers.get(row, 0) for row in rows.tolist()]),
            "static_cat": torch.full((len(rows), len(data.cardinality)), -1),
            "static_real": torch.zeros(len(rows), data.num_static_real),
        }
        return fresh_or_kept(fresh, kept, torch.from_numpy(is_new), self.net.device)

    def _far(self, batch: Batch, belief: Belief) -> int:
        return int((self.net.units.too_far(batch, belief) & batch["past_observed"]).sum())

    def seed_of(self, number: int) -> None:
        """Set the seed of a micro-batch."""
        self._seed((self.seed << 32 ^ number) & (1 << 63) - 1)

    def seed_of_paths(self, known: Rows, rows: NDArray[np.int64]) -> None:
        """Set the seed of sample paths: it depends on the names of series and where they end, and on nothing else."""
        said = [self.seed, [known.names[row] for row in rows.tolist()], known.end[rows].tolist()]
        digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=8).digest()
        self._seed(int.from_bytes(digest) >> 1)

    def _seed(self, number: int) -> None:
        if self.net.device.type == "cpu":
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)

    # Forecasts.

    def forecasts(
        self,
        known: Rows,
        rows: NDArray[np.int64],
        steps: int,
        future: NDArray[np.float64] | None = None,
        covariates: NDArray[np.float64] | None = None,
        num_samples: int | None = 0,
    ) -> list[Forecast]:
        """Return forecasts from where series end.

        Args:
            known: All series.
            rows: Of those wanted.
            steps: Length of the forecasts, up to the horizon.
            future: Targets (series, step, target) that are taken as given, NaN where free; None for none.
            covariates: As rows have them, (series, step, covariate); None in a model without.
            num_samples: Sample paths; 0 for none, where quantiles are exact.
        """
        exponents, names, effects = known.exponents[rows], [known.names[row] for row in rows.tolist()], {}
        if self.curves is not None and covariates is not None:
            given = names, known.end[rows], known.memory[rows], covariates, future
            (effects, future), covariates = self.curves.ahead(*given), None
        given = steps, future, covariates
        batch = future_batch(self.data, self.calendar, known.end[rows], exponents, *given, self.net.device)
        batch |= effects | {"item_id": names}
        if num_samples != 0:
            self.seed_of_paths(known, rows)
        with torch.inference_mode():
            belief = self.layout.belief(known.gather(rows))
            return self.histories.forecasts(belief, with_series(batch, belief), num_samples, exponents)
