"""How a learning rate changes over a training."""


def learning_rate_factor(
    step: int, first: float, last: float, rise: float = 0.0, again: float = 0.0, share: float = 0.0
) -> float:
    """Exponentially from 1 at the first step to 0.01 at the last, times what rises like a square in the beginning.

    From the last step on it stays, or falls once more from a `share` where that is larger, until the step `again`.
    """
    if step < first:
        return 0.0
    length = max(last - first, 1.0)
    passed = min((step - first) / length, 1.0)
    risen = min((step - first + 1) / (rise * length), 1.0) if rise else 1.0
    falling = risen**2 * 0.01**passed
    return max(falling, share * learning_rate_factor(step, last, again)) if step >= last < again else falling
