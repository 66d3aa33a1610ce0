"""The record of a run, run.json: what it must have, and what of it is read."""

import platform
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tsforecast.cli import parsing
from tsforecast.cli.option_groups import HierarchyOptions
from tsforecast.cli.provenance import commit
from tsforecast.data import Columns
from tsforecast.data.tables.dataframes import columns_of
from tsforecast.io.files import write_json
from tsforecast.io.reading import fits, read_json

FORMAT = 1  # of run folders; raised when older ones can no longer be read
RECORD = "run.json"
_PACKAGES = ("tsforecast", "torch", "gluonts", "lightning", "numpy", "pandas")


def new_record(kind: str, contents: dict[str, Any], argv: Sequence[str]) -> dict[str, Any]:
    """Return the contents of run.json of a run that begins now."""
    return {
        "format": FORMAT,
        kind: contents,
        "versions": versions(),
        "commit": commit(),
        "created": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "command": shlex.join(["tsforecast", kind, *argv]),
    }


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Writes run.json, whole or not at all."""
    write_json(folder / RECORD, record)


# What a record says of each kind of run that a command reads.
_KINDS: dict[str, dict[str, Any]] = {
    "train": {
        "model": str, "dataset": str, "split": dict, "series": int, "categories": dict[str, list[str]],
        "fingerprint": str, "command": str, "versions": dict[str, str], "folder": str,
        "columns": dict[str, list[str]] | None,
    },
    "stream": {"stream": dict},
    "bandit": {"bandit": dict},
    "optimise": {"optimise": dict},
}  # fmt: skip
_SUMS = tuple(HierarchyOptions.__annotations__)
_SPLIT = {"freq": str, "prediction_length": int, "windows": int}


def read_record(folder: Path, kind: str | None = None) -> dict[str, Any]:
    """Contents of run.json, with the keys of a command; None for any."""
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no run folder {folder}")
    path = folder / RECORD
    if not path.is_file():
        raise ValueError(f"{folder} is no run folder: it has no {RECORD}; expected a folder that `train` has made")
    try:
        record = read_json(path)
        found = record["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged; train again into a new folder") from error
    if found != FORMAT:
        versions_ = record.get("versions")
        made = f", {versions_.get('tsforecast')!r}" if isinstance(versions_, dict) else ""
        raise ValueError(
            f"{path}: expected format {FORMAT}, got {found!r}; read this run with the version of tsforecast that made "
            f"it{made}"
        )
    if kind is not None:
        _check_kind(folder, record, kind)
    return record


def _check_kind(folder: Path, record: dict[str, Any], kind: str) -> None:
    """Refuses the record of a run of another command, or one that lacks something."""
    made = next((name for name in ("stream", "bandit", "optimise") if name in record), "train")
    if kind != made and made != "train":
        raise ValueError(
            f"{folder} is a run of `tsforecast {made}`, whose scores are in its scores.json; "
            f"`tsforecast {made} --resume {folder}` goes on with it"
        )
    if kind != made:
        raise ValueError(
            f"{folder} is no run of `tsforecast {kind}`; `{parsing.typed('train')} --resume {folder}` goes on with it"
        )
    expected = _KINDS[kind]
    wrong = [name for name, type_ in expected.items() if not _is(record.get(name), type_)]
    if not wrong and kind == "train":
        wrong = [f"split.{name}" for name, type_ in _SPLIT.items() if not _is(record["split"].get(name), type_)]
    if not wrong and not fits(record.get("sums", {}), dict[str, list[str]]):
        wrong = ["sums"]
    if not wrong and kind == "bandit" and not isinstance(record["bandit"].get("options"), dict):
        wrong = ["bandit.options"]
    if not wrong and kind == "stream":
        parts = {"options": dict, "classes": int}
        wrong = [f"stream.{name}" for name, type_ in parts.items() if not _is(record["stream"].get(name), type_)]
    if wrong:
        raise ValueError(
            f"{folder / RECORD} is damaged: expected {', '.join(wrong)}, which it lacks or has otherwise; train again "
            "into a new folder"
        )


def _is(value: Any, type_: Any) -> bool:
    return isinstance(value, dict) if type_ is dict else fits(value, type_)


def sums_of(chosen: HierarchyOptions) -> dict[str, Any]:
    """Return what a record has of the sums that a command forecasts; nothing where there are none."""
    given = {name: getattr(chosen, name) for name in _SUMS}
    found = {name: [one] if isinstance(one, str) else [*one] for name, one in given.items() if one}
    return {"sums": found} if found else {}


def is_irregular(record: dict[str, Any]) -> bool:
    """Whether a run is one of series with clocks of their own."""
    return "gap" in record["split"]


def columns_of_run(record: Mapping[str, Any]) -> Columns | None:
    """What the columns of a run's table were found to be; None where it has none."""
    return None if record.get("columns") is None else columns_of(record["columns"])


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that results depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
