"""The commands by name: what each takes, a record each. Nothing here imports torch: help and errors come at once."""

from argparse import ArgumentError
from argparse import ArgumentParser as PlainParser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from tsforecast.cli import names, parsing, records, train_parser
from tsforecast.cli.option_groups import (
    AnswerOptions,
    BucketOptions,
    ColumnOptions,
    DeviceOptions,
    ForecastOptions,
    HierarchyOptions,
    LearningOptions,
    LengthOptions,
    RunOptions,
    SeedOptions,
    SourceOptions,
    ThreadOptions,
    TrainedRun,
)
from tsforecast.cli.records import Command, option
from tsforecast.settings import AgentSettings, BeliefSettings, OutlierSettings

_FREQ = "frequency, such as h, D, MS; default: inferred"
_HIDDEN = "widths of hidden layers; none: linear"
_DRAWN = "series to draw; 0: no pictures"


@dataclass(frozen=True, kw_only=True)
class Bucket(ColumnOptions):
    """Write tables of any size as a folder of Parquet files, which other commands take as --data."""

    inputs: list[str] = option(text="CSV or Parquet files, or patterns such as 'sales/*.csv'", place="INPUT", nargs="+")
    out: str = option(text="folder to write; a call that was stopped goes on in it", place="OUT")
    buckets: int | None = option(None, "number of files; default: one for each 16 MiB of input", least=1)
    freq: str | None = option(None, _FREQ)


@dataclass(frozen=True, kw_only=True)
class Forecast(SeedOptions, ThreadOptions, HierarchyOptions, ColumnOptions):
    """Forecast the series of a file at once, into a table and a picture."""

    data: str = option(text="CSV, Parquet or a GluonTS folder (see docs/data.md)", place="FILE", reads="file")
    horizon: int | None = option(None, "steps of a forecast; default: by frequency", least=1)
    output: str | None = option(None, ".csv, .csv.gz or .parquet; default: FILE-forecasts.csv here", metavar="FILE")
    quantiles: str = option("0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9", "levels between 0 and 1, with commas between",
        metavar="LEVELS")  # fmt: skip
    freq: str | None = option(None, _FREQ)
    keep: str | None = option(None, "folder to write the model into", metavar="FOLDER")
    plot_series: int = option(4, _DRAWN, least=0)


@dataclass(frozen=True, kw_only=True)
class LiveInit(LearningOptions, SeedOptions, LengthOptions, TrainedRun, SourceOptions):
    """Filter every series once, and write a store."""

    output: str = option(text="folder to write; a call that was stopped goes on in it", metavar="STORE")
    warm_up: int | None = option(None, "values after which a series keeps its scale; default: two seasons", least=1)


@dataclass(frozen=True, kw_only=True)
class LiveServe(Command):
    """Take observations and answer with forecasts, over HTTP."""

    store: str = option(text="folder of `tsforecast live init`", place="STORE")
    host: str = option("127.0.0.1", "address to listen at; any but this machine's own needs a token")
    port: int = option(8000, "port to listen at; 0 for a free one", least=0, most=65_535)
    token_file: str | None = option(None, "file of the token that requests must bring", metavar="FILE")
    device: str = option("cpu", "cpu, cuda, ..")
    max_items: int = option(1_000_000, "series, with those that begin", least=1)
    max_gap: int = option(1000, "missing steps before an observation", least=0)
    max_batch: int = option(10_000, "observations of a request", least=1)
    max_body: int = option(8 << 20, "bytes of a request", least=1)
    max_connections: int = option(1000, "at a time", least=1)
    max_rate: float = option(0.0, "requests a second of a client; 0 for any number", least=0)
    burst: int = option(100, "requests of a client at once, where there is a rate", least=1)
    snapshot_every: int = option(1_000_000, "observations between two snapshots", least=1)


