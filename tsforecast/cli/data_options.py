"""Options that commands share: of data, of their columns, and of forecasts. Nothing here imports torch."""

import argparse
from typing import Any

from tsforecast.cli import names, parsing

# Options by the field of `Columns` that they give, with what `add_argument` needs.
COLUMNS: dict[str, tuple[str, dict[str, Any]]] = {
    "item": (
        "name of the series, or several columns that name it together; default: item_id, unique_id, sku, store, .., or "
        "what tells the series apart; one series if there is none",
        {"nargs": "+"},
    ),
    "timestamp": (
        "time stamps, or several columns that are joined, such as year month; default: timestamp, date, ds, month, ..",
        {"nargs": "+"},
    ),
    "target": (
        "what to forecast, one or several; default: target, value, y, sales, .., or the only one left",
        {"nargs": "+"},
    ),
    "covariates": ("numbers known ahead of time", {"nargs": "+"}),
    "static_categories": ("names constant within a series", {"nargs": "+"}),
    "static_reals": ("numbers constant within a series", {"nargs": "+"}),
    "timestamp_format": (
        "format of time stamps, such as %d/%m/%Y; default: what fits the whole column",
        {"type": str},
    ),
    "decimal": ("decimal sign; default: found from the cells", {"type": str}),
    "holidays": (
        "country whose public holidays become covariates, such as US or AU-VIC, also of --dataset; their effects are "
        "chosen, or follow",
        {"nargs": "+"},
    ),
    "wide": (
        "one column for each series, beside time stamps; dates across the top need no option",
        {"action": "store_true"},
    ),
}


def add_columns(parser: argparse.ArgumentParser, title: str = "columns of --data (see docs/data.md)") -> None:
    """Adds the options that say what the columns of a user's table are."""
    group = parser.add_argument_group(title)
    for name, (text, keywords) in COLUMNS.items():
        # Several names have no type: jsonargparse would refuse a single one, without a list around it, in a YAML file.
        names = [f"--{name}", *([f"--{name}_column"] if name in ("item", "timestamp", "target") else [])]
        group.add_argument(*names, help=text, **keywords)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose a data set and its split."""
    group = parser.add_argument_group("data: a set by name, or a file")
    group.add_argument("--dataset", metavar="NAME", type=str, help=f"one of {', '.join(names.DATASETS)}")
    group.add_argument(
        "--data", metavar="FILE", type=str, help="CSV, Parquet, a GluonTS folder or buckets (see docs/data.md)"
    )
    group.add_argument("--freq", type=str, help="frequency of --data, such as h, D, MS; default: inferred")
    group.add_argument("--prediction_length", type=int, help="steps of a forecast of --data; default: by frequency")
    group.add_argument(
        "--irregular", action="store_true", help="time stamps of --data need no grid (see docs/howto/irregular.md)"
    )
    group.add_argument("--horizon", type=str, help="time of a forecast with --irregular, such as 6h; default: a share")
    group.add_argument("--windows", type=int, help="test windows, 0 for none; default: 5 or 7, or what fits")
    group.add_argument("--unit", type=str, help="in which the target of --data is measured, for pictures")
    # Of version 0.2: what it asked for is the default now. Files of options have it.
    group.add_argument("--drop_unusable", action="store_true", help=argparse.SUPPRESS)
    add_columns(parser)


def add_forecast(parser: argparse.ArgumentParser) -> None:
    """Adds the run folder of a trained model and the options of its forecasts."""
    parser.add_argument("run", metavar="RUN", type=str, help="run folder of `tsforecast train`")
    parser.add_argument("--num_samples", type=int, default=100, help="sample paths of a forecast")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, ..")
    parser.add_argument("--seed", type=int, default=0, help="of the sample paths")
    add_threads(parser)


def add_threads(parser: Any) -> None:
    """Adds the number of threads."""
    parser.add_argument("--threads", type=int, help="of the CPU; default: torch's choice")


def add_engines(group: Any) -> None:
    """Adds the options that say who computes buckets."""
    group.add_argument("--engine", default="local", choices=names.ENGINES, help="local or ray")
    group.add_argument("--address", type=str, help="of a Ray cluster; default: one on this machine")


def add_learning(command: argparse.ArgumentParser, what: str) -> None:
    """Adds the options by which a trained model goes on learning.

    Args:
        command: To which they are added.
        what: What `--adapt` does, for its help.
    """
    group = command.add_argument_group("learning on (see docs/howto/live.md)")
    group.add_argument("--adapt", metavar="LEARNER", type=str, help=f"{what}: {', '.join(names.OF_NUMBERS)}")
    group.add_argument("--drift", type=str, default="wiener", help=f"between periods: {', '.join(names.DRIFTS)}")
    group.add_argument("--rate", type=float, default=0.02, help="of the drift, in a period")
    group.add_argument("--variance", type=float, default=0.1, help="of every parameter in the prior")
    group.add_argument("--rank", type=int, default=10, help="of lofi and lrkf")
    group.add_argument(
        "--part", type=str, default="", help="regular expression in the names of parameters; default: all"
    )
    group.add_argument("--evidence", type=str, default="objective", help=f"learnt from: {', '.join(names.EVIDENCE)}")
    group.add_argument("--settings", type=parsing.JSON, default=None, help="more of the learner's constructor")
    group.add_argument(
        "--memory",
        type=str,
        default="none",
        help=f"of vb: {', '.join(names.MEMORIES_OF_WINDOWS)}; windows that it keeps",
    )
    group.add_argument("--memory_size", type=int, default=25, help="windows that a memory keeps")
