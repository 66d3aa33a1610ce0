"""The parser of `tsforecast anomalies`. Nothing here imports torch."""

from jsonargparse import ArgumentParser

from tsforecast.cli import parsing
from tsforecast.cli.data_options import add_columns, add_threads


def anomalies() -> ArgumentParser:
    """Return the options of `tsforecast anomalies`."""
    command = parsing.command_parser(
        "anomalies", "Find steps and stretches of series that are rare under a model of what came before them."
    )
    command.add_argument(
        "run", metavar="RUN", nargs="?", type=str, help="run folder of `tsforecast train`; default: an issm is trained"
    )
    command.add_argument("--data", metavar="FILE", type=str, help="CSV, Parquet or GluonTS folder; default: the run's")
    command.add_argument(
        "--output",
        metavar="FOLDER",
        type=str,
        help="for anomalies.csv and pictures; default: anomalies, of a RUN below it",
    )
    command.add_argument("--rate", type=float, default=0.001, help="false alarms: share of ordinary steps flagged")
    command.add_argument(
        "--since", metavar="DATE", type=str, help="judge from here on, learn before; default: 30 %% of each series"
    )
    command.add_argument(
        "--given", default="past", choices=("past", "all"), help="all: judge with hindsight, by issm, gls, deepstate"
    )
    command.add_argument("--stretch", type=int, help="steps of a stretch; default: a season, from 5 to 24")
    command.add_argument("--plot_series", type=int, default=6, help="series to draw, the most striking; 0: no pictures")
    command.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, ..; of a run")
    command.add_argument("--seed", type=int, default=0, help="of the training of an issm, and of sample paths")
    add_threads(command)
    command.add_argument("--freq", type=str, help="frequency of --data without a run, such as h; default: inferred")
    add_columns(command)
    return command