@dataclass(frozen=True, kw_only=True)
class Evaluate(LearningOptions, BucketOptions, ForecastOptions):
    """Score a trained model on the test windows of its data, beside baselines; draw its forecasts."""

    baselines: str = option(
        "seasonal_naive,empirical_random_walk,auto_ets",
        "with commas between: {BASELINES}, each also with a season, as in seasonal_naive-168 (deepar, which is trained "
        "for 50 epochs, by --seed, with a number of these); or none",
        metavar="NAMES",
    )
    output: str = option("", "of data in buckets: score one after the other into this folder", metavar="DIR")
    refit: bool = option(False, "also score the model trained again, with the run's options, before each test window")
    frame: str | None = option(
        None, "CSV or Parquet for rolling forecasts beside actual values; of the second model, if there is one",
        metavar="FILE",
    )  # fmt: skip
    plot_series: int = option(6, _DRAWN, least=0)
    inspect: str | None = option(None, "series whose components and regimes are drawn; default: the best")
    marks: list[str] | None = option(None, "dates to mark in pictures, such as 2016-01-23=blizzard", nargs="+")

    def check(self) -> None:
        """Refuse two models beside the one that was trained."""
        super().check()
        if self.refit and self.adapt:
            raise ValueError("--refit and --adapt each add a model: give one of them")


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """One page of the scores, pictures and differences of runs."""

    runs: list[str] = option(text="run folders, scored on the same data", place="RUN", nargs="+", reads="run")
    output: str = option("comparison.html", "the page; a CSV file goes beside it", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Predict(LengthOptions, HierarchyOptions, AnswerOptions):
    """Forecast beyond the end of a file, or of the data that the model was trained with."""

    known: str | None = option(
        None,
        "what-if: item, time stamp, target values taken as given; NAME_low, NAME_high of a covariate",
        reads="file",
    )
    start: str = option("common", "behind the series that ends last, or each series' own", choices=("common", "each"))


@dataclass(frozen=True, kw_only=True)
class Impute(AnswerOptions):
    """Fill in the missing values of a file, or of the data that the model was trained with."""


@dataclass(frozen=True, kw_only=True)
class Anomalies(SeedOptions, DeviceOptions, SourceOptions):
    """Find steps and stretches of series that are rare under a model of what came before them."""

    run: str | None = option(None, "run folder; default: an issm is trained", place="RUN", nargs="?", reads="run")
    output: str | None = option(
        None, "for the table and pictures; default: anomalies, of a RUN below it", metavar="DIR"
    )
    rate: float = option(0.001, "false alarms: share of ordinary steps flagged")
    since: str | None = option(None, "judge from here on, learn before; default: 30 % of each series", metavar="DATE")
    given: str = option("past", "all: judge with hindsight, by issm, gls, deepstate", choices=("past", "all"))
    stretch: int | None = option(None, "steps of a stretch; default: a season, from 5 to 24")
    plot_series: int = option(6, "series to draw, the most striking; 0: no pictures", least=0)
    freq: str | None = option(None, f"{_FREQ}; of --data without a run")


@dataclass(frozen=True, kw_only=True)
class _Effects(LengthOptions, TrainedRun, SourceOptions):
    """What is written."""

    output: str | None = option(None, "of a table and pictures; default: below the run", metavar="FOLDER")
    plot_series: int = option(4, _DRAWN, least=0)


@dataclass(frozen=True, kw_only=True)
class Explain(SeedOptions, _Effects):
    """Take forecasts apart: level, trend, seasons, covariates, last steps."""

    recent: int | None = option(None, "last steps whose doing is told apart; default: a season, or 7")
    importance: int = option(0, "last horizons on which to measure what is lost without each covariate", least=0)


@dataclass(frozen=True, kw_only=True)
class News(_Effects):
    """Say why forecasts changed: the share of every new or revised value."""

    before: str | None = option(None, "data of the first forecast; default: the run's", reads="file")
    data: str = option(text="data of the second, ending later", reads="file")


@dataclass(frozen=True, kw_only=True)
class Regimes(BucketOptions, ForecastOptions, SourceOptions):
    """Say which regime series were in, when that changed, and which regimes come next."""

    output: str | None = option(None, "to write tables and pictures into; default: RUN/regimes", metavar="FOLDER")
    level: float = option(0.9, "probability of the intervals of changes")
    last: int | None = option(None, "steps at the end of each series that are read; default: all")
    plot_series: int = option(4, _DRAWN, least=0)


@dataclass(frozen=True, kw_only=True)
class Impact(SeedOptions, ThreadOptions, ColumnOptions):
    """Estimate what an intervention did to series; --covariates are the controls."""

    data: str = option(text="CSV, Parquet or GluonTS folder (see docs/data.md)", place="DATA", reads="file")
    output: str = option("impact", "of tables and a picture", metavar="FOLDER")
    after: list[str] | None = option(None, "last dates without it, of all series", metavar="DATE", nargs="+")
    until: list[str] | None = option(None, "last dates with it; default: the end", metavar="DATE", nargs="+")
    dates: str | None = option(None, "CSV of series, after and until, in place of both", metavar="FILE")
    after_column: str | None = option(None, "column of DATA with each series' own date", metavar="NAME")
    until_column: str | None = option(None, "likewise, of its end", metavar="NAME")
    freq: str | None = option(None, _FREQ)
    seasons: str = option("auto", "auto: by frequency; none; or joined by +")
    transformation: str = option("none", "none, log1p, asinh, sqrt or logit")
    level_sd: float | None = option(None, "prior of CausalImpact, 0.01; default: any size")
    dynamic: bool = option(False, "coefficients of controls move")
    level: float = option(0.95, "of the intervals")
    num_samples: int = option(1000, "joint paths of each series", least=1)
    plot_series: int = option(4, _DRAWN, least=0)


@dataclass(frozen=True, kw_only=True)
class Export(TrainedRun):
    """Write a trained model as a folder that another system loads."""

    format: str = option("mlflow", "mlflow: a pyfunc model, from code", choices=("mlflow",))
    output: str = option(text="to write; new or empty", metavar="FOLDER")


@dataclass(frozen=True, kw_only=True)
class _Source(Command):
    """Data."""

    target: str = option("target", "column to predict; all others are features")
    time: str | None = option(None, "column of time stamps; drifts then depend on the time that passed")
    id: str | None = option(None, "column by which a target finds the row before that it belongs to", later=True)
    delay: str | None = option(None, "targets come so many observations, or so much time (7D), later", later=True)
    unit: str | None = option(None, "unit of time of the drift, such as 1h; default: the first gap")
    task: str = option("auto", "classes, numbers or auto: by the first target")
    expected_features: int = option(0, "columns to begin with; default: twice the first observation's", least=0)
    expected_classes: int = option(10, "outputs of the network to begin with", least=1)
    limit: int | None = option(None, "observations at most", least=1)


@dataclass(frozen=True, kw_only=True)
class Stream(OutlierSettings, SeedOptions, RunOptions, _Source):
    """Predict, score and learn from one observation after the other (see docs/learners.md)."""

    learner: str = option("lofi", "one of {LEARNERS}; default: lofi", place="LEARNER", nargs="?")
    data: str = option(
        "",
        "{STREAMS}; {PREPARED} once prepared; CSV or Parquet; - for JSON lines on stdin",
        metavar="NAME|FILE",
    )
    hidden: list[int] = option([20], _HIDDEN, nargs="*")
    activation: str = option("tanh", "{ACTIVATIONS}")
    noise: float = option(0.5, "of standardised numbers around the output")
    block: int = option(1, "observations that are learnt from together", least=1, later=True)
    memory: str | None = option(None, "of vb: {MEMORIES}; default: its own, none", later=True)
    memory_size: int = option(25, "observations that a memory keeps as they came", least=1, later=True)
    save_every: int = option(100, "observations between two saved states", least=1)

    def check(self) -> None:
        """Refuse what no stream can have."""
        if not self.data:
            raise ValueError("expected data, as in `tsforecast stream lofi --data digits`, or --resume RUN")
        for name, known in (
            ("learner", names.LEARNERS),
            ("activation", names.ACTIVATIONS),
            ("weight", names.WEIGHTS),
            ("task", ("classes", "numbers", "auto")),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.memory is not None and self.learner != "vb":
            raise ValueError(f"expected --memory beside the learner 'vb', got learner {self.learner!r}")


@dataclass(frozen=True, kw_only=True)
class Bandit(AgentSettings, SeedOptions, RunOptions):
    """Choose arms by their contexts and learn from what they pay, several times (see docs/bandits.md)."""

    agent: str = option("lofi", "one of {AGENTS}; default: lofi", place="AGENT", nargs="?")
    data: str = option("", "{BANDITS}; {BANDIT_TABLES} once prepared; CSV or Parquet", metavar="NAME|FILE")
    target: str = option("target", "column of labels: the arm that pays 1")
    rewards: list[str] | None = option(None, "instead: what each arm pays", metavar="COLUMN", nargs="+")
    arm: str | None = option(None, "instead, of a log: column of the arm that was chosen")
    reward: str | None = option(None, "and of what it paid")
    steps: int = option(5000, "rounds of a run", least=1)
    runs: int = option(10, "each in another order, and with another seed", least=1)
    change: bool = option(False, "the best arms change half-way")
    hidden: list[int] = option([50], _HIDDEN, nargs="*")
    all_arms: bool = option(False, "warm up on the rewards of all arms: published protocol, not honest")
    raw_rewards: bool = option(False, "do not scale rewards by those of the warm-up", later=True)
    arms: str | None = option(None, "features of arms: their names in the first column; for --encoding concatenated or "
        "block", reads="file", later=True)  # fmt: skip
    available: str | None = option(None, "of a log: column of the arms that could be chosen, with | between",
        later=True)  # fmt: skip
    missing_rewards: str = option("refuse", "rewards of a log that never came: drop their rows, or count zero",
        choices=("refuse", "drop", "zero"), later=True)  # fmt: skip
    delay: int = option(0, "rounds before a reward is learnt", least=0, later=True)
    propensities: bool = option(False, "write contexts, choices and their probabilities, for --evaluate", later=True)
    draws: int = option(1000, "by which probabilities of thompson are estimated", least=1, later=True)
    evaluate: str | None = option(None, "instead of --data: what AGENT, or --policy, would have earned in a log; its "
        "columns --arm and --reward are `arm` and `reward` unless given", reads="file", later=True)  # fmt: skip
    propensity: str = option("propensity", "of --evaluate: column of the probability of the choice", later=True)
    policy: str | None = option(None, "of --evaluate: beginning of the names of columns with the probability of each "
        "arm under a policy, before the arm's name", metavar="PREFIX", later=True)  # fmt: skip
    first: float = option(0.5, "of --evaluate: share of rows that the agent learns from; the others are judged",
        least=0, most=1, later=True)  # fmt: skip
    level: float = option(0.95, "of --evaluate: of the intervals", later=True)
    bootstrap: int = option(0, "of --evaluate: draws of the log for intervals; 0: by the normal law", least=0,
        later=True)  # fmt: skip
    switch: float | None = option(None, "of --evaluate: largest weight of switch-dr; default: without", later=True)

    def check(self) -> None:
        """Refuse a bandit without data, or with two kinds of them."""
        if self.evaluate:
            if self.data or self.rewards or self.target != "target" or self.change or self.all_arms or self.delay:
                raise ValueError(
                    "expected --evaluate LOG with --arm, --reward and --propensity, and none of --data, --target, "
                    "--rewards, --change, --all_arms and --delay"
                )
            return
        if self.policy is not None:
            raise ValueError("expected --policy beside --evaluate LOG")
        if not self.data:
            raise ValueError("expected --data: " + ", ".join((*names.BANDITS, *names.BANDIT_TABLES)) + ", or a file")


@dataclass(frozen=True, kw_only=True)
class Optimise(BeliefSettings, SeedOptions, RunOptions):
    """Look for the least value of a function by draws from a network's belief (see docs/optimisation.md)."""

    function: str = option("", "one of {FUNCTIONS}", place="FUNCTION", nargs="?")
    evaluations: int = option(100, "in all, of FUNCTION", least=1)
    initial: int = option(10, "Sobol points to begin with", least=2)
    trials: str | None = option(None, "instead of FUNCTION: CSV that you fill in; the next points are new rows")
    bounds: list[str] = option(
        [],
        "columns of the file; :log behind it where factors count, :whole for whole numbers; NAME:WORD|WORD for choices",
        metavar="NAME:LOW:HIGH",
        nargs="+",
    )
    objectives: list[str] = option(["value"], "columns of the file that shall be small; default: value",
        metavar="NAME", nargs="+", later=True)  # fmt: skip
    limits: list[str] = option([], "columns of the file, and the largest number that each may have",
        metavar="NAME:MOST", nargs="+", later=True)  # fmt: skip
    acquisition: str = option("mixed", "thompson: the least of a draw; ei: expected improvement under a Gaussian "
        "process; mixed: both in turn", choices=("thompson", "ei", "mixed"), later=True)  # fmt: skip
    points: int = option(1, "how many points of the file are next", least=1)
    maximise: bool = option(False, "look for the largest values, of the file")
    learner: str = option("vd-ekf", "{OF_NUMBERS}")
    hidden: list[int] = option([300], "widths of hidden layers", nargs="+")
    scale: float = option(2.0, "of the first layer: larger for functions that bend more")
    noise: float = option(1e-3, "variance of standardised values around the function")
    patience: int = option(6, "points that are not better, after which the trust region halves", least=1)
    neighbours: int = option(20, "values that the surrogate is fitted to, at least", least=2)

    def check(self) -> None:
        """Refuse a function together with a table, or neither."""
        if self.trials is not None or self.bounds:
            if self.function or self.output or not (self.trials and self.bounds):
                raise ValueError(
                    "expected --trials FILE and --bounds NAME:LOW:HIGH .. together, and no function or --output"
                )
        elif self.limits or self.objectives != ["value"]:
            raise ValueError("expected --limits and --objectives beside --trials FILE, whose columns they name")
        elif not self.function:
            raise ValueError(f"expected a function ({', '.join(names.FUNCTIONS)}), --trials FILE or --resume RUN")
        elif self.function not in names.FUNCTIONS:
            raise ValueError(parsing.unknown("function", self.function, names.FUNCTIONS))
        if self.learner not in names.OF_NUMBERS:
            raise ValueError(f"--learner: {parsing.unknown('learner', self.learner, names.OF_NUMBERS)}")


@dataclass(frozen=True, kw_only=True)
class Tune(Command):
    """Look for hyperparameters by Optuna, on windows before the test part."""

    model: str = option(text="{MODELS}", place="MODEL", choices="MODELS")
    trials: int = option(20, "in all, with those of an earlier call", least=1)
    study: str = option(text="goes on where it stopped", metavar="FOLDER")
    space: str | None = option(None, "YAML: hyperparameter -> list of choices, or {{low, high, log}}", metavar="FILE")
    validation_windows: int = option(3, "before the test part, to score on", least=1)


@dataclass(frozen=True)
class Tuning:
    """A call of `tune`: its own options, and those of the training that is tried."""

    own: Tune
    training: train_parser.Training


RECORDS: dict[str, type[Command]] = {
    "forecast": Forecast,
    "bucket": Bucket,
    "live init": LiveInit,
    "live serve": LiveServe,
    "evaluate": Evaluate,
    "compare": Compare,
    "predict": Predict,
    "impute": Impute,
    "anomalies": Anomalies,
    "explain": Explain,
    "news": News,
    "regimes": Regimes,
    "impact": Impact,
    "export": Export,
    "stream": Stream,
    "bandit": Bandit,
    "optimise": Optimise,
}
LIVE = ("init", "serve")
NAMES = tuple(dict.fromkeys(name.split()[0] for name in (*RECORDS, "train", "tune")))
_LIVE = "Keep beliefs of a trained model current behind a service (see docs/howto/serve.md)."


def parsed(name: str, arguments: Sequence[str]) -> Command | train_parser.Training | Tuning:
    """Return the options of a command from its arguments; those of `live` begin with a name, too.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If a number is out of its range, or options do not go together.
        FileNotFoundError: If a file or a run is missing.
    """
    parsing.refuse_renamed(name, arguments)
    if name == "train":
        return train_parser.parsed(arguments)
    if name == "tune":  # what it does not know is for `train`
        own, rest = tune().parse_known_args(list(arguments))
        records.check_ranges(vars(own), Tune)
        return Tuning(Tune(**vars(own)), train_parser.parsed([own.model, *rest]))
    if name == "live":
        if not arguments or arguments[0] not in LIVE:
            parser_of(name).parse_args(list(arguments))
            raise ValueError(f"expected `{parsing.typed('live')} init` or `{parsing.typed('live')} serve`")
        name, arguments = f"live {arguments[0]}", arguments[1:]
    return RECORDS[name].parsed(name, arguments)


class _Parser(PlainParser):
    def error(self, message: str) -> NoReturn:  # where argparse would write its usage and end the process
        raise ArgumentError(None, message)


def tune() -> PlainParser:
    """Return the own options of `tsforecast tune`; all others are those of `train`."""
    command = _Parser(
        prog=parsing.typed("tune"),
        description=Tune.__doc__,
        epilog="All other options are those of `tsforecast train MODEL`: what is not tried stays as they say.",
        allow_abbrev=False,
    )
    records.add_options(command, Tune)
    return command


def parser_of(name: str, arguments: Sequence[str] = names.TRAINED) -> Any:
    """Return the parser of a command.

    Args:
        name: Of the command.
        arguments: Of the command. `train` has the options of the models that they name.
    """
    if name == "train":
        return train_parser.parser(train_parser.named(arguments))
    if name == "tune":
        return tune()
    if name == "live" and arguments[:1] and arguments[0] in LIVE:
        name = f"live {arguments[0]}"
    if name == "live":
        command = parsing.command_parser(name, _LIVE)
        commands = command.add_subcommands(required=False, dest="live", metavar="init|serve")
        for part in LIVE:
            own = parser_of(f"live {part}")
            commands.add_subcommand(part, own, help=RECORDS[f"live {part}"].__doc__)
        return command
    return records.parser_of(name, RECORDS[name])
