"""The parser of each command. Nothing here imports torch: help and errors of usage come at once."""

from argparse import ArgumentError
from argparse import ArgumentParser as PlainParser
from collections.abc import Callable, Sequence
from typing import NoReturn

from jsonargparse import ArgumentParser

from tsforecast.cli import names, parsing, train_parser
from tsforecast.cli.anomaly_parser import anomalies
from tsforecast.cli.data_options import add_columns, add_engines, add_forecast, add_learning
from tsforecast.cli.decision_parsers import optimise
from tsforecast.cli.effect_parsers import explain, impact, news
from tsforecast.cli.forecast_parsers import export, impute, predict, regimes
from tsforecast.cli.live_parsers import live, own_parser

DEFAULT_BASELINES = "seasonal_naive,empirical_random_walk,auto_ets"
DEFAULT_LEARNER = "lofi"


def bucket() -> ArgumentParser:
    """Return the options of `tsforecast bucket`."""
    command = parsing.command_parser(
        "bucket", "Write tables of any size as a folder of Parquet files, which other commands take as --data."
    )
    command.add_argument(
        "inputs", metavar="INPUT", nargs="+", help="CSV or Parquet files, or patterns such as 'sales/*.csv'"
    )
    command.add_argument("out", metavar="OUT", type=str, help="folder to write; a call that was stopped goes on in it")
    command.add_argument("--buckets", type=int, help="number of files; default: one for each 16 MiB of input")
    command.add_argument("--freq", type=str, help="frequency, such as h, D, MS; default: inferred")
    add_columns(command, "columns (see docs/data.md)")
    return command


def evaluate() -> ArgumentParser:
    """Return the options of `tsforecast evaluate`."""
    command = parsing.command_parser(
        "evaluate", "Score a trained model on the test windows of its data, beside baselines; draw its forecasts."
    )
    command.add_argument(
        "--baselines",
        metavar="NAMES",
        type=str,
        default=DEFAULT_BASELINES,
        help=f"with commas between: {', '.join(names.BASELINES)}, each also with a season, as in seasonal_naive-168 "
        "(deepar, which is trained for 50 epochs, by --seed, with a number of these); or none",
    )
    add_forecast(command)
    add_learning(command, "score also the model that learns")
    command.add_argument(
        "--workers", type=int, default=1, help="processes that fit baselines of statsforecast, or that share buckets"
    )
    group = command.add_argument_group("data in buckets (see docs/howto/many.md)")
    group.add_argument("--output", metavar="DIR", type=str, help="score bucket after bucket into this folder")
    add_engines(group)
    command.add_argument("--plot_series", type=int, default=6, help="series to draw; 0: no pictures")
    command.add_argument(
        "--inspect", metavar="ITEM", help="series whose components and regimes are drawn; default: the best"
    )
    command.add_argument(
        "--marks",
        metavar="DATE=NAME",
        type=str,
        nargs="+",
        help="dates to mark in pictures of regimes and of learning on, such as 2016-01-23=blizzard",
    )
    return command


def compare() -> ArgumentParser:
    """Return the options of `tsforecast compare`."""
    command = parsing.command_parser("compare", "One page of the scores, pictures and differences of runs.")
    command.add_argument(
        "runs", metavar="RUN", nargs="+", help="run folders that `evaluate` has scored, on the same data"
    )
    command.add_argument(
        "--output", metavar="FILE", default="comparison.html", help="the page; a CSV file goes beside it"
    )
    return command


