"""One contender on one problem, in a process of its own (started by `filtering.py`): `python measure.py '{...}'`.

Prints one line of JSON. With "what": "time" the contender is checked against the naive loop in float64 and, if right,
timed in rounds beside the naive loop in the same type; with "what": "memory" it is run once and the process' high-water
mark read.
"""

import argparse
import importlib
import importlib.metadata
import json
import pathlib
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from contender import Contender, UnsupportedError, make_naive, truth
from problems import PROBLEMS, Problem

# Name -> (module and function, distribution, whether it runs on a GPU).
CONTENDERS: dict[str, tuple[str, str, bool]] = {
    "tsforecast": ("ours:make_ours", "tsforecast", True),
    "naive": ("contender:make_naive", "torch", True),
    "statsmodels": ("peers:make_statsmodels", "statsmodels", False),
    "dynamax": ("peers:make_dynamax", "dynamax", False),
    "torch-kf": ("peers:make_torch_kf", "torch-kf", True),
    "torchcast": ("peers:make_torchcast", "torchcast", True),
    "pyro": ("peers:make_pyro", "pyro-ppl", True),
}
# Largest error of values and of gradients, relative to the largest entry. Of other libraries we ask only that they
# compute the same thing: dynamax adds 1e-9 to the diagonals that it factorises, pyro works with precisions.
TOLERANCES = {"float64": (1e-9, 1e-8), "float32": (1e-4, 5e-3)}
PEER_TOLERANCES = {"float64": (1e-7, 1e-5), "float32": (1e-4, 5e-3)}


def make(name: str, problem: Problem, dtype: torch.dtype, device: str) -> Contender:
    """The contender of that name.

    Raises:
        ImportError: If the library is not installed.
        UnsupportedError: If it does not do this problem.
    """
    path, _, on_gpu = CONTENDERS[name]
    if device != "cpu" and not on_gpu:
        raise UnsupportedError("CPU only")
    module, function = path.split(":")
    return getattr(importlib.import_module(module), function)(problem, dtype, device)


def errors(contender: Contender) -> tuple[float, float | None]:
    """Errors of value and gradients relative to the largest entry; of Q's gradient the symmetric part counts."""
    want, want_gradient = truth(contender.problem)
    got = [_numpy(contender.value())]
    error_gradient = None
    if contender.gradient is not None:
        value, gradients = contender.gradient()
        got.append(_numpy(value))
        error_gradient = 0.0
        for name, x in gradients.items():
            reference = want_gradient["Q"].diagonal() if name == "diag Q" else want_gradient[name]
            x = _numpy(x)
            if name == "Q":
                x, reference = x + x.swapaxes(-1, -2), reference + reference.swapaxes(-1, -2)
            error_gradient = max(error_gradient, _relative(x, reference))
    return max(_relative(x, want) for x in got), error_gradient


def _relative(got: np.ndarray, want: np.ndarray) -> float:
    if got.shape != want.shape:
        raise ValueError(f"shape {got.shape} instead of {want.shape}")
    return float(np.abs(got - want).max() / np.abs(want).max()) if np.isfinite(got).all() else float("inf")


def _numpy(x: Any) -> np.ndarray:
    return np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x, np.float64)


def measure_time(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each round for value and value + gradient, of the contender and of the naive loop."""
    dtype, device, cpu = getattr(torch, job["dtype"]), job["device"], job["device"] == "cpu"
    problem = PROBLEMS[job["problem"]](job["problem"])
    contender = make(job["contender"], problem, dtype, device)
    num_series = contender.problem.num_series
    part = f"{num_series} of {problem.num_series} series" if num_series < problem.num_series else ""
    result: dict[str, Any] = {"series": num_series, "remark": ", ".join(filter(None, (part, contender.remark)))}
    result["error_value"], result["error_gradient"] = errors(contender)
    strict = job["contender"] in ("tsforecast", "naive")
    limits = (TOLERANCES if strict else PEER_TOLERANCES)[job["dtype"]]
    if not (result["error_value"] <= limits[0] and (result["error_gradient"] or 0.0) <= limits[1]):
        return {**result, "status": "wrong"}

    # One thread's CPU time does not suffer from neighbours; a GPU or several threads only have the wall clock.
    clock = time.process_time if cpu and job["threads"] == 1 else time.perf_counter
    synchronise: Callable[[], None] = (lambda: None) if cpu else torch.cuda.synchronize
    runners = {"naive": make_naive(problem, dtype, device)}
    if job["contender"] != "naive":
        runners["contender"] = contender
    seconds: dict[str, dict[str, list[float]]] = {who: {} for who in runners}
    start = time.perf_counter()
    for number in range(job["rounds"] + (not cpu)):  # on a GPU the naive loop needs a first run, too
        for who, runner in runners.items():
            for mode, function in (("value", runner.value), ("gradient", runner.gradient)):
                if function is None:
                    continue
                synchronise()
                before = clock()
                function()
                synchronise()
                if cpu or number > 0:
                    seconds[who].setdefault(mode, []).append(clock() - before)
        if time.perf_counter() - start > job["budget"]:
            break
    per_step = {"naive": problem.num_series * problem.num_steps, "contender": result["series"] * problem.num_steps}
    result["ns"] = {
        who: {mode: [1e9 * s / per_step[who] for s in rounds] for mode, rounds in modes.items()}
        for who, modes in seconds.items()
    }
    result["ns"].setdefault("contender", result["ns"]["naive"])
    return {**result, "status": "ok"}


def measure_memory(job: dict[str, Any]) -> dict[str, Any]:
    """High-water marks in MiB for value and value + gradient, and what was taken before the first call."""
    device = job["device"]
    problem = PROBLEMS[job["problem"]](job["problem"])
    contender = make(job["contender"], problem, getattr(torch, job["dtype"]), device)
    result = {"before": _resident("VmRSS") if device == "cpu" else torch.cuda.memory_allocated() / 2**20}
    for mode, function in (("value", contender.value), ("gradient", contender.gradient)):
        if function is not None:
            function()
            result[mode] = _resident("VmHWM") if device == "cpu" else torch.cuda.max_memory_allocated() / 2**20
    return {**result, "status": "ok"}


def _resident(field: str) -> float:
    """Resident set (VmRSS) or its high-water mark (VmHWM) in MiB; getrusage's would include the parent's."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(lines[field].split()[0]) / 2**10


def versions(contender: str) -> str:
    """The library's version, torch's and Python's."""
    found = []
    names = {CONTENDERS[contender][1], "torch", *(["jax"] if contender == "dynamax" else [])}
    for name in sorted(names):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return "; ".join([*found, f"python {platform.python_version()}"])


def hardware(device: str) -> str:
    """Name of the processor or of the GPU."""
    if device != "cpu":
        return torch.cuda.get_device_name(device)
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Does the job given as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=json.loads, help="what to measure, as JSON")
    job = parser.parse_args().job
    torch.set_num_threads(job["threads"])
    try:
        result = (measure_time if job["what"] == "time" else measure_memory)(job)
    except ImportError as error:
        result = {"status": "not installed", "remark": str(error)}
    except UnsupportedError as error:
        result = {"status": "not supported", "remark": str(error)}
    result |= {"versions": versions(job["contender"]), "hardware": hardware(job["device"])}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
