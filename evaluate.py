"""Scores a trained forecaster: `python evaluate.py RUN`; `python evaluate.py --help` says more."""

import sys

from tsforecast.cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
