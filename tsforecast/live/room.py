"""The room of a micro-batch, which follows the time that observations take."""

from dataclasses import dataclass

_SECONDS = 0.005  # of CPU beyond the time of the quickest micro-batch, for which others may wait
_FIRST = 64  # observations of the first large micro-batch
_LEAST = 8  # observations of a micro-batch, with missing steps before them, however long they take


@dataclass
class Room:
    """The most observations of a micro-batch, with missing steps before them.

    A micro-batch takes some time, however small it is. Only the time beyond that of the quickest one counts.
    Time of the disk or of other processes does not: smaller micro-batches would wait as long.
    """

    most: int
    quickest: float = float("inf")

    def __post_init__(self) -> None:
        self.now = min(self.most, _FIRST)

    def follow(self, seconds: float, *, is_full: bool) -> None:
        """Make room for more or less after a micro-batch."""
        self.quickest = min(self.quickest, seconds)
        beyond = seconds - self.quickest
        if beyond > _SECONDS:
            self.now = max(_LEAST, int(self.now * _SECONDS / beyond))
        elif is_full and beyond < _SECONDS / 2:
            self.now = min(self.most, 2 * self.now)
