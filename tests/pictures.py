"""Pictures that commands write, where no test asks how they look."""

from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


def draw_once(patch: pytest.MonkeyPatch, scale: float = 0.5) -> None:
    """Writes small pictures without looking for room for labels and titles, which draws each several times.

    Matplotlib's layout and pixels are the same code for all: modules that ask how figures look have them.

    Args:
        patch: Where to change it.
        scale: Of the resolution.
    """
    whole = Figure.savefig

    def once(figure: Figure, target: Any, **options: Any) -> None:
        if (options.get("format") or Path(target).suffix[1:]) != "png":
            whole(figure, target, **options)
            return
        figure.set_layout_engine("none")
        for axes in figure.axes:
            axes._autotitlepos = axes.xaxis._autolabelpos = axes.yaxis._autolabelpos = False
        figure.dpi = scale * options.get("dpi", figure.dpi)
        FigureCanvasAgg(figure).print_png(target)

    patch.setattr(Figure, "savefig", once)
