"""The description of a store, as its file store.json says."""

import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tsforecast.data.calendar.stamps import BEGINNING, saved_place
from tsforecast.io.reading import has_fields, read_json

STORE = "store.json"
FORMAT = 3
_FIELDS = {
    "identity": str, "predictor": str, "freq": str, "prediction_length": int, "targets": list[str], "warm_up": int,
    "seed": int,
}  # fmt: skip


@dataclass(frozen=True)
class Description:
    """The description of a store."""

    identity: str  # 32 hexadecimal digits, drawn when it began
    predictor: str  # checksum of the folder of the model
    freq: str  # frequency of the series
    prediction_length: int  # most steps of a forecast
    targets: list[str]  # names of the targets
    warm_up: int  # values from which on a series that begins keeps its scale
    seed: int  # of what is drawn
    # Options of `Adaptation` by which the model goes on learning; empty where it does not.
    adaptation: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT  # of the folder
    stamp: list[Any] = field(default_factory=lambda: list(BEGINNING))  # the `Place` of time stamps in their steps

    @property
    def key(self) -> bytes:
        """Return the identity as its files have it."""
        return bytes.fromhex(self.identity)


def read_description(path: Path) -> Description:
    """Return the description of a store; a ValueError if it is not complete, or of another format."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no store {path}")
    if not (path / STORE).is_file():
        raise ValueError(f"{path} is no store, or not finished: it has no {STORE}; run `tsforecast live init` (again)")
    saved = read_json(path / STORE)
    if isinstance(saved, dict) and isinstance(saved.get("format"), int) and saved["format"] != FORMAT:
        raise ValueError(
            f"{path}: expected format {FORMAT}, got {saved['format']}; make the store anew, or serve it with the "
            "version that wrote it"
        )
    is_whole = has_fields(saved, {"format": int} | _FIELDS) and isinstance(saved.get("adaptation"), dict)
    if not is_whole or not re.fullmatch("[0-9a-f]{32}", saved["identity"]):
        raise ValueError(f"{path / STORE} is damaged: expected {', '.join(_FIELDS)}; restore the file")
    stamp = list(saved_place(saved.get("stamp", list(BEGINNING))))
    return Description(**{name: saved[name] for name in (*_FIELDS, "adaptation", "format")}, stamp=stamp)


def new_identity() -> str:
    """Return the identity of a store that begins."""
    return secrets.token_hex(16)
