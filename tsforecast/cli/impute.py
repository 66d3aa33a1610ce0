"""`tsforecast impute RUN`: missing values of a table, filled in given all that is there."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from tsforecast.cli import bulk_options, irregular, options, parsers, parsing, runs
from tsforecast.cli.train import settings
from tsforecast.data.buckets import is_buckets
from tsforecast.forecasting.predictor import load_predictor
from tsforecast.forecasting.requests import Imputations
from tsforecast.progress import follow

log = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Writes every step of all series: values as they are, and what stands in for those that are missing.

    Args:
        argv: Arguments of the command.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If the run, the data or an option is not as expected.
        FileNotFoundError: If a file or folder is missing.
    """
    chosen = parsers.impute().parse_args(list(argv))
    parsing.check_ranges(chosen)
    levels, out = bulk_options.levels(chosen.quantiles), Path(chosen.out)
    folder, record = options.trained_run(chosen)
    trained = settings(folder, record)
    if irregular.is_irregular(record):
        return irregular.answer("impute", chosen, folder, trained)
    irregular.refuse_times(chosen)
    if not bulk_options.is_table(chosen):
        data, common = bulk_options.buckets_of(chosen, record, trained)
        kept = None if chosen.paths else levels
        request = Imputations(**common, num_samples=chosen.num_samples, seed=chosen.seed, levels=kept)
        bulk_options.process(chosen, folder, data, request)
        return 0
    columns = options.columns(chosen, runs.columns_of_run(record) or options.columns(trained))
    data = chosen.data or trained.data
    if data is not None and is_buckets(Path(data)):
        raise ValueError(f"{data} are buckets: expected a folder as --out, got the file {out.name!r}")
    task = options.whole_series(chosen, record, trained, columns)
    predictor = load_predictor(folder / runs.PREDICTOR, device=chosen.device)
    torch.manual_seed(chosen.seed)
    filled = predictor.impute(task.entries, chosen.num_samples)
    shown = follow(filled, "imputed", len(task.entries), "series")
    bulk_options.write(shown, None if chosen.paths else levels, columns.targets, out)
    log.info("%s: %d series, every step of them", out, len(task.entries))
    return 0
