"""The options of `tsforecast live`. Nothing here imports torch."""

from collections.abc import Callable, Sequence

from jsonargparse import ArgumentParser

from tsforecast.cli import parsing
from tsforecast.cli.data_options import add_columns, add_learning


def live() -> ArgumentParser:
    """Return the options of `tsforecast live init` and `tsforecast live serve`."""
    command = parsing.command_parser(
        "live", "Keep beliefs of a trained model current behind a service (see docs/howto/serve.md)."
    )
    commands = command.add_subcommands(required=False, dest="live", metavar="init|serve")
    commands.add_subcommand("init", init(), help="filter every series once, and write a store")
    commands.add_subcommand("serve", serve(), help="take observations and answer with forecasts, over HTTP")
    return command


def init() -> ArgumentParser:
    """Return the options of `tsforecast live init`."""
    command = parsing.command_parser("live init", "Filter every series once, and write a store.")
    command.add_argument("run", metavar="RUN", type=str, help="run folder of `tsforecast train`")
    command.add_argument(
        "--output",
        metavar="STORE",
        type=str,
        required=True,
        help="folder to write; a call that was stopped goes on in it",
    )
    command.add_argument(
        "--data", metavar="FILE", type=str, help="CSV, Parquet, GluonTS folder or buckets; default: the run's"
    )
    command.add_argument("--prediction_length", type=int, help="most steps of a forecast; default: as in training")
    command.add_argument(
        "--warm_up",
        type=int,
        help="values from which on a series that begins keeps its scale; default: two seasons, from 10 to 64",
    )
    command.add_argument("--seed", type=int, default=0, help="of what is drawn")
    command.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda, ..")
    add_learning(command, "let the model learn from every period as long as a forecast")
    add_columns(command)
    return command


def serve() -> ArgumentParser:
    """Return the options of `tsforecast live serve`."""
    command = parsing.command_parser("live serve", "Take observations and answer with forecasts, over HTTP.")
    command.add_argument("store", metavar="STORE", type=str, help="folder of `tsforecast live init`")
    command.add_argument(
        "--host", type=str, default="127.0.0.1", help="address to listen at; any but this machine's own needs a token"
    )
    command.add_argument("--port", type=int, default=8000, help="port to listen at; 0 for a free one")
    command.add_argument("--token_file", metavar="FILE", type=str, help="file of the token that requests must bring")
    command.add_argument("--device", type=str, default="cpu", help="cpu, cuda, ..")
    group = command.add_argument_group("limits")
    group.add_argument("--max_items", type=int, default=1_000_000, help="series, with those that begin")
    group.add_argument("--max_gap", type=int, default=1000, help="missing steps before an observation")
    group.add_argument("--max_batch", type=int, default=10_000, help="observations of a request")
    group.add_argument("--max_body", type=int, default=8 << 20, help="bytes of a request")
    group.add_argument("--max_connections", type=int, default=1000, help="at a time")
    group.add_argument("--max_rate", type=float, default=0.0, help="requests a second of a client; 0 for any number")
    group.add_argument("--burst", type=int, default=100, help="requests of a client at once, where there is a rate")
    group.add_argument("--snapshot_every", type=int, default=1_000_000, help="observations between two snapshots")
    return command


COMMANDS: dict[str, Callable[[], ArgumentParser]] = {"init": init, "serve": serve}


def own_parser(arguments: Sequence[str]) -> tuple[ArgumentParser, list[str]]:
    """Return the parser of the command that arguments begin with, and the others: its errors name its options alone."""
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]](), list(arguments[1:])
    return live(), list(arguments)
