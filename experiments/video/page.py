"""docs/benchmarks/video-results.md, of results/video.csv; `experiments/pages.py` writes it."""

import pathlib

import pandas as pd

from experiments.markdown import PAGES, table
from experiments.tables import ROOT

TABLE, PAGE = ROOT / "experiments" / "video" / "results" / "video.csv", PAGES / "video-results.md"
STEPS = (1, 5, 10, 20, 40)
HEAD = """# Video

Each model is trained on frames of a moving body for {minutes} minutes of one core, with one seed. It filters 20 frames
and forecasts 40. Cells are the Wasserstein distance in pixels between sampled and true frames at a step, over 200 test
sequences; lower is better. The last column is the overlap with the true body (intersection over union). "Last frame"
repeats the last frame; "true physics" knows the motion. [The guide](../video.md) explains the scores.

{table}

`kvae-rb` was ahead of `arsgls` on some sets after half of the time; these rows are in the table with `budget_s` 600.

```sh
experiments/video/run.sh      # fills experiments/video/results/video.csv
```

![Wasserstein distance by step of the three models, the last frame and true physics](../images/video-horizon.png)
"""


def pages() -> dict[pathlib.Path, str]:
    """Return what the page should be."""
    frame = pd.read_csv(TABLE)
    budget = frame["budget_s"].max()
    frame, rows = frame.loc[frame["budget_s"] == budget], []
    for data, part in frame.groupby("dataset", sort=False):
        for row in part.to_dict("records"):
            cells = [f"{row[f'wasserstein_{step}']:.2f}" for step in STEPS]
            rows.append([str(data), f"`{row['model']}`", *cells, f"{row['wasserstein']:.2f}", f"{row['iou']:.2f}"])
        for name, column in (("last frame", "last_frame"), ("true physics", "true_physics")):
            rows.append([str(data), name, *[""] * len(STEPS), f"{part[column].iloc[0]:.2f}", ""])
    header = ["set", "model", *(f"step {step}" for step in STEPS), "mean", "overlap"]
    return {PAGE: HEAD.format(minutes=round(budget / 60), table=table(header, rows))}
