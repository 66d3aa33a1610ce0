"""The Numenta Anomaly Benchmark: 58 series with labelled windows, out of two tar files or a copy of its repository.

    python datasets/nab.py nab_real.tar.gz nab_artificial.tar.gz --output outputs/nab
    python datasets/nab.py --checkout NAB --output outputs/nab

Both have data/*/*.csv and labels/combined_windows.json of numenta/NAB (MIT); with results/final_results.json they have
the published scores. The folder that is written has the same files, checked: all 58 series, 116 windows that begin and
end at records, finite values. Beside them is nyc-taxi-daily.csv, daily sums of the series of taxi passengers, for
the examples.
"""

import argparse
import pathlib
import sys
import tarfile

import pandas as pd

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))

from experiments.nab.benchmark import LABELS, PUBLISHED, read_benchmark
from tsforecast.io.files import replace_file

FILES, WINDOWS, RECORDS = 58, 116, 365_558
TAXI, DAILY = "realKnownCause/nyc_taxi.csv", "nyc-taxi-daily.csv"
_LARGEST = 50_000_000  # bytes of a member


def members(paths: list[pathlib.Path], checkout: pathlib.Path | None) -> dict[str, bytes]:
    """The contents of all CSV and JSON files by their path in the repository.

    Raises:
        ValueError: If nothing is given, or a member is larger than any of the benchmark.
        FileNotFoundError: If there is no such file.
    """
    if not paths and checkout is None:
        raise ValueError("expected tar files, or --checkout FOLDER")
    found: dict[str, bytes] = {}
    for path in paths:
        with tarfile.open(path) as archive:
            for member in archive:
                place = member.name.partition("nab/")[2] or member.name
                if member.isfile() and place.endswith((".csv", ".json")):
                    if member.size > _LARGEST:
                        raise ValueError(f"{path}: {member.name} has {member.size} bytes, more than any file of NAB")
                    stream = archive.extractfile(member)
                    assert stream is not None
                    found[place] = stream.read()
    if checkout is not None:
        for place in [LABELS, PUBLISHED]:
            found[place] = (checkout / place).read_bytes()
        for path in sorted((checkout / "data").glob("*/*.csv")):
            found[path.relative_to(checkout).as_posix()] = path.read_bytes()
    return found


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archives", nargs="*", type=pathlib.Path, help="tar files of the repository")
    parser.add_argument("--checkout", type=pathlib.Path, help="a copy of the repository, instead of tar files")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("outputs/nab"), help="folder to write")
    options = parser.parse_args()
    for place, content in members(options.archives, options.checkout).items():
        path = options.output / place
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as temporary:
            temporary.write_bytes(content)
    series = read_benchmark(options.output)
    counts = len(series), sum(len(s.windows) for s in series.values()), sum(len(s.values) for s in series.values())
    if counts != (FILES, WINDOWS, RECORDS):
        raise SystemExit(f"expected {(FILES, WINDOWS, RECORDS)} series, windows and records, got {counts}")
    taxi = pd.Series(series[TAXI].values, pd.DatetimeIndex(series[TAXI].timestamps)).resample("D").sum()
    with replace_file(options.output / DAILY) as temporary:
        taxi.rename("passengers").rename_axis("date").to_csv(temporary)
    print(f"{options.output}: {counts[0]} series, {counts[1]} windows, {counts[2]} records; {DAILY}")


if __name__ == "__main__":
    main()
