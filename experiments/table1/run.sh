#!/usr/bin/env bash
# Every model on every data set, both protocols: one line of experiments/table1/results/table1.csv for each finished run and protocol.
# Runs that are in the table already are skipped, so this goes on where it was stopped.
#
#   experiments/table1/run.sh                                  all of it, many hours; the part for
#   experiments/table1/run.sh --recipes best --models issm gls rsgls-issm arsgls        takes about three on two cores
#   experiments/table1/run.sh --recipes baseline               DeepAR and classics: about an hour on one core
#   experiments/table1/run.sh --datasets exchange --seeds 0    a part of it; see experiments/table1/run.sh --help
set -euo pipefail
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
[ -x "$(command -v "$python")" ] || python=$(command -v python3 || command -v python) || {
    echo "error: no Python in .venv or on the path; name one: PYTHON=/path/to/python $0" >&2
    exit 2
}
exec "$python" experiments/table1/run.py "$@"
