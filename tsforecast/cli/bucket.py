"""`tsforecast bucket INPUT OUT`: tables of any size into a folder of buckets."""

import logging

from tsforecast.cli import options
from tsforecast.cli.commands import Bucket
from tsforecast.data.buckets.bucketing import make_buckets
from tsforecast.wording import counted

log = logging.getLogger(__name__)


def run(chosen: Bucket) -> int:
    """Writes buckets, or goes on writing them."""
    survey = make_buckets(chosen.inputs, chosen.out, chosen.buckets, chosen.freq, options.columns(vars(chosen)))
    buckets, shortest, longest = counted(len(survey.buckets), "bucket"), survey.shortest, survey.longest
    steps = counted(longest, "step") if shortest == longest else f"{shortest} to {longest} steps"
    log.info(
        "%s: %d series, %d rows in %s, %s of %r", chosen.out, survey.series, survey.rows, buckets, steps, survey.freq
    )
    return 0
