"""The commands by name: what each takes, a record each. Nothing here imports torch: help and errors come at once."""

from dataclasses import dataclass

from tsforecast.cli.learning_commands import Bandit, Optimise, Stream
from tsforecast.cli.option_groups import (
    AnswerOptions,
    BucketOptions,
    ColumnOptions,
    DeviceOptions,
    ForecastOptions,
    HierarchyOptions,
    LearningOptions,
    LengthOptions,
    SeedOptions,
    SourceOptions,
    ThreadOptions,
    TrainedRun,
)
from tsforecast.cli.records import Command, option

_FREQ = "frequency, such as h, D, MS; default: inferred"
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
    horizon: int | None = option(None, "steps of a forecast; default: as far as covariates reach, or by frequency",
        least=1)  # fmt: skip
    output: str | None = option(None, ".csv, .csv.gz or .parquet; default: FILE-forecasts.csv here", metavar="FILE",
        writes="file")  # fmt: skip
    quantiles: str = option("0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9", "levels between 0 and 1, with commas between",
        metavar="LEVELS")  # fmt: skip
    freq: str | None = option(None, _FREQ)
    start: str = option("common", "behind the series that ends last, or each series' own", choices=("common", "each"))
    keep: str | None = option(None, "also write a run folder, for predict, evaluate and others", metavar="RUN")
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
        metavar="FILE", writes="file",
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
    output: str = option("comparison.html", "the page; a CSV file goes beside it", metavar="FILE", writes="file")


@dataclass(frozen=True, kw_only=True)
class Predict(LengthOptions, HierarchyOptions, AnswerOptions):
    """Forecast beyond the end of a file, or of the data that the model was trained with."""

    known: str | None = option(
        None,
        "what-if: item, time stamp, target values taken as given, covariates; NAME_low, NAME_high of a range",
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
        None, "for the table and pictures; default: anomalies, of a RUN below it", metavar="DIR", writes="folder"
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

    output: str | None = option(None, "of a table and pictures; default: below the run", metavar="FOLDER",
        writes="folder")  # fmt: skip
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

    output: str | None = option(None, "to write tables and pictures into; default: RUN/regimes", metavar="FOLDER",
        writes="folder")  # fmt: skip
    level: float = option(0.9, "probability of the intervals of changes")
    last: int | None = option(None, "steps at the end of each series that are read; default: all")
    plot_series: int = option(4, _DRAWN, least=0)


@dataclass(frozen=True, kw_only=True)
class Impact(SeedOptions, ThreadOptions, ColumnOptions):
    """Estimate what an intervention did to series; --covariates are the controls."""

    data: str = option(text="CSV, Parquet or GluonTS folder (see docs/data.md)", place="DATA", reads="file")
    output: str = option("impact", "of tables and a picture", metavar="FOLDER", writes="folder")
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