def stream() -> ArgumentParser:
    """Return the options of `tsforecast stream`."""
    command = parsing.command_parser(
        "stream", "Predict, score and learn from one observation after the other (see docs/learners.md)."
    )
    command.add_argument(
        "learner",
        nargs="?",
        metavar="LEARNER",
        type=str,
        help=f"one of {', '.join(names.LEARNERS)}; default: {DEFAULT_LEARNER}",
    )
    group = command.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="NAME|FILE",
        type=str,
        help=f"{', '.join(names.STREAMS)}; {', '.join(names.PREPARED)} once prepared; "
        "CSV or Parquet; - for JSON lines on stdin",
    )
    group.add_argument("--target", type=str, default="target", help="column to predict; all others are features")
    group.add_argument("--time", type=str, help="column of time stamps; drifts then depend on the time that passed")
    group.add_argument(
        "--id", type=str, help="column by which a target finds the row before, without target, that it belongs to"
    )
    group.add_argument(
        "--delay", type=str, help="targets become known this many observations later, or, with --time, this time (7D)"
    )
    group.add_argument("--unit", type=str, help="unit of time of the drift, such as 1h; default: the first gap")
    group.add_argument("--task", type=str, default="auto", help="classes, numbers or auto: by the first target")
    group.add_argument(
        "--expected_features", type=int, default=0, help="columns to begin with; default: twice the first observation's"
    )
    group.add_argument("--expected_classes", type=int, default=10, help="outputs of the network to begin with")
    group.add_argument("--limit", type=int, help="observations at most")
    group = command.add_argument_group("learner")
    group.add_argument("--hidden", type=int, nargs="*", default=[20], help="widths of hidden layers; none: linear")
    group.add_argument("--activation", type=str, default="tanh", help=", ".join(names.ACTIVATIONS))
    group.add_argument("--variance", type=float, default=0.1, help="of every weight in the prior")
    group.add_argument("--noise", type=float, default=0.5, help="of standardised numbers around the output")
    group.add_argument("--rank", type=int, default=10, help="of lofi and lrkf")
    group.add_argument("--seed", type=int, default=0, help="of initial weights and of what is drawn")
    group.add_argument("--settings", type=parsing.JSON, default=None, help="more of the learner's constructor")
    group.add_argument("--block", type=int, default=1, help="observations that are learnt from together")
    group.add_argument("--memory", type=str, help=f"of vb: {', '.join(names.MEMORIES)}; default: its own, none")
    group.add_argument("--memory_size", type=int, default=25, help="observations that a memory keeps as they came")
    group = command.add_argument_group("drift")
    group.add_argument(
        "--drift",
        type=str,
        default="auto",
        help=f"auto (wiener, if it can drift), {', '.join(names.DRIFTS)} (or its own)",
    )
    group.add_argument("--rate", type=float, default=1e-3, help="of the drift, in a unit of time")
    group = command.add_argument_group("weight of outliers")
    group.add_argument("--weight", type=str, default="none", help=", ".join(names.WEIGHTS))
    group.add_argument("--threshold", type=float, default=3.0, help="standard deviations of an outlier")
    group = command.add_argument_group("run")
    group.add_argument("--output", metavar="RUN", type=str, help="run folder; default: outputs/LEARNER-DATA-TIME")
    group.add_argument("--resume", metavar="RUN", type=str, help="go on with a run that was stopped")
    group.add_argument("--save_every", type=int, default=100, help="observations between two saved states")
    return command


