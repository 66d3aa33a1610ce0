"""Models small enough for exact checks in float64, with entries that use all they can."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import torch

from tsforecast.core import Gaussian
from tsforecast.data.transform import Prepare
from tsforecast.data.windows import collate, cut
from tsforecast.models import MODELS, AbstractForecaster, ExactInference, Series, options_of
from tsforecast.models import make_model as build
from tsforecast.models.records import TimeSlice

HORIZON = 4
CARDINALITY = [3, 2]
_SWITCHING = {"switch_dim": 2, "num_bases": 3, "hidden": 6, "embedding_dim": 2, "num_particles": 4}
_DENSE = {**_SWITCHING, "state_dim": 3}
_AUXILIARY = {**_DENSE, "auxiliary_dim": 2}
_KVAE = {
    "state_dim": 3, "auxiliary_dim": 2, "num_bases": 3, "memory_dim": 2, "hidden": 6, "embedding_dim": 2,
    "num_particles": 4,
}  # fmt: skip
_IMAGE = {"num_targets": 64, "image_shape": [8, 8], "filters": 2, "likelihood": "bernoulli", "scaling": "none"}
_COMPONENTS = {**_SWITCHING, "components": "damped_level+day_of_week"}
# Case -> (model, constructor arguments): every model, and every option that changes the arithmetic.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bank": ("bank", {"structures": "damped_trend+day_of_week,level+cycle_of_3"}),
    "bank-crps": ("bank", {"structures": "trend,level+day_of_week", "objective": "crps"}),
    "bank-targets": ("bank", {"structures": "trend,level+day_of_week", "num_targets": 2}),
    "issm-targets": ("issm", {"components": "damped_level+day_of_week", "num_targets": 2}),
    "issm": ("issm", {"components": "damped_level+damped_trend+day_of_week+cycle_of_3"}),
    "issm-network": (
        "issm",
        {"components": "level+day_of_week+cycle_of_90_with_3_harmonics", "scales": "network", "embedding_dim": 2},
    ),
    "issm-crps": ("issm", {"components": "damped_level+day_of_week+cycle_of_90_with_3_harmonics", "objective": "crps"}),
    "gls": ("gls", {"state_dim": 4}),
    "gls-targets": ("gls", {"state_dim": 3, "num_targets": 2}),
    "gls-crps": ("gls", {"state_dim": 3, "objective": "crps", "transformation": "asinh"}),
    "gls-components": ("gls", {"state_dim": 3, "components": "damped_level+day_of_week"}),
    "gls-components-crps": (
        "gls",
        {"state_dim": 2, "components": "damped_trend+cycle_of_90_with_2_harmonics", "objective": "crps"},
    ),
    "deepstate": (
        "deepstate",
        {
            "components": "damped_level+day_of_week+cycle_of_90_with_2_harmonics",
            "hidden": 3,
            "num_layers": 2,
            "embedding_dim": 2,
        },
    ),
    "markov": ("markov", {"order": 0, "starts": 1, "stages": 2}),
    "markov-mean": (
        "markov",
        {
            "form": "mean",
            "switching": "location+coefficients+effects",
            "initial": "free",
            "transition_covariates": True,
        },
    ),
    "markov-counts": ("markov", {"likelihood": "negative-binomial", "order": 0, "seasonal": False, "starts": 1}),
    "markov-targets": (
        "markov",
        {"order": 1, "num_targets": 2, "starts": 1, "switching": "scale+coefficients", "initial": "free"},
    ),
    "sgls": ("sgls", _DENSE),
    "sgls-categorical": ("sgls", {**_DENSE, "switch": "categorical", "switch_dim": 3}),
    "rsgls": ("rsgls", _DENSE),
    "rsgls-paper": (
        "rsgls",
        {**_DENSE, "recurrence": "paper", "resampling_gradient": "stop-gradient", "persistence": 0.5},
    ),
    "rsgls-issm": ("rsgls-issm", _COMPONENTS),
    "rsgls-issm-crps": (
        "rsgls-issm",
        {**_COMPONENTS, "components": "damped_level+cycle_of_90_with_2_harmonics", "objective": "crps"},
    ),
    "rsgls-issm-open": (
        "rsgls-issm",
        {
            **_COMPONENTS,
            "objective": "crps",
            "recurrence": "none",
            "proposal": "bootstrap",
            "persistence": 0.9,
            "resampling_gradient": "stop-gradient",
        },
    ),
    "pool": (
        "pool",
        {
            "members": "bank structures=trend,level+day_of_week; issm components=damped_level+cycle_of_3; "
            "gls state_dim=3 objective=likelihood transformation=asinh",
            "weights": "0.5,0.2,0.3",
        },
    ),
    "arsgls": ("arsgls", _AUXILIARY),
    "arsgls-encoder": ("arsgls", {**_AUXILIARY, "proposal": "encoder"}),
    "arsgls-bootstrap": ("arsgls", {**_AUXILIARY, "proposal": "bootstrap"}),
    "arsgls-targets": ("arsgls", {**_AUXILIARY, "num_targets": 2}),
    "arsgls-skip": ("arsgls", {**_AUXILIARY, "skip": True, "stable": True, "objective": "crps"}),
    "arsgls-scales": ("arsgls", {**_AUXILIARY, "series_scales": True}),
    "arsgls-student-t": ("arsgls", {**_AUXILIARY, "likelihood": "student-t"}),
    "arsgls-counts": ("arsgls", {**_AUXILIARY, "likelihood": "negative-binomial"}),
    "arsgls-binary": ("arsgls", {**_AUXILIARY, "likelihood": "bernoulli"}),
    "kvae-rb": ("kvae-rb", _KVAE),
    "kvae-mc": ("kvae-mc", _KVAE),
    "kvae-skip": ("kvae-rb", {**_KVAE, "skip": True, "stable": True}),
    "kvae-scales": ("kvae-mc", {**_KVAE, "series_scales": True}),
    "sgls-components": (
        "sgls",
        {**_DENSE, "switch": "categorical", "switch_dim": 3, "components": "damped_level+day_of_week"},
    ),
    "rsgls-issm-categorical": (
        "rsgls-issm",
        {**_COMPONENTS, "switch": "categorical", "switch_dim": 2, "state_dim": 2},
    ),
    "rsgls-components": ("rsgls", {**_DENSE, "components": "level+day_of_week", "series_scales": True}),
    "arsgls-components": ("arsgls", {**_AUXILIARY, "components": "level+day_of_week", "skip": True, "stable": True}),
    "arsgls-components-decoded": ("arsgls", {**_AUXILIARY, "components": "trend+cycle_of_90_with_2_harmonics"}),
    "kvae-components": ("kvae-rb", {**_KVAE, "components": "damped_level+day_of_week", "skip": True}),
    "arsgls-image": ("arsgls", {**_AUXILIARY, **_IMAGE}),
    "kvae-image": ("kvae-rb", {**_KVAE, **_IMAGE, "reconstruction_weight": 0.3}),
    "kvae-targets": ("kvae-rb", {**_KVAE, "num_targets": 2, "objective": "crps"}),
}
BANKS = [case for case, (name, _) in CASES.items() if name == "bank"]
POOLS = [case for case, (name, _) in CASES.items() if name == "pool"]
MARKOV = [case for case, (name, _) in CASES.items() if name == "markov"]
SWITCHING = [case for case, (name, _) in CASES.items() if "num_particles" in options_of(MODELS[name])]
CATEGORICAL = [case for case, (_, options) in CASES.items() if options.get("switch") == "categorical"]
JOINT = ["bank-targets", "issm-targets"]  # a model for each target
LINEAR = [case for case in CASES if case not in SWITCHING + BANKS + POOLS + MARKOV + JOINT]
_KINDS = {"negative-binomial": "counts", "bernoulli": "binary"}
# Without those which differ from another case in proposal, recurrence or gradient alone, or have less than another.
DISTINCT = [case for case in CASES if case not in ("markov", "rsgls-paper", "arsgls-encoder", "arsgls-bootstrap")]
# Where the options of a model with particles do not matter at all.
FEW = [*BANKS, *POOLS, *LINEAR, "issm-targets", "markov", "sgls-categorical", "rsgls-issm", "arsgls-targets"]
# Cases whose data are real numbers: they can be shifted, scaled and transformed.
REAL = [case for case, (_, options) in CASES.items() if options.get("likelihood") not in _KINDS]


def make_model(case: str, seed: int = 0, **options: Any) -> AbstractForecaster:
    """In float64 and away from its symmetric initial values, so that every parameter matters."""
    torch.default_generator.manual_seed(seed)
    name, chosen = CASES[case]
    fixed = {
        "freq": "D",
        "prediction_length": HORIZON,
        "season": 7,
        "num_series": 3,
        "cardinality": CARDINALITY,
        "num_static_real": 1,
        "num_dynamic_real": 2,
        "num_time_features": 3,
        "transformation": "none",
        "objective": "likelihood",
        "clip": "none",
    }
    known = options_of(MODELS[name])
    fixed = {key: value for key, value in fixed.items() if key in known}
    model = build(MODELS[name], **{**fixed, **chosen, **options}).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                module.weight[module.padding_idx] = 0.0
    return model


def resampling_below(model: AbstractForecaster, threshold: float) -> AbstractForecaster:
    """The model, whose particles are drawn again below this share of them."""
    model.inference = dataclasses.replace(model.inference, threshold=threshold)
    return model


def entries_of(case: str, **options: Any) -> list[dict[str, Any]]:
    """Series that fit a case; short ones for regimes and particles, which are slow."""
    _, chosen = CASES[case]
    options = {"lengths": (10, 9, 8), **options} if case in SWITCHING + MARKOV else options
    return make_entries(chosen.get("num_targets", 1), kind=_KINDS.get(chosen.get("likelihood", ""), "real"), **options)


def make_entries(
    targets: int = 1, lengths: tuple[int, ...] = (30, 26, 17), seed: int = 0, kind: str = "real"
) -> list[dict[str, Any]]:
    """Series of real numbers, counts or zeros and ones, with covariates, categories and gaps, the first of them at the
    beginning."""
    rng = np.random.default_rng(seed)
    entries = []
    for k, length in enumerate(lengths):
        time = np.arange(length)
        target = 3 * k + np.sin(2 * np.pi * (time + k) / 7) + 0.3 * rng.normal(size=(targets, length)).cumsum(1)
        if kind != "real":
            target = rng.poisson(np.abs(target) + 3) if kind == "counts" else rng.random((targets, length)) < 0.4
        target = target.astype(float)
        target[:, rng.random(length) < 0.15] = np.nan
        target[0, :2] = np.nan
        entries.append(
            {
                "item_id": f"s{k}",
                "start": pd.Period("2024-01-01", "D") + k,
                "target": (target if targets > 1 else target[0]).astype(np.float32),
                "feat_static_cat": [k % 3, k % 2],
                "feat_static_real": [0.5 * k],
                "feat_dynamic_real": rng.normal(size=(2, length + HORIZON)).astype(np.float32),
            }
        )
    return entries


def make_batch(
    model: AbstractForecaster, entries: list[dict[str, Any]], train: bool = True, past: int | None = None
) -> dict[str, Any]:
    """A batch as training sees it (the last steps are the future), or as prediction does."""
    data = model.data
    units = [[[0.0, 1.0]] * count for count in (data.num_static_real, data.num_dynamic_real)]
    items = ["s0", "s1", "s2"][: data.num_series]
    seasons = list(model.dynamics.season_names)
    prepare = Prepare(HORIZON, seasons, items, data.cardinality, *units, data.num_targets)
    prepared = [prepare.map_transform(dict(entry), train) for entry in entries]
    ends = [len(entry["target"]) - (HORIZON if train else 0) for entry in prepared]
    return collate([cut(entry, end, past, HORIZON) for entry, end in zip(prepared, ends, strict=True)])


def linear_of(inference: Any, time_slice: TimeSlice, batch: dict[str, Any]) -> tuple[Any, Gaussian]:
    """The linear system of a time slice, and its prior."""
    model = inference.dynamics.linear(time_slice, Series.of(batch))
    return model.system, model.prior


def issm_inside(model: AbstractForecaster, objective: str = "likelihood") -> ExactInference:
    """Exact inference in the ISSM of a model whose noises switch."""
    return ExactInference(model.dynamics.issm, model.units, objective)


def without(entry: dict[str, Any], *steps: int) -> dict[str, Any]:
    """The entry with some steps of its target missing."""
    target = np.array(entry["target"])
    target[..., list(steps)] = np.nan
    return {**entry, "target": target}
