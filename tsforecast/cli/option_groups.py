"""Groups of options that commands share, as records. Nothing here imports torch."""

import argparse
from dataclasses import dataclass

from tsforecast.cli import names, parsing
from tsforecast.cli.records import Command, option
from tsforecast.settings import AdaptationSettings

# Several names have no type: jsonargparse would refuse a single one, without a list around it, in a YAML file.
Names = list[str] | str | None


@dataclass(frozen=True, kw_only=True)
class ColumnOptions(Command):
    """Columns of the data (see docs/data.md)."""

    item: Names = option(None, "name of the series, or several columns that name it together; default: item_id, "
        "unique_id, sku, store, .., or what tells the series apart; one series if there is none", nargs="+",
        also="item_column")  # fmt: skip
    timestamp: Names = option(None, "time stamps, or several columns that are joined, such as year month; default: "
        "timestamp, date, ds, month, ..", nargs="+", also="timestamp_column")  # fmt: skip
    target: Names = option(None, "what to forecast, one or several; default: target, value, y, sales, .., or the only "
        "one left", nargs="+", also="target_column")  # fmt: skip
    covariates: Names = option(None, "numbers known ahead of time", nargs="+")
    past_covariates: Names = option(None, "numbers whose past alone is known, such as weather as observed", nargs="+")
    static_categories: Names = option(None, "names constant within a series", nargs="+")
    static_reals: Names = option(None, "numbers constant within a series", nargs="+")
    timestamp_format: str | None = option(None, "format of time stamps, such as %d/%m/%Y; default: what fits all")
    decimal: str | None = option(None, "decimal sign; default: found from the cells")
    holidays: Names = option(None, "country whose public holidays become covariates, such as US or AU-VIC, also of "
        "--dataset; their effects are chosen, or follow", nargs="+")  # fmt: skip
    wide: bool = option(False, "one column for each series, beside time stamps; dates across the top need no option")


COLUMNS = tuple(ColumnOptions.__annotations__)


@dataclass(frozen=True, kw_only=True)
class DataOptions(ColumnOptions):
    """Data: a set by name, or a file."""

    dataset: str | None = option(None, "one of {DATASETS}", metavar="NAME")
    data: str | None = option(None, "CSV, Parquet, a GluonTS folder or buckets (see docs/data.md)", metavar="FILE")
    freq: str | None = option(None, "frequency of --data, such as h, D, MS; default: inferred")
    prediction_length: int | None = option(None, "steps of a forecast of --data; default: by frequency", least=1)
    irregular: bool = option(False, "time stamps of --data need no grid (see docs/howto/irregular.md)")
    horizon: str | None = option(None, "time of a forecast with --irregular, such as 6h; default: a share")
    windows: int | None = option(None, "test windows, 0 for none; default: 5 or 7, or what fits", least=0)
    unit: str | None = option(None, "in which the target of --data is measured, for pictures")
    # Read from files of options of version 0.2 alone: what it asked for is the default now.
    drop_unusable: bool = option(False, argparse.SUPPRESS)


@dataclass(frozen=True, kw_only=True)
class ThreadOptions(Command):
    """Processor."""

    threads: int | None = option(None, "of the CPU; default: torch's choice", least=1)


@dataclass(frozen=True, kw_only=True)
class DeviceOptions(ThreadOptions):
    """Device."""

    device: str = option("auto", "auto, cpu, cuda, ..")


@dataclass(frozen=True, kw_only=True)
class TrainedRun(DeviceOptions):
    """A trained model."""

    run: str = option(text="run folder of `tsforecast train`", place="RUN", reads="run")


@dataclass(frozen=True, kw_only=True)
class SeedOptions(Command):
    """Chance."""

    seed: int = option(0, "of all that is random", least=0, most=2**32 - 1)


@dataclass(frozen=True, kw_only=True)
class LengthOptions(Command):
    """Length."""

    prediction_length: int | None = option(None, "steps of a forecast; default: as in training", least=1)


@dataclass(frozen=True, kw_only=True)
class SourceOptions(ColumnOptions):
    """Data."""

    data: str | None = option(None, "CSV, Parquet, GluonTS folder or buckets; default: the run's", reads="file")


@dataclass(frozen=True, kw_only=True)
class HierarchyOptions(Command):
    """Sums (see docs/howto/hierarchies.md)."""

    hierarchy: Names = option(None, "columns that nest, from the top, such as region/shop, several such groups that "
        "cross, or a .csv file of a summing matrix: forecasts of all sums, which add up", nargs="+")  # fmt: skip
    aggregate: Names = option(None, "month, quarter, ..: also forecasts of sums over whole ones, to which steps add up",
        nargs="+")  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ForecastOptions(SeedOptions, TrainedRun):
    """Forecasts."""

    num_samples: int = option(100, "sample paths of a forecast", least=1)


@dataclass(frozen=True, kw_only=True)
class BucketOptions(Command):
    """Buckets into a folder (see docs/howto/many.md)."""

    workers: int = option(1, "processes, of one thread each", least=1)
    engine: str = option("local", "local or ray", choices="ENGINES")
    address: str | None = option(None, "of a Ray cluster; default: one on this machine")


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(BucketOptions, ForecastOptions, SourceOptions):
    """What is written."""

    output: str = option(text=".csv, .csv.gz or .parquet; of buckets also a folder", metavar="FILE")
    quantiles: str = option("0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9", "levels between 0 and 1, with commas between",
        metavar="LEVELS")  # fmt: skip
    paths: bool = option(False, "write joint sample paths instead of mean and quantiles")
    at: str | None = option(None, "of a run of `train --irregular`: time stamps, perhaps by item", reads="file")
    every: str | None = option(None, "of such a run: distance of the times, such as 10min; default: a gap")


@dataclass(frozen=True, kw_only=True)
class LearningOptions(AdaptationSettings, Command):
    """Learning on (see docs/howto/live.md)."""

    adapt: str | None = option(None, "a model that learns after every period as long as a forecast: {OF_NUMBERS}",
        metavar="LEARNER")  # fmt: skip

    def check(self) -> None:
        """Refuse a learner that there is not."""
        if self.adapt not in (None, *names.LEARNERS):
            raise ValueError(f"--adapt: {parsing.unknown('learner', self.adapt, names.LEARNERS)}")


@dataclass(frozen=True, kw_only=True)
class RunOptions(Command):
    """Run."""

    output: str | None = option(None, "run folder; default: a new one in outputs", metavar="RUN")
    resume: str | None = option(None, "go on with a run that was stopped", metavar="RUN", reads="run")


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(SeedOptions, ThreadOptions, RunOptions):
    """Training."""

    max_epochs: int = option(0, "length of the training; 0 of a bank: its parameters stay as they begin")
    gradient_clip_val: float = option(10.0, "largest norm of the gradient; 0: any", least=0)
    accelerator: str = option("auto", "auto, cpu, gpu or another name of Lightning's")
    devices: int = option(1, "of the accelerator, a process each: GPUs, or CPUs", least=1)
    validation: bool = option(False, "hold out the last window before the test part and keep the best epoch")
