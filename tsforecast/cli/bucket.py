"""`tsforecast bucket INPUT OUT`: tables of any size into a folder of buckets."""

import logging

from tsforecast.cli import options
from tsforecast.cli.commands import Bucket
from tsforecast.data.buckets.bucketing import make_buckets

log = logging.getLogger(__name__)


def run(chosen: Bucket) -> int:
    """Writes buckets, or goes on writing them."""
    survey = make_buckets(chosen.inputs, chosen.out, chosen.buckets, chosen.freq, options.columns(vars(chosen)))
    told = chosen.out, survey.series, survey.rows, len(survey.buckets), survey.shortest, survey.longest, survey.freq
    log.info("%s: %d series, %d rows in %d buckets, %d to %d steps of %r", *told)
    return 0
