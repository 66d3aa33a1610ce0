"""Pool of models: their forecasts mixed with fixed weights."""

import dataclasses
import inspect
from typing import Any

import yaml

from tsforecast.models.bank import BankForecaster
from tsforecast.models.base import AbstractForecaster
from tsforecast.models.gls import GLSForecaster
from tsforecast.models.issm import ISSMForecaster
from tsforecast.models.options import DATA_DECIDED, RECORDS, make_model, options_of
from tsforecast.models.parts.optimisation import PoolTraining
from tsforecast.models.parts.parameter_groups import PoolGroups
from tsforecast.models.parts.pool_inference import PoolDynamics, PoolInference
from tsforecast.models.parts.units import Scaling
from tsforecast.models.records import DataSpec
from tsforecast.models.rsgls_issm import RSGLSISSMForecaster

_MEMBERS: dict[str, type[AbstractForecaster]] = {
    "bank": BankForecaster,
    "issm": ISSMForecaster,
    "gls": GLSForecaster,
    "rsgls-issm": RSGLSISSMForecaster,
}
_STILL = "learning_rate=0"  # of a member that stays as it begins, which its name in pictures leaves out


class PoolForecaster(AbstractForecaster[PoolInference]):
    """Several models of the same series; forecasts are mixtures of theirs (linear opinion pool; Stone 1961).

    Members are trained side by side, each by its own loss, as if it were alone; one with a `learning_rate` of 0 stays
    as it begins. `auto` makes a pool where a mixture forecasts windows before the end of the data better than each of
    its members.

    Args:
        data: What the estimator finds out about the data.
        training: How the members are trained, beside their own options.
        scaling: What "auto" stands for in the members' options of these names.
        members: Joined by ";", each a model (bank, issm, gls, rsgls-issm) and its options "name=value" behind it:
            "bank; issm objective=likelihood".
        weights: Numbers joined by ",", one for each member; they are divided by their sum. "equal" for the same.

    Raises:
        ValueError: If a member, an option or a weight is not as expected.
    """

    def __init__(
        self,
        data: DataSpec,
        training: PoolTraining = PoolTraining(),
        scaling: Scaling = Scaling(),
        *,
        members: str = "bank; issm",
        weights: str = "equal",
    ) -> None:
        names = tuple(" ".join(one.split()) for one in members.split(";"))
        models = [_member(name, data, training, scaling) for name in names]
        shares = _shares(weights, len(models))
        inferences = tuple(model.inference for model in models)
        # A rate of 0 keeps a member as its prior has it.
        learning = tuple(bool(model.training_options.learning_rate) for model in models)
        if not any(learning):
            raise ValueError("expected a member that learns, but the learning_rate of each is 0")
        # A belief shows the units of a member to which the unit of the data matters, if there is one.
        units = next((one.units for one in inferences if not one.units.is_scale_free), inferences[0].units)
        inference = PoolInference(
            PoolDynamics([one.dynamics for one in inferences], shares, learning),
            units,
            inferences,
            tuple(" ".join(word for word in name.split() if word != _STILL) for name in names),
            learning,
        )
        groups = PoolGroups(tuple(model.groups for model in models))
        super().__init__(data, (training, scaling), inference, groups)
        self.save_hyperparameters(ignore=RECORDS)


def _member(description: str, data: DataSpec, training: PoolTraining, scaling: Scaling) -> Any:
    """Return the model that is described.

    Raises:
        ValueError: If it is not known, or an option is not one of its own.
    """
    name, *words = description.split() or [""]
    if name not in _MEMBERS:
        raise ValueError(f"expected members among {', '.join(_MEMBERS)}, got {name!r}")
    known = options_of(_MEMBERS[name])
    common = {**dataclasses.asdict(data), **dataclasses.asdict(scaling), "seed": training.seed}
    options = {key: value for key, value in common.items() if key in known}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in known or key in DATA_DECIDED:
            free = sorted(set(known) - DATA_DECIDED)
            raise ValueError(f"expected options of {name} as name=value, of {', '.join(free)}; got {word!r}")
        options[key] = _value(known[key], text)
    return make_model(_MEMBERS[name], **options)


def _value(parameter: inspect.Parameter, text: str) -> Any:
    """Return the value of an option: text where it is one, else a number or a truth value."""
    value = text if isinstance(parameter.default, str) else yaml.safe_load(text)
    # "1" is a learning rate, too.
    return float(value) if isinstance(parameter.default, float) and isinstance(value, int) else value


def _shares(weights: str, count: int) -> list[float]:
    """Return the weights, with a sum of 1.

    Raises:
        ValueError: If they are not positive numbers, one for each member.
    """
    try:
        shares = [1.0] * count if weights == "equal" else [float(one) for one in weights.split(",")]
    except ValueError:
        shares = []
    if len(shares) != count or not all(0 < one < float("inf") for one in shares):
        raise ValueError(f"expected {count} positive weights joined by ',', one for each member, got {weights!r}")
    return [one / sum(shares) for one in shares]
