#!/usr/bin/env bash
# Every model on every set of video, trained for the same time on one core: one line of experiments/video/results/video.csv for each
# finished run. Runs that are in the table already are skipped, so this goes on where it was stopped.
#
#   experiments/video/run.sh                                     all of it: 12 runs of twenty minutes, some four hours
#   experiments/video/run.sh --recipes paper --budget 14400      the papers' sizes, for four hours each
#   experiments/video/run.sh --datasets box --models arsgls      a part of it; see experiments/video/run.sh --help
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=$(command -v python3 || command -v python) || {
    echo "error: no Python in .venv or on the path; name one: PYTHON=/path/to/python $0" >&2
    exit 2
}
exec "$python" experiments/video/run.py "$@"
