"""The parsers of what is asked about forecasts and data: `news`, `explain`, `impact`. Nothing here imports torch."""

from jsonargparse import ArgumentParser

from tsforecast.cli import parsing
from tsforecast.cli.data_options import add_columns, add_threads


def news() -> ArgumentParser:
    """Return the options of `tsforecast news`."""
    command = parsing.command_parser("news", "Say why forecasts changed: the share of every new or revised value.")
    _add_run(command)
    command.add_argument("--before", metavar="FILE", type=str, help="data of the first forecast; default: the run's")
    command.add_argument("--data", metavar="FILE", type=str, required=True, help="data of the second, ending later")
    _add_rest(command)
    return command


def explain() -> ArgumentParser:
    """Return the options of `tsforecast explain`."""
    command = parsing.command_parser("explain", "Take forecasts apart: level, trend, seasons, covariates, last steps.")
    _add_run(command)
    command.add_argument("--data", metavar="FILE", type=str, help="default: the data of the run")
    command.add_argument("--recent", type=int, help="last steps whose doing is told apart; default: a season, or 7")
    command.add_argument("--seed", type=int, default=0, help="of particles, in models that have them")
    _add_rest(command)
    return command


def impact() -> ArgumentParser:
    """Return the options of `tsforecast impact`."""
    command = parsing.command_parser("impact", "Estimate what an intervention did to series.")
    command.add_argument("data", metavar="DATA", type=str, help="CSV, Parquet or GluonTS folder (see docs/data.md)")
    command.add_argument("--output", metavar="FOLDER", type=str, default="impact", help="of tables and a picture")
    command.add_argument("--after", metavar="DATE", nargs="+", help="last time stamps without it, of all series")
    command.add_argument("--until", metavar="DATE", nargs="+", help="last time stamps with it; default: the end")
    command.add_argument("--dates", metavar="FILE", type=str, help="CSV of series, after and until, in place of both")
    command.add_argument("--after_column", metavar="NAME", type=str, help="column of DATA with each series' own date")
    command.add_argument("--until_column", metavar="NAME", type=str, help="likewise, of its end")
    command.add_argument("--freq", type=str, help="frequency, such as h, D, MS; default: inferred")
    command.add_argument("--seasons", type=str, default="auto", help="auto: by frequency; none; or joined by +")
    command.add_argument("--transformation", type=str, default="none", help="none, log1p, asinh, sqrt or logit")
    command.add_argument("--level_sd", type=float, help="prior of CausalImpact, 0.01; default: any size")
    command.add_argument("--dynamic", action="store_true", help="coefficients of controls move")
    command.add_argument("--level", type=float, default=0.95, help="of the intervals")
    command.add_argument("--num_samples", type=int, default=1000, help="joint paths of each series")
    command.add_argument("--seed", type=int, default=0, help="of the paths")
    command.add_argument("--plot_series", type=int, default=4, help="series to draw; 0: no picture")
    add_threads(command)
    add_columns(command, "columns of DATA (see docs/data.md); --covariates are the controls")
    return command


def _add_run(command: ArgumentParser) -> None:
    command.add_argument("run", metavar="RUN", type=str, help="run folder of `tsforecast train`")
    command.add_argument("--output", metavar="FOLDER", type=str, help="of a table and pictures; default: below the run")


def _add_rest(command: ArgumentParser) -> None:
    command.add_argument("--prediction_length", type=int, help="steps of a forecast; default: as in training")
    command.add_argument("--plot_series", type=int, default=4, help="series to draw; 0: no pictures")
    command.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, ..")
    add_threads(command)
    add_columns(command, "columns of the files (see docs/data.md)")
