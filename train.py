"""Trains a forecaster: `python train.py issm --dataset exchange`; `python train.py --help` says more."""

import sys

from tsforecast.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
