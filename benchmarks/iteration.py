"""One contender on one model, in a process of its own (started by `particle_filter.py`): `python iteration.py '{...}'`.

Prints one line of JSON. With "what": "time" the library and the textbook form are compared in float64 on the same
random numbers and, if they agree, the contender is timed in rounds beside the textbook form; with "memory" every mode
is run once and the process' high-water mark read.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import textbook
import torch
from measure import _resident, hardware
from torch import Tensor

from tsforecast.core.kernels import building
from tsforecast.models import MODELS, Batch
from tsforecast.models import make_model as build
from tsforecast.models.parts.captured import CapturedLoss

HORIZON = 24
PATHS = 100
TIME_FEATURES = 4  # hour of the day, day of the week, of the month and of the year
_SIZES: dict[str, Any] = {"switch_dim": 10, "num_bases": 20, "hidden": 64}
_COMPONENTS = {**_SIZES, "components": "level+hour_of_day+day_of_week"}
MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "arsgls": {"state_dim": 16, "auxiliary_dim": 10, **_SIZES},
    "rsgls-issm": _COMPONENTS,
    "arsgls+components": {"state_dim": 16, "auxiliary_dim": 10, **_COMPONENTS},
}
# Largest difference between library and textbook form, relative to the largest entry, in float64.
TOLERANCES = {"value": 1e-9, "value+gradient": 1e-8, "forecast": 1e-9}
CHECKED_SERIES = 4
Functions = dict[str, Callable[[], Any]]


def make_model(job: dict[str, Any], dtype: torch.dtype = torch.float32) -> textbook.Forecaster:
    """The forecaster with its initial parameters."""
    torch.manual_seed(0)
    model = build(
        MODELS[job["model"].removesuffix("+components")],
        freq="h", prediction_length=HORIZON, season=24, num_series=job["series"], num_time_features=TIME_FEATURES,
        transformation="none", clip="none", objective="likelihood", num_particles=job["particles"],
        **MODEL_OPTIONS[job["model"]],
    )  # fmt: skip
    assert isinstance(model, textbook.Forecaster)
    return model.to(device=job["device"], dtype=dtype)


def make_batch(job: dict[str, Any], dtype: torch.dtype = torch.float32) -> Batch:
    """Hourly series with a daily season, each beginning at an hour of the week of its own."""
    generator = torch.Generator().manual_seed(1)
    series, steps = job["series"], job["steps"]
    hour = torch.arange(steps) + torch.randint(168, (series, 1), generator=generator)
    noise = torch.randn(2, series, steps, generator=generator)
    target = torch.sin(2 * torch.pi * hour / 24) + 0.3 * noise[0] + 0.1 * noise[1].cumsum(-1)
    whole = {
        "target": target.unsqueeze(-1).to(dtype),
        "observed": torch.ones(series, steps, 1, dtype=torch.bool),
        "time_feat": torch.rand(series, steps, TIME_FEATURES, generator=generator).to(dtype) - 0.5,
        "season_index": torch.stack([hour % 24, hour // 24 % 7], -1),
        "dynamic_real": torch.zeros(series, steps, 0, dtype=dtype),
    }
    batch = {f"past_{name}": x[:, : steps - HORIZON] for name, x in whole.items()}
    batch |= {f"future_{name}": x[:, steps - HORIZON :] for name, x in whole.items()}
    batch["past_is_pad"] = torch.zeros(series, steps - HORIZON, dtype=torch.bool)
    batch["known_future"] = torch.full((series, HORIZON, 1), torch.nan, dtype=dtype)
    batch["series_index"] = torch.arange(1, series + 1)
    batch["static_cat"] = torch.zeros(series, 0, dtype=torch.long)
    batch["static_real"] = torch.zeros(series, 0, dtype=dtype)
    return {name: x.to(job["device"]) for name, x in batch.items()}


def _modes(model: torch.nn.Module, loss: Callable[[], Tensor], forecast: Callable[[], Tensor]) -> Functions:
    """What is timed, by the name of the mode."""

    def gradient() -> None:
        model.zero_grad()
        loss().mean().backward()

    return {"value": torch.no_grad()(loss), "value+gradient": gradient, "forecast": torch.no_grad()(forecast)}


def make_ours(job: dict[str, Any]) -> Functions:
    """The library: a training iteration, and a forecast from the belief after the past."""
    model, batch = make_model(job), make_batch(job)
    with torch.no_grad():
        belief, _ = model.filter(batch)
    has_graphs = job["device"] != "cpu" and os.environ.get(building.SWITCH) != "0"
    loss = _captured(model, batch) if has_graphs else model.loss
    return _modes(model, lambda: loss(batch), lambda: model.forecast(belief, batch, PATHS))


def _captured(model: textbook.Forecaster, batch: Batch) -> Callable[[Batch], Tensor]:
    """The loss as a training on a GPU takes it, when batches of this shape have come before."""
    graphs = CapturedLoss(model, model.loss)
    for _ in range(3):
        graphs.prepare(batch)
    return graphs.prepare(batch)


def make_by_torch(job: dict[str, Any]) -> Functions:
    """The library without its compiled steps, and on a GPU without CUDA graphs."""
    assert os.environ[building.SWITCH] == "0"
    return make_ours(job)


def make_textbook(job: dict[str, Any]) -> Functions:
    """The same by the textbook form, with parameters of its own that have the same values."""
    model, batch = make_model(job), make_batch(job)
    with torch.no_grad():
        belief, _ = model.filter(batch)
    return _modes(
        model,
        lambda: textbook.loss(model, batch),
        lambda: textbook.forecast(model, belief, batch, PATHS),
    )


def make_deepar(job: dict[str, Any]) -> Functions:
    """GluonTS' DeepAR in its default size (2 layers of 40), with a context of all the steps before its horizon."""
    from gluonts.torch.model.deepar.module import DeepARModel

    torch.manual_seed(0)
    series, context = job["series"], job["steps"]
    model = DeepARModel(
        freq="h", context_length=context, prediction_length=HORIZON, num_feat_dynamic_real=TIME_FEATURES + 1,
        num_feat_static_real=1, num_feat_static_cat=1, cardinality=[series], num_layers=2, hidden_size=40,
    ).to(job["device"])  # fmt: skip
    past = model._past_length  # with the lags before the context
    made = {
        "feat_static_cat": torch.arange(series).unsqueeze(-1),
        "feat_static_real": torch.zeros(series, 1),
        "past_time_feat": torch.randn(series, past, TIME_FEATURES + 1),
        "past_target": torch.rand(series, past) + 0.5,
        "past_observed_values": torch.ones(series, past),
        "future_time_feat": torch.randn(series, HORIZON, TIME_FEATURES + 1),
    }
    inputs = {name: x.to(job["device"]) for name, x in made.items()}
    future = {
        "future_target": (torch.rand(series, HORIZON) + 0.5).to(job["device"]),
        "future_observed_values": torch.ones(series, HORIZON, device=job["device"]),
    }
    return _modes(
        model,
        lambda: model.loss(**inputs, **future, future_only=False),
        lambda: model(**inputs, num_parallel_samples=PATHS),
    )


