"""What a hostile client does to the latency of another, against a service on this machine alone.

    python benchmarks/live_hostile.py              # about five minutes
    python benchmarks/live_hostile.py --kinds gaps # one kind of harm

A client sends an update with a forecast at fixed times, first alone and then beside a process that does harm, in turns.
The harm goes on as long as it is measured: `answers` says how often. The latencies of all turns are put together;
`cpu_ms` is what the service spends on a harmful request. Kinds of harm:

- `none`: observations of an old period, which change nothing: what another process on the machine does to the latency;
- `objects`: bodies of 6 MB of empty objects;
- `nested`: bodies of 6 MB of brackets;
- `faults`: 10 000 observations, of which the last is faulty;
- `names`: an observation of 100 000 strange names;
- `gaps`: 60 observations of a series, each 1000 days behind the last, beside 2000 others;
- `backfill`: 10 000 observations of one series that follow each other, which is allowed;
- `forecasts`: 1000 paths of 280 series, which is allowed;
- `silent`: 200 sockets, on which a part of a head is sent, or nothing, where there may be 60.

Rows go to benchmarks/results/live_hostile.csv.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import pathlib
import platform
import socket
import tempfile
import time
from typing import Any

import numpy as np
import rows
import torch
from live import Client, body_of, cpu_of, make_store, names_and_times, percentiles, serving
from measure import hardware

from tsforecast.cli.provenance import provenance

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOCKETS, TOGETHER = 200, 4
DIFFERENT = ("gaps", "backfill")  # of which no request is like another
KEY = ("hardware", "series", "harm")
COLUMNS = ("p50_ms", "p99_ms", "alone_p50_ms", "alone_p99_ms", "ratio_p99", "answers", "harm_seconds", "cpu_ms",
           "service_mib", "load", "versions")  # fmt: skip


def harmful(kind: str, number: int, names: list[str]) -> tuple[str, bytes]:
    """Path and body of a request."""
    if kind == "none":
        return "/observations", body_of(names[:1], ["2024-01-01"], [1.0])
    if kind == "objects":
        return "/observations", b'{"observations":[' + b"{}," * 2_000_000 + b"{}]}"
    if kind == "nested":
        return "/observations", b"[" * 6_000_000
    if kind == "faults":
        return "/observations", body_of(names[:1] * 9_999, [day(0)] * 9_999, [1.0] * 9_999)[:-2] + b",{}]}"
    if kind == "names":
        return "/observations", json.dumps({"observations": [{f"name {k}": 0 for k in range(100_000)}]}).encode()
    if kind == "gaps":
        far = [(names[number], day(1000 * k)) for k in range(60)]
        items, times = zip(*far, *((name, day(number)) for name in names[:2000]), strict=True)
        return "/observations", body_of(list(items), list(times), [1.0] * len(items))
    if kind == "backfill":
        return "/observations", body_of([names[number]] * 10_000, [day(k) for k in range(10_000)], [1.0] * 10_000)
    return "/forecasts", json.dumps({"items": names[:280], "paths": 1000}).encode()


def day(number: int) -> str:
    """A day behind the history of the store."""
    return str(np.datetime64("2024-05-01") + number)


async def attack(port: int, kind: str, first: int, names: list[str], ends: Any) -> dict[str, int]:
    """Sends harmful requests, a few at a time, and returns how often each status came."""
    found: dict[str, int] = {}
    numbers = itertools.count(first)
    fixed = None if kind in DIFFERENT else harmful(kind, first, names)

    async def work() -> None:
        for number in numbers:
            path, body = fixed or harmful(kind, number, names)
            status = "no answer"
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
                status = (await reader.readline())[9:12].decode()
                await reader.read()
                writer.close()
            except OSError:
                pass
            found[status] = found.get(status, 0) + 1
            if ends.is_set():
                return

    await asyncio.gather(*(work() for _ in range(TOGETHER)))
    return found


def stay_silent(port: int, ends: Any) -> dict[str, int]:
    """Opens sockets, and sends a part of a head on every other."""
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(SOCKETS)]
    for one in sockets[::2]:
        try:
            one.sendall(b"POST /obs")
        except OSError:
            continue  # it had to give way already
    ends.wait(60)
    return {"sockets": len(sockets)}


def do_harm(port: int, kind: str, first: int, names: list[str], begins: Any, ends: Any, told: Any) -> None:
    """The hostile process."""
    begins.set()
    start = time.perf_counter()
    found = stay_silent(port, ends) if kind == "silent" else asyncio.run(attack(port, kind, first, names, ends))
    told.put((found, time.perf_counter() - start))


async def measured(port: int, bodies: list[bytes], rate: float) -> list[float]:
    """Seconds of requests that begin at fixed times, or when the one before is answered."""
    seconds = []
    async with Client(port) as client:
        begin = time.perf_counter()
        for number, body in enumerate(bodies):
            await asyncio.sleep(max(begin + number / rate - time.perf_counter(), 0))
            start = time.perf_counter()
            await client.ask("POST", "/observations", body)
            seconds.append(time.perf_counter() - start)
    return seconds


def peak(process: int) -> float:
    """Most MiB that a process has had."""
    text = pathlib.Path(f"/proc/{process}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) / 1024


def measure(kind: str, path: pathlib.Path, turns: int, count: int, rate: float) -> dict[str, Any]:
    """Latencies alone and beside the harm, in turns."""
    names, times = names_and_times(path, 2 * turns * count + 50)
    mine, others = names[-1], names[:-1]
    bodies = iter([body_of([mine], [time], [100.0], forecast={}) for time in times[-1]])
    alone, beside, answers, spent, used, own = [], [], {}, 0.0, 0.0, 0.0
    with serving(path, "--max_connections", "60") as (port, process):
        asyncio.run(measured(port, [next(bodies) for _ in range(50)], rate))
        for _ in range(turns):
            cpu = cpu_of(process)
            alone += asyncio.run(measured(port, [next(bodies) for _ in range(count)], rate))
            own += cpu_of(process) - cpu
            begins, ends, told = (multiprocessing.Event(), multiprocessing.Event(), multiprocessing.Queue())
            given = (port, kind, sum(answers.values()), others, begins, ends, told)
            hostile = multiprocessing.Process(target=do_harm, args=given)
            cpu = cpu_of(process)
            hostile.start()
            begins.wait()
            beside += asyncio.run(measured(port, [next(bodies) for _ in range(count)], rate))
            ends.set()
            found, seconds = told.get()
            hostile.join()
            used += cpu_of(process) - cpu
            spent += seconds
            for status, number in found.items():
                answers[status] = answers.get(status, 0) + number
        mib = peak(process)
    before, after = percentiles(alone), percentiles(beside)
    cpu_ms = (used - own * len(beside) / len(alone)) / sum(answers.values()) * 1e3
    return {
        "harm": kind, **after, **{f"alone_{name}": value for name, value in before.items()},
        "ratio_p99": f"{float(after['p99_ms']) / float(before['p99_ms']):.2f}", "answers": json.dumps(answers),
        "harm_seconds": f"{spent:.1f}",
        "cpu_ms": f"{cpu_ms:.1f}", "service_mib": f"{mib:.0f}",
    }  # fmt: skip


def main() -> None:
    """Measures all kinds of harm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=3000)
    kinds = ["none", "objects", "nested", "faults", "names", "gaps", "backfill", "forecasts", "silent"]
    parser.add_argument("--kinds", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--count", type=int, default=200, help="requests of a turn that are measured")
    parser.add_argument("--rate", type=float, default=50, help="of these a second")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "live_hostile.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"torch {torch.__version__}; python {platform.python_version()}"
    provenance(options.out)  # refuses a tree with changes before anything is measured
    facts = {"hardware": hardware("cpu"), "versions": versions}
    found = []
    for kind in options.kinds:
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, "store")
            make_store(path, options.series)
            row = measure(kind, path, options.turns, options.count, options.rate)
        found.append(facts | {"series": options.series, "load": f"{os.getloadavg()[0]:.1f}"} | row)
        print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    rows.write(options.out, found, KEY, COLUMNS)


if __name__ == "__main__":
    main()
