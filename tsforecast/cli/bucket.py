"""`tsforecast bucket INPUT OUT`: tables of any size into a folder of buckets."""

import logging
from collections.abc import Sequence

from tsforecast.cli import options, parsers, parsing
from tsforecast.data.buckets.bucketing import make_buckets

log = logging.getLogger(__name__)


def run(argv: Sequence[str]) -> int:
    """Writes buckets, or goes on writing them.

    Args:
        argv: Arguments of the command.

    Raises:
        ArgumentError: If the arguments are not understood.
        ValueError: If the inputs, an option or the folder are not as expected.
        FileNotFoundError: If a file is missing.
        OSError: If a file can not be written.
    """
    chosen = parsers.bucket().parse_args(list(argv))
    parsing.check_ranges(chosen)
    survey = make_buckets(chosen.inputs, chosen.out, chosen.buckets, chosen.freq, options.columns(chosen))
    told = chosen.out, survey.series, survey.rows, len(survey.buckets), survey.shortest, survey.longest, survey.freq
    log.info("%s: %d series, %d rows in %d buckets, %d to %d steps of %r", *told)
    return 0