def bandit() -> ArgumentParser:
    """Return the options of `tsforecast bandit`."""
    command = parsing.command_parser(
        "bandit", "Choose arms by their contexts and learn from what they pay, several times (see docs/bandits.md)."
    )
    command.add_argument(
        "agent",
        nargs="?",
        metavar="AGENT",
        type=str,
        help=f"one of {', '.join(names.AGENTS)}; default: {DEFAULT_LEARNER}",
    )
    group = command.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="NAME|FILE",
        type=str,
        help=f"{', '.join(names.BANDITS)}; {', '.join(names.BANDIT_TABLES)} once prepared; CSV or Parquet",
    )
    group.add_argument("--target", type=str, default="target", help="column of labels: the arm that pays 1")
    group.add_argument("--rewards", metavar="COLUMN", type=str, nargs="+", help="instead: what each arm pays")
    group.add_argument("--arm", type=str, help="instead, of a log: column of the arm that was chosen")
    group.add_argument("--reward", type=str, help="and of what it paid")
    group.add_argument("--steps", type=int, default=5000, help="rounds of a run")
    group.add_argument("--runs", type=int, default=10, help="each in another order, and with another seed")
    group.add_argument("--change", action="store_true", help="the best arms change half-way")
    group = command.add_argument_group("agent")
    group.add_argument("--rule", type=str, default="auto", help=f"auto: the agent's own; {', '.join(names.RULES)}")
    group.add_argument("--amount", type=float, help="standard deviations of ucb, 1; probability of epsilon, 0.05")
    group.add_argument("--encoding", type=str, default="output", help=", ".join(names.ENCODINGS))
    group.add_argument("--hidden", type=int, nargs="*", default=[50], help="widths of hidden layers; none: linear")
    group.add_argument("--activation", type=str, default="relu", help=", ".join(names.ACTIVATIONS))
    group.add_argument("--variance", type=float, default=0.01, help="of every weight in the prior of a learner")
    group.add_argument("--noise", type=float, default=0.1, help="variance of a reward, in the units of rewards")
    group.add_argument("--rank", type=int, default=10, help="of lofi and lrkf")
    group.add_argument("--warm_up", type=int, default=20, help="rewards of each arm before the agent chooses")
    group.add_argument(
        "--all_arms", action="store_true", help="warm up on the rewards of all arms: published protocol, not honest"
    )
    group.add_argument("--raw_rewards", action="store_true", help="do not scale rewards by those of the warm-up")
    group.add_argument("--seed", type=int, default=0, help="of the first run")
    group.add_argument("--settings", type=parsing.JSON, default=None, help="more of the agent's model")
    group = command.add_argument_group("drift")
    group.add_argument("--drift", type=str, default="none", help=", ".join(names.DRIFTS))
    group.add_argument("--rate", type=float, default=1e-3, help="of the drift, in a round")
    group = command.add_argument_group("run")
    group.add_argument(
        "--device", type=str, default="cpu", help="of a learner's weights, or particles: cpu, cuda, auto"
    )
    group.add_argument("--output", metavar="RUN", type=str, help="run folder; default: outputs/AGENT-DATA-TIME")
    group.add_argument("--resume", metavar="RUN", type=str, help="go on with runs that were stopped")
    return command


class _Parser(PlainParser):
    def error(self, message: str) -> NoReturn:  # where argparse would write its usage and end the process
        raise ArgumentError(None, message)


def tune() -> PlainParser:
    """Return the own options of `tsforecast tune`; all others are those of `train`."""
    command = _Parser(
        prog=parsing.typed("tune"),
        description="Look for hyperparameters by Optuna, on windows before the test part.",
        epilog="All other options are those of `tsforecast train MODEL`: what is not tried stays as they say.",
        allow_abbrev=False,
    )
    command.add_argument("model", choices=list(names.MODELS), metavar="MODEL", help=", ".join(names.MODELS))
    command.add_argument("--trials", type=int, default=20, help="in all, with those of an earlier call")
    command.add_argument("--study", metavar="FOLDER", required=True, help="goes on where it stopped")
    command.add_argument("--space", metavar="FILE", help="YAML: hyperparameter -> list of choices, or {low, high, log}")
    command.add_argument("--validation_windows", type=int, default=3, help="before the test part, to score on")
    return command


PARSERS: dict[str, Callable[[], PlainParser]] = {
    "bucket": bucket,
    "live": live,
    "train": train_parser.parser,
    "evaluate": evaluate,
    "compare": compare,
    "predict": predict,
    "impute": impute,
    "anomalies": anomalies,
    "explain": explain,
    "news": news,
    "regimes": regimes,
    "impact": impact,
    "export": export,
    "stream": stream,
    "bandit": bandit,
    "tune": tune,
    "optimise": optimise,
}


def parser_of(command: str, arguments: Sequence[str] = names.TRAINED) -> PlainParser:
    """Return the parser of a command.

    Args:
        command: Its name.
        arguments: Of the command. `train` has the options of the models that they name.
    """
    if command == "train":
        return train_parser.parser(train_parser.named(arguments))
    if command == "live":
        return own_parser(arguments)[0]
    return PARSERS[command]()
