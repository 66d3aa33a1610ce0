"""The work of an owner, for metrics."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """The work of an owner since it began.

    Attributes:
        outcomes: Observations by outcome.
        batches: Micro-batches.
        forecasts: Series that were forecast.
        snapshots: Snapshots.
        busy_seconds: Time in which it worked.
    """

    outcomes: dict[str, int] = field(default_factory=dict)
    batches: int = 0
    forecasts: int = 0
    snapshots: int = 0
    busy_seconds: float = 0.0

    def count(self, outcomes: Iterable[str]) -> None:
        """Count outcomes of observations."""
        for outcome in outcomes:
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