# Name -> (function, distributions whose versions are written down).
CONTENDERS: dict[str, tuple[Callable[[dict[str, Any]], Functions], tuple[str, ...]]] = {
    "tsforecast": (make_ours, ("tsforecast", "torch")),
    "tsforecast-torch": (make_by_torch, ("tsforecast", "torch")),
    "textbook": (make_textbook, ("torch",)),
    "deepar": (make_deepar, ("gluonts", "torch")),
}


def draw_like_the_library() -> textbook.Draw:
    """The library's way to draw from a proposal (Matheron's rule), for textbook steps on the same random numbers.

    The first switch is drawn directly.
    """
    first = True

    def draw(predictive: textbook.Normal, guess: textbook.Normal, proposal: textbook.Normal) -> Tensor:
        nonlocal first
        if first:
            first = False
            return proposal.sample()
        sample = predictive.sample()
        noise = textbook.noise_like(sample) * guess.cov.diagonal(dim1=-2, dim2=-1).sqrt()
        gap = (guess.mean + noise - sample).unsqueeze(-1)
        return sample + (predictive.cov @ torch.linalg.solve(predictive.cov + guess.cov, gap)).squeeze(-1)

    return draw


def check(job: dict[str, Any]) -> dict[str, Any]:
    """Errors of the library beside the textbook form, relative to the largest entry, on the same random numbers."""
    model, batch = make_model(job, torch.float64), make_batch(job, torch.float64)

    def both(ours: Callable[[], Tensor], theirs: Callable[[], Tensor]) -> list[Tensor]:
        results = []
        for function in (ours, theirs):
            torch.manual_seed(2)
            results.append(function())
        return results

    losses = both(lambda: model.loss(batch), lambda: textbook.loss(model, batch, draw_like_the_library()))
    parameters = list(model.parameters())
    gradients = [torch.autograd.grad(loss.mean(), parameters) for loss in losses]
    with torch.no_grad():
        belief, _ = model.filter(batch)
        paths = both(
            lambda: model.forecast(belief, batch, PATHS), lambda: textbook.forecast(model, belief, batch, PATHS)
        )
    return {
        "value": _error(*losses),
        "value+gradient": max(_error(ours, theirs) for ours, theirs in zip(*gradients, strict=True)),
        "forecast": _error(*paths),
    }


