"""Running location and scale of the numbers of a stream, for standardising."""

import dataclasses
import math

import torch
from torch import Tensor

from tsforecast.core.gaussian import register_record

# Numbers are cut here, so that sums of their squares are finite.
LARGEST = 1e100
# Number of first values of a column that are kept.
_FIRST = 16
# Standard deviations from the mean beyond which a value has no more influence on mean and variance.
_REACH = 6.0
# A value has no precedent beyond so many times the largest distance so far.
_PRECEDENT = 3.0
# Values after which older ones fade away.
_MEMORY = 100_000
# Standardised values are cut here.
_CLIP = 10.0


@register_record
@dataclasses.dataclass(frozen=True)
class Statistics:
    """Running location and scale of each column; no single value has much influence.

    - An outlier counts as missing. It is more than six standard deviations from the mean, and more than three times as
      far as any value before. It triples the largest distance known, so that a real change is believed after a few.
    - Other values further than six standard deviations from the mean count as six (winsorised moments). One of n adds
      at most 35 / n of the variance; a scale that is a hundred times larger is reached after a third more observations.
    - Where no value is that far, location and scale are the ordinary mean and standard deviation.
    - The first values of a column are kept, and those far from their median left out: the very first may be an outlier.
    - A column that was constant begins anew where it first varies. From a hundred thousand values on older ones fade.

    Attributes:
        count: Number of values.
        mean: Location; 0 before the first value.
        variance: Square of the scale; exactly 0 while all values are the same.
        largest: Distance from the mean that has a precedent.
        reach: Distance from the mean within which a value needs no closer look; negative where there are few values.
        first: The first values of each column; NaN where they have not come yet.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor
    largest: Tensor
    reach: Tensor
    first: Tensor

    @staticmethod
    def empty(columns: int) -> "Statistics":
        """Return the statistics of no values."""
        zeros = torch.zeros(columns, dtype=torch.float64)
        return Statistics(zeros, zeros, zeros, zeros, zeros - 1, zeros.new_full((_FIRST, columns), math.nan))

    @property
    def deviation(self) -> Tensor:
        """Return the scale; 0 before the second value."""
        return self.variance.sqrt()

    def widen(self, columns: int) -> "Statistics":
        """Return the statistics with more columns, of no values."""
        more = Statistics.empty(columns - len(self.count))
        names = [field.name for field in dataclasses.fields(self)]
        return Statistics(*(torch.cat([getattr(self, name), getattr(more, name)], -1) for name in names))

    def standardise(self, rows: Tensor) -> tuple["Statistics", Tensor]:
        """Return statistics with one more row, for each of the rows given, and the standardised row.

        Args:
            rows: The rows; NaN is missing.

        Returns:
            Statistics with the row, and its standardised values, at most ten from 0: NaN where one is missing or
            without precedent, 0 in columns that have not varied yet.
        """
        rows = rows.clamp(-LARGEST, LARGEST)
        change = rows - self.mean
        seen, apart = change == change, change.abs()
        if bool((apart > self.reach).any()):
            return self._look_closely(rows)
        return self._take(rows, change, seen, torch.fmax(self.largest, apart))

    def _take(
        self, rows: Tensor, change: Tensor, seen: Tensor, largest: Tensor, first: Tensor | None = None
    ) -> tuple["Statistics", Tensor]:
        """Return moments with values that are not missing and not too far (Welford 1962), or those of `first`."""
        count = self.count + seen
        memory = count.clamp(1, _MEMORY)
        share = change.nan_to_num() / memory
        mean = self.mean + share
        variance = self.variance + torch.where(seen, change * (change - share) - self.variance, 0.0) / memory
        if first is not None:
            young = seen & (count <= _FIRST)
            centre, spread, furthest = _moments(first, count)
            mean, variance = torch.where(young, centre, mean), torch.where(young, spread, variance)
            largest = torch.where(young, furthest, largest)
            # What is left out now may count when more values have come.
            # Rounding must not leave the furthest one out.
            seen = seen & ~(young & ((rows - mean).abs() > furthest * (1 + 1e-9)))
        deviation = variance.sqrt()
        varied = deviation > 0
        reach = torch.where(count >= _FIRST, _REACH * deviation, -1.0)
        scaled = torch.where(varied, (rows - mean) / deviation, 0.0).clamp(-_CLIP, _CLIP)
        after = Statistics(count, mean, variance, largest, reach, self.first if first is None else first)
        return after, torch.where(seen, scaled, math.nan)

    def _look_closely(self, rows: Tensor) -> tuple["Statistics", Tensor]:
        """Return the statistics after these rows, and the rows standardised, with young columns and far values."""
        change = rows - self.mean
        apart = change.abs()
        # Where nothing has varied yet there is no scale to cut by. For young columns see `_moments`.
        known = (self.variance > 0) & (self.count >= _FIRST)
        reach = torch.where(known, _REACH * self.variance.sqrt(), math.inf)
        precedent = torch.where(known, _PRECEDENT * self.largest, math.inf)
        seen = apart <= torch.maximum(reach, precedent)
        largest = torch.fmax(self.largest, torch.minimum(apart, precedent))
        place = (torch.arange(_FIRST).unsqueeze(-1) == self.count.unsqueeze(-2)) & seen.unsqueeze(-2)
        first = torch.where(place, rows.unsqueeze(-2), self.first) if bool(place.any()) else None
        # Where a column first varies, what was constant before says nothing of its scale.
        varies = (self.variance == 0) & (apart > 0)
        since = dataclasses.replace(self, count=torch.where(varies, self.count.clamp(max=_FIRST), self.count))
        return since._take(rows, change.clamp(-reach, reach), seen, largest, first)


def _moments(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, variance and largest distance of a few values, without those far from the median.

    Distances are in units of the median distance from the median. Where that is 0, as in a column of zeros and few
    ones, all values count. The fewer values there are, the further they may be. Of Gaussian columns with three values
    one in fifty lacks one, and of those with sixteen one in a thousand.

    Args:
        first: Values, NaN where there is none, shape (..., value, column).
        count: Number of values.
    """
    middle = first.nanquantile(0.5, -2)
    apart = first - middle.unsqueeze(-2)
    # The standard deviation of a Gaussian is 1.4826 times the median distance from its median.
    typical = 1.4826 * apart.abs().nanquantile(0.5, -2, interpolation="higher")
    reach = torch.where(typical > 0, typical * _REACH * (1 + 100 / count.square()), math.inf).unsqueeze(-2)
    apart = torch.where(apart.abs() <= reach, apart, math.nan)
    centre = apart.nanmean(-2)
    apart = apart - centre.unsqueeze(-2)
    return middle + centre, apart.square().nanmean(-2), apart.abs().nan_to_num().amax(-2)
