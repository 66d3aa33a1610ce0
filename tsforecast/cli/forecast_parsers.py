"""The parsers of what a trained model is used for: `predict`, `impute`, `export`. Nothing here imports torch."""

from jsonargparse import ArgumentParser

from tsforecast.cli import parsing
from tsforecast.cli.data_options import add_columns, add_engines, add_forecast


def predict() -> ArgumentParser:
    """Return the options of `tsforecast predict`."""
    command = parsing.command_parser(
        "predict", "Forecast beyond the end of a file, or of the data that the model was trained with."
    )
    _add_files(command)
    command.add_argument(
        "--known",
        metavar="FILE",
        type=str,
        help="what-if: future target values, taken as given (item, time stamp, target)",
    )
    command.add_argument("--prediction_length", type=int, help="steps of a forecast; default: as in training")
    command.add_argument(
        "--start",
        default="common",
        choices=("common", "each"),
        help="of forecasts: common, behind the series that ends last; or each, behind the series' own end",
    )
    _add_times(command)
    _add_contents(command, "sample paths instead of mean and quantiles")
    _add_bulk(command)
    return command


def impute() -> ArgumentParser:
    """Return the options of `tsforecast impute`."""
    command = parsing.command_parser(
        "impute", "Fill in the missing values of a file, or of the data that the model was trained with."
    )
    _add_files(command)
    _add_times(command)
    _add_contents(command, "joint sample paths instead of mean and quantiles")
    _add_bulk(command)
    return command


def regimes() -> ArgumentParser:
    """Return the options of `tsforecast regimes`."""
    command = parsing.command_parser(
        "regimes", "Say which regime series were in, when that changed, and which regimes come next."
    )
    command.add_argument(
        "--output", metavar="FOLDER", type=str, help="to write tables and pictures into; default: RUN/regimes"
    )
    command.add_argument("--data", metavar="FILE", type=str, help="a file, or buckets; default: those of the run")
    command.add_argument("--level", type=float, default=0.9, help="probability of the intervals of changes")
    command.add_argument("--last", type=int, help="steps at the end of each series that are read; default: all")
    command.add_argument("--plot_series", type=int, default=4, help="number of series that have a picture")
    _add_bulk(command)
    return command


def export() -> ArgumentParser:
    """Return the options of `tsforecast export`."""
    command = parsing.command_parser("export", "Write a trained model as a folder that another system loads.")
    command.add_argument("run", metavar="RUN", type=str, help="run folder of `tsforecast train`")
    command.add_argument("--format", default="mlflow", choices=("mlflow",), help="mlflow: a pyfunc model, from code")
    command.add_argument("--output", metavar="FOLDER", type=str, required=True, help="to write; new or empty")
    return command


def _add_files(command: ArgumentParser) -> None:
    command.add_argument(
        "--output", metavar="FILE", type=str, required=True, help=".csv, .csv.gz or .parquet; of buckets also a folder"
    )
    command.add_argument(
        "--data", metavar="FILE", type=str, help="CSV, Parquet, GluonTS folder or buckets; default: the run's"
    )


def _add_times(command: ArgumentParser) -> None:
    group = command.add_argument_group("times, of a run of `train --irregular`")
    group.add_argument("--at", metavar="FILE", type=str, help="time stamps, perhaps by item, CSV or Parquet")
    group.add_argument("--every", metavar="TIME", type=str, help="distance of the times, such as 10min; default: a gap")


def _add_contents(command: ArgumentParser, paths: str) -> None:
    command.add_argument(
        "--quantiles",
        metavar="LEVELS",
        type=str,
        default="0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9",
        help="levels between 0 and 1, with commas between",
    )
    command.add_argument("--paths", action="store_true", help=f"write {paths}")


def _add_bulk(command: ArgumentParser) -> None:
    group = command.add_argument_group("buckets into a folder (see docs/howto/many.md)")
    group.add_argument("--workers", type=int, default=1, help="processes, of one thread each")
    add_engines(group)
    add_forecast(command)
    add_columns(command)