def _error(ours: Tensor, theirs: Tensor) -> float:
    error = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    return error if error == error else float("inf")


def measure_time(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of every round for each mode, of the contender and of those beside it."""
    cpu = job["device"] == "cpu"
    errors = {}
    if job["contender"] != "deepar":
        errors = check({**job, "series": min(job["series"], CHECKED_SERIES)})
        if not all(error <= TOLERANCES[mode] for mode, error in errors.items()):
            return {"status": "wrong", "errors": errors}
    runners = {name: CONTENDERS[name][0](job) for name in dict.fromkeys([*job["beside"], job["contender"]])}
    # One thread's CPU time does not suffer from neighbours; a GPU or several threads only have the wall clock.
    clock = time.process_time if cpu and job["threads"] == 1 else time.perf_counter
    synchronise: Callable[[], None] = (lambda: None) if cpu else torch.cuda.synchronize
    seconds: dict[str, dict[str, list[float]]] = {name: {mode: [] for mode in job["modes"]} for name in runners}
    start = time.perf_counter()
    for number in range(job["rounds"] + 1):  # the first is not counted: it takes memory from the operating system
        for name, functions in runners.items():
            for mode in job["modes"]:
                synchronise()
                before = clock()
                functions[mode]()
                synchronise()
                if number > 0:
                    seconds[name][mode].append(clock() - before)
        if number > 0 and time.perf_counter() - start > job["budget"]:
            break
    return {"status": "ok", "errors": errors, "seconds": seconds}


def measure_memory(job: dict[str, Any]) -> dict[str, Any]:
    """High-water marks in MiB after each mode, and what was taken before the first."""
    functions = CONTENDERS[job["contender"]][0](job)
    cpu = job["device"] == "cpu"
    result: dict[str, Any] = {"before": _resident("VmRSS") if cpu else torch.cuda.memory_allocated() / 2**20}
    for mode in sorted(job["modes"], key=["value", "forecast", "value+gradient"].index):  # from the least to the most
        if not cpu:
            torch.cuda.reset_peak_memory_stats()
        functions[mode]()
        result[mode] = _resident("VmHWM") if cpu else torch.cuda.max_memory_allocated() / 2**20
    return {**result, "status": "ok"}


def main() -> None:
    """Does the job given as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=json.loads, help="what to measure, as JSON")
    job = parser.parse_args().job
    torch.set_num_threads(job["threads"])
    if job["contender"] == "tsforecast-torch":
        os.environ[building.SWITCH] = "0"
    building.build()
    result = (measure_time if job["what"] == "time" else measure_memory)(job)
    found = [f"{name} {importlib.metadata.version(name)}" for name in CONTENDERS[job["contender"]][1]]
    result["versions"] = "; ".join([*found, f"python {platform.python_version()}"])
    print(json.dumps({**result, "hardware": hardware(job["device"])}))


if __name__ == "__main__":
    main()
