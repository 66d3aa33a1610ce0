"""Effects that were taken from targets, on their way back into forecasts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tsforecast.data.effects.link import moved, restored

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Taken:
    """Effects that were taken from the targets of a batch of series."""

    effect: Array  # at each step, (series, time)
    link: Array  # bend, size and lowest value of each series, see `Effects.adjusted`
    # What effects may differ by, (series, time, direction), see `Effects.along`; 0 where targets are given. None of the
    # past.
    doubt: Array | None = None

    @classmethod
    def of_batch(cls, batch: dict[str, Any], part: str) -> "Taken | None":
        """Return those of the `past` or `future` of a batch; None where it has none."""
        if f"{part}_effect" not in batch:
            return None
        effect, link = batch[f"{part}_effect"].cpu().numpy(), batch["link"].cpu().numpy()
        if part == "past" or "doubt" not in batch:
            return cls(effect, link)
        free = batch["known_future"].isnan().all(-1, keepdim=True)
        return cls(effect, link, (batch["doubt"] * free).cpu().numpy())

    def of(self, rows: slice) -> "Taken":
        """Return those of some of the series."""
        return Taken(self.effect[rows], self.link[rows], None if self.doubt is None else self.doubt[rows])

    def restored(self, values: Array) -> Array:
        """Return values (..., series, time, target) with the effects."""
        return restored(values, self.effect[..., None], self.link.T[..., None, None])

    def without(self, values: Array) -> Array:
        """Return values (series, time, target) less the effects."""
        bend, size, _ = (x[..., None, None] for x in self.link.T)
        return moved(values, -self.effect[:, : values.shape[1], None], bend, size)

    def deviated(self, values: Array, sign: float) -> Array:
        """Return values (series, time, target) with a standard deviation of the effects, up or down."""
        assert self.doubt is not None
        size = sign * np.sqrt(np.square(self.doubt).sum(-1))
        return moved(values, size[..., None], *(x[..., None, None] for x in self.link.T[:2]))

    def drawn(self, paths: list[NDArray[Any]], generator: torch.Generator | None = None) -> list[Array]:
        """Return paths (path, time[, target]) of each series with effects, whose coefficients are drawn for each."""
        found = []
        for k, (path, effect, link) in enumerate(zip(paths, self.effect, self.link, strict=True)):
            own = np.broadcast_to(effect, path.shape[:2])
            if self.doubt is not None:
                size = (len(path), self.doubt.shape[-1])
                own = own + torch.randn(size, generator=generator, dtype=torch.float64).numpy() @ self.doubt[k].T
            found.append(restored(path, own if path.ndim == 2 else own[..., None], link))
        return found
