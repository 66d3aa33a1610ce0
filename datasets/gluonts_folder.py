"""Any data set in GluonTS' layout (metadata.json, train/data.json[.gz], test/data.json[.gz]) as a prepared set.

    python datasets/gluonts_folder.py electricity_nips --name electricity-nips

A test part that repeats every series for each rolling window is reduced to the longest version of each series, and the
number of windows is found from it. What the metadata lack is given by options. Afterwards `--dataset NAME` finds the
set. An archive is unpacked first.
"""

from preparation import preparation_parser, prepare

from tsforecast.data.folder import read_folder


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = preparation_parser(__doc__, None, "folder with train and test, or a file of JSON lines")
    parser.add_argument("--freq", help="frequency, e.g. h or D (default: that of the metadata)")
    parser.add_argument("--prediction-length", type=int, help="steps of a window (default: found in the data)")
    parser.add_argument("--windows", type=int, help="number of test windows (default: found in the data)")
    options = parser.parse_args(arguments)
    prepare(
        options,
        lambda: read_folder(options.source, options.freq, options.prediction_length, options.windows, options.name),
    )


if __name__ == "__main__":
    main()
