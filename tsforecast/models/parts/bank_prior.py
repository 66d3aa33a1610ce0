"""What a bank has learnt on other people's series: where its parameters begin, by the frequency of the data.

The files in `tsforecast/models/priors` are made by `experiments/priors/run.py`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from tsforecast.io.tensors import load_tensors
from tsforecast.models.parts.bank_dynamics import BankDynamics
from tsforecast.nn import SeriesParameters

FOLDER = Path(__file__).parents[1] / "priors"
_LIKE = {"s": "min"}  # an hour of seconds has as many steps as a day of minutes
# Parameters of all models together: how far the likelihood is trusted, and how soon it is forgotten.
_COMMON = ("log_power", "log_memory", "logit_own", "log_volatility_memory")


def learnt(freq: str) -> dict[str, Any] | None:
    """Return what is known for a frequency, see `prior_of`; None where nothing is.

    Args:
        freq: Alias of a period, for example "h" or "15min".

    Raises:
        ValueError: If the file is damaged.
    """
    unit = freq.lstrip("0123456789").split("-")[0]
    path = FOLDER / f"{_LIKE.get(unit, unit)}.pt"
    if not path.is_file():
        return None
    prior = load_tensors(path)
    if unit in _LIKE:
        prior["structures"] = [one.replace("hour_of_day", "minute_of_hour") for one in prior["structures"]]
    return prior


def prior_of(dynamics: BankDynamics) -> dict[str, Any]:
    """Return the parameters of a trained bank, by structure and transformation, without those of categories."""
    state = {name: getattr(dynamics, name).detach().clone() for name in (*_COMMON, "log_prior", "log_shape")}
    for number, own in enumerate(_tables(dynamics)):
        state[f"population.{number}"] = own.population.detach().clone()
        state[f"deviation.{number}"] = own.categories[-1].detach().clone()
    return {"structures": _descriptions(dynamics), "transformations": [*dynamics.transformations], "state": state}


def begin(dynamics: BankDynamics, prior: dict[str, Any]) -> None:
    """Gives the parameters of a bank the values of a prior, where this has the structure and the transformation.

    Means of seasons, effects of covariates and deviations of categories stay as they are.
    """
    state, known = prior["state"], list(_counted(prior["transformations"]))  # a transformation may stand more than once
    pairs = [(to, known.index(one)) for to, one in enumerate(_counted(dynamics.transformations)) if one in known]
    to, of = [list(places) for places in zip(*pairs, strict=True)] or [[], []]
    with torch.no_grad():
        for name in _COMMON:
            getattr(dynamics, name).copy_(state[name])
        for number, one in enumerate(_descriptions(dynamics)):
            if one not in prior["structures"]:
                continue
            source, own = prior["structures"].index(one), _tables(dynamics)[number]
            population, deviation = state[f"population.{source}"], state[f"deviation.{source}"]
            own.population[: len(population)] = population  # noises and dampings come first, then what stays
            own.categories[-1][to, : len(population)] = deviation[of]
            for name in ("log_prior", "log_shape"):
                getattr(dynamics, name)[number, to] = state[name][source, of]


def _tables(dynamics: BankDynamics) -> list[SeriesParameters]:
    """Return the parameters of each structure."""
    return [one.parameters_of_series for one in dynamics.structures]


def _descriptions(dynamics: BankDynamics) -> list[str]:
    return ["+".join(one.structure.names) for one in dynamics.structures if one.structure is not None]


def _counted(names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Return each name with the number of times that it stood before."""
    seen: dict[str, int] = {}
    for name in names:
        yield name, seen.get(name, 0)
        seen[name] = seen.get(name, 0) + 1
