"""The form of requests. It is checked without the model, so that another process can do it: see `reader.py`."""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import orjson
from pydantic import BeforeValidator, ConfigDict, FailFast, Field, SkipValidation, TypeAdapter, ValidationError
from typing_extensions import TypedDict

_EXACT = ConfigDict(extra="forbid", strict=True)
MOST_LETTERS = 200
MOST_FAULTS = 10  # of a request that an answer names
TOGETHER = 500  # observations that are looked at before other requests have their turns

_First = FailFast()  # the first fault of a list is told: a list of nothing but faults costs no more
MOST_SERIES = 1000  # of a request for forecasts
_MOST_TARGETS = 1000


def _at_most(count: int, things: str) -> BeforeValidator:
    """Return a validator that refuses an object with many names before each is looked at."""

    def check(given: Any) -> Any:
        if isinstance(given, dict) and len(given) > count:
            raise ValueError(f"expected at most {count} {things}, got {len(given)}")
        return given

    return BeforeValidator(check)


_Few = _at_most(MOST_SERIES, "series")
Known = _at_most(20, "names")  # of an object whose names are known: each other one would be a fault

Name = Annotated[str, Field(min_length=1, max_length=MOST_LETTERS, description="name of a series")]
Number = Annotated[float, Field(allow_inf_nan=False)]
Value = Annotated[
    Number | Annotated[list[Number | None], Field(max_length=_MOST_TARGETS)] | None,
    Field(description="one number, or one for each target; null where missing"),
]
Numbers = Annotated[list[Number], _First]
Values = Annotated[list[Value], _First]
Table = Annotated[list[Numbers], _First]


class Observation(TypedDict):
    """A new value of a series."""

    __pydantic_config__ = _EXACT  # pyright: ignore
    item: Name
    time: Annotated[str, Field(max_length=40, description="ISO 8601 without a zone; its period counts")]
    value: Value
    sequence: NotRequired[Annotated[int, Field(ge=0, lt=2**62, description="rises within a series")]]
    covariates: NotRequired[
        Annotated[list[Number], _First, Field(description="of this period, in a model with covariates")]
    ]


_FORM = TypeAdapter(Annotated[list[Annotated[Observation, Known]], _First])


class ForecastShape(TypedDict):
    """The shape of a forecast."""

    __pydantic_config__ = _EXACT  # pyright: ignore
    quantiles: NotRequired[Annotated[Numbers, Field(min_length=1, max_length=99)]]
    steps: NotRequired[Annotated[int, Field(ge=1, description="at most the prediction length, which is the default")]]


class ObservationBatch(TypedDict):
    """New values of many series."""

    __pydantic_config__ = _EXACT  # pyright: ignore
    observations: Annotated[list[Observation], SkipValidation]  # see `slices_of`
    forecast: NotRequired[
        Annotated[
            ForecastShape, Known, Field(description="forecasts of the series, each once, from behind their new values")
        ]
    ]


class ForecastRequest(ForecastShape):
    """A request for forecasts."""

    items: Annotated[list[Name], _First, Field(min_length=1)]
    paths: NotRequired[Annotated[int, Field(ge=0, le=1000, description="joint sample paths")]]
    known: NotRequired[
        Annotated[
            dict[Name, Annotated[list[Value], _First]],
            _Few,
            Field(description="what-if: future values taken as given, null where free"),
        ]
    ]
    covariates: NotRequired[
        Annotated[
            dict[Name, Annotated[list[Annotated[list[Number], _First]], _First]],
            _Few,
            Field(description="of each step, in a model with covariates"),
        ]
    ]


_BATCH, _REQUEST = TypeAdapter(Annotated[ObservationBatch, Known]), TypeAdapter(Annotated[ForecastRequest, Known])


class RefusedError(ValueError):
    """A request is not as expected.

    Args:
        status: Of the answer.
        detail: A text, or place and text of each fault that is told.
    """

    def __init__(self, status: int, detail: str | list[dict[str, Any]]) -> None:
        super().__init__(f"a request is refused with status {status}")
        self.status, self.detail = status, detail


@dataclass(frozen=True)
class Checked:
    """Observations in their form, a pickled list for each slice, which other requests do not wait for together."""

    slices: list[bytes]

    def __len__(self) -> int:
        return len(self.slices)


def read(path: str, body: bytes, most: int) -> Any:
    """Return the content of a body, with its form checked."""
    given = orjson.loads(body)
    try:
        if path != "/observations":
            return _REQUEST.validate_python(given)
        batch = _BATCH.validate_python(given)
    except ValidationError as error:
        raise RefusedError(422, _faults(error)) from error
    check_count(batch["observations"], most)
    return {**batch, "observations": Checked([pickle.dumps(some) for some in slices_of(batch["observations"])])}


def check_count(given: Any, most: int) -> None:
    """Raise a RefusedError for what is no list of observations, and for too many."""
    if not isinstance(given, list):
        raise RefusedError(422, [{"place": ["observations"], "fault": "Input should be a valid list"}])
    if len(given) > most:
        raise RefusedError(413, f"expected at most {most} observations, got {len(given)}")


def slices_of(given: Sequence[Observation] | Checked) -> Iterator[list[Observation]]:
    """Yield observations in their form, some at a time; a RefusedError at the first that lacks it."""
    if isinstance(given, Checked):
        yield from map(pickle.loads, given.slices)
        return
    for first in range(0, len(given), TOGETHER):
        try:
            yield _FORM.validate_python(given[first : first + TOGETHER], strict=True)
        except ValidationError as error:
            faults = _faults(error)
            place = first + faults[0]["place"][0]  # that of all faults: those behind it are not looked at
            faults = [{"place": ["observations", place, *one["place"][1:]], "fault": one["fault"]} for one in faults]
            if behind := len(given) - 1 - place:
                faults[-1]["fault"] += f"; the {behind} observations behind it were not looked at"
            raise RefusedError(422, faults) from error


def _faults(error: ValidationError) -> list[dict[str, Any]]:
    found = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_FAULTS]
    return [{"place": list(one["loc"]), "fault": one["msg"]} for one in found]
