"""A service of live beliefs: observations a second, latency of an update with a forecast, and memory.

    python benchmarks/live.py                      # 10^4 series for speed, 10^5 for memory; about two minutes
    python benchmarks/live.py --memory 1000000     # needs 3 GiB of disk
    python benchmarks/live.py --folder /dev/shm    # the store in memory: what is left without the disk

The model is an ISSM of 16 states in float32: a level, a week and four harmonics of a year. Beliefs of 1000 series that
were filtered are repeated under other names. Phases:

- `store`: micro-batches of 1000 observations, by rules, log, flush and update, without HTTP; `store, computing`
  without log and flush, by CPU time;
- `http`: requests of 1000 observations from another process, four at a time, to `tsforecast live serve`;
- `update with forecast`: an observation that is answered by a forecast of 7 days with 3 quantiles, 50 and 200 a second
  at fixed times. The latency is from the time at which a request should have begun; the rate counts the second before
  the first. `flush` is that of the disk alone;
- `update and forecast`: the same by two requests, of which `update` and `forecast` are the latencies;
- `computing, one`: an update and a forecast of one series without log and HTTP, by CPU time;
- `memory`: what beliefs take, by the size of the arrays and by the growth of the process with the names.

CPU time of both processes is told beside the wall clock: other work on the machine slows down the latter. Rows go to
benchmarks/results/live.csv.
"""

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import rows
import torch
from measure import _resident, hardware

from tsforecast import StateSpaceEstimator, StateSpacePredictor
from tsforecast.cli.provenance import provenance
from tsforecast.forecasting.live_beliefs import join
from tsforecast.forecasting.predictor import load_predictor, save_predictor
from tsforecast.io.files import folder_checksum
from tsforecast.live.description import Description, new_identity
from tsforecast.live.engine import Engine
from tsforecast.live.opening import finish, open_store
from tsforecast.live.rows import NO_SEQUENCE, Rows
from tsforecast.live.rules import Observations, Pending
from tsforecast.live.store import PREDICTOR

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH, STEPS, FILTERED, WARM_UP = 1000, 120, 1000, 14
KEY = ("hardware", "folder", "series", "phase")
COLUMNS = ("rate", "p50_ms", "p99_ms", "cpu_ms", "mib", "load", "versions")
COMMAND = "import sys; from tsforecast.cli import main; sys.exit(main(sys.argv[1:]))"


def entries(count: int) -> list[dict[str, Any]]:
    """Levels that wander and a week."""
    generator = np.random.default_rng(0)
    found = []
    for k in range(count):
        level = 100 + generator.normal(size=STEPS).cumsum()
        week = np.resize(5 * generator.normal(size=7), STEPS)
        values = level + week + generator.normal(size=STEPS)
        found.append({"item_id": f"series {k}", "start": pd.Period("2024-01-01", "D"), "target": values})
    return found


def train(folder: pathlib.Path) -> None:
    """Trains for a moment: what a model has learnt makes no difference to its speed."""
    quiet = {"max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_progress_bar": False}
    estimator = StateSpaceEstimator(
        model="issm",
        freq="D",
        prediction_length=7,
        components="level+day_of_week+year_with_4_harmonics",
        seed=0,
        num_batches_per_epoch=2,
        trainer_kwargs=quiet,
    )
    predictor = estimator.train(entries(100))
    assert isinstance(predictor, StateSpacePredictor)
    save_predictor(predictor, folder)


def make_store(path: pathlib.Path, count: int) -> None:
    """A store of many series, whose beliefs are those of a thousand."""
    path.mkdir()
    train(path / PREDICTOR)
    predictor = load_predictor(path / PREDICTOR, "cpu")
    engine = Engine(predictor, WARM_UP)
    known = engine.empty()
    filtered = list(predictor.filter(entries(FILTERED)).values())
    parts = engine.layout.stack(join([one.belief for one in filtered]))
    assert parts[0].shape[1:] == (16,)
    assert parts[0].dtype == torch.float32
    places = known.add([f"store {k // 100:06d} product {k % 100:02d}" for k in range(count)])
    for first in range(0, count, FILTERED):
        some = places[first : first + FILTERED]
        known.scatter(some, [part[: len(some)] for part in parts])
    known.end[places] = filtered[0].end.ordinal
    about = Description(new_identity(), folder_checksum(path / PREDICTOR), "D", 7, ["target"], WARM_UP, 0)
    finish(path, about, known)


def percentiles(seconds: list[float]) -> dict[str, str]:
    """Median and 99th percentile in milliseconds."""
    p50, p99 = np.percentile(seconds, (50, 99)) * 1e3
    return {"p50_ms": f"{p50:.2f}", "p99_ms": f"{p99:.2f}"}


def micro_batches(known: Rows, count: int) -> Iterator[Observations]:
    """Values of the next periods of all series, a thousand series at a time."""
    generator = np.random.default_rng(1)
    starts = iter(range(10**9))
    for _ in range(count):
        first = next(starts) * BATCH % len(known)
        picked = np.arange(first, first + BATCH) % len(known)
        items = [known.names[row] for row in picked.tolist()]
        values = 100 + generator.normal(size=(BATCH, 1))
        yield Observations(
            items, known.end[picked], np.full(BATCH, NO_SEQUENCE), values, np.zeros((BATCH, 0))
        )  # fmt: skip


def measure_store(path: pathlib.Path, count: int) -> Iterator[dict[str, Any]]:
    """Micro-batches without HTTP."""
    with open_store(path) as store:
        for batch in micro_batches(store.rows, 5):
            store.observe([batch])
        walls, begin, cpu = [], time.perf_counter(), time.process_time()
        for batch in micro_batches(store.rows, count):
            start = time.perf_counter()
            store.observe([batch])
            walls.append(time.perf_counter() - start)
        seconds, used = time.perf_counter() - begin, time.process_time() - cpu
        yield {"phase": "store", "rate": round(count * BATCH / seconds), **percentiles(walls),
               "cpu_ms": f"{used / count * 1e3:.2f}"}  # fmt: skip
        cpu = time.process_time()
        for batch in micro_batches(store.rows, count):
            steps = store.rules.sift(store.rows, [Pending(batch)], store.number)
            store.engine.commit(store.rows, store.engine.moved(store.rows, steps))
        used = time.process_time() - cpu
        yield {"phase": "store, computing", "rate": round(count * BATCH / used), "cpu_ms": f"{used / count * 1e3:.2f}"}


def measure_one(path: pathlib.Path, count: int) -> dict[str, Any]:
    """CPU time of one update with its forecast, without log and HTTP."""
    seconds = []
    with open_store(path) as store:
        for row in range(count):
            picked = np.array([row])
            one = (np.array([NO_SEQUENCE]), np.array([[100.0]]), np.zeros((1, 0)))
            given = Observations([store.rows.names[row]], store.rows.end[picked], *one)
            start = time.process_time()
            steps = store.rules.sift(store.rows, [Pending(given)], store.number)
            store.engine.commit(store.rows, store.engine.moved(store.rows, steps))
            (forecast,) = store.engine.forecasts(store.rows, picked, 7)
            forecast.quantiles((0.1, 0.5, 0.9))  # pyright: ignore[reportAttributeAccessIssue]
            seconds.append(time.process_time() - start)
    return {"phase": "computing, one", **percentiles(seconds[20:])}


def measure_flush(folder: pathlib.Path, count: int) -> dict[str, Any]:
    """What the disk takes for 200 bytes."""
    seconds = []
    with tempfile.NamedTemporaryFile(dir=folder) as file:
        for _ in range(count):
            start = time.perf_counter()
            os.write(file.fileno(), bytes(200))
            os.fdatasync(file.fileno())
            seconds.append(time.perf_counter() - start)
    return {"phase": "flush", **percentiles(seconds)}


@contextlib.contextmanager
def serving(path: pathlib.Path, *more: str) -> Iterator[tuple[int, int]]:
    """Port and process of a service in a process of its own."""
    command = [sys.executable, "-c", COMMAND, "live", "serve", str(path), "--port", "0", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                yield int(found[1]), process.pid
                break
        else:
            sys.exit("the service did not begin")
    finally:
        process.terminate()
        process.wait()


def cpu_of(process: int) -> float:
    """CPU seconds of a process."""
    fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client:
    """A connection that is kept: as little as it takes, so that the client is not what is measured."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Client":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of an answer."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", answer)[1])  # pyright: ignore
        found = await self.reader.readexactly(length)
        if not answer.startswith(b"HTTP/1.1 200"):
            sys.exit(f"{answer!r} {found!r}")
        return found


def body_of(items: list[str], times: list[str], values: list[float], **more: Any) -> bytes:
    """A request of observations."""
    found = [{"item": i, "time": t, "value": v} for i, t, v in zip(items, times, values, strict=True)]
    return json.dumps({"observations": found, **more}).encode()


def names_and_times(path: pathlib.Path, count: int) -> tuple[list[str], list[tuple[str, ...]]]:
    """Series of a store, and the next periods of each, in the order of time."""
    with open_store(path) as store:
        calendar, ends = store.engine.calendar, store.rows.end[: len(store.rows)].tolist()
        first = {end: calendar.stamps(end, count) for end in set(ends)}
        return list(store.rows.names), [first[end] for end in ends]


async def post_batches(port: int, bodies: list[bytes], together: int) -> list[float]:
    """Seconds of each request, of which so many wait at a time."""
    seconds, left = [], iter(bodies)

    async def work() -> None:
        async with Client(port) as client:
            for body in left:
                start = time.perf_counter()
                answer = await client.ask("POST", "/observations", body)
                seconds.append(time.perf_counter() - start)
                assert json.loads(answer)["counts"] == {"applied": BATCH}, answer[:200]

    await asyncio.gather(*(work() for _ in range(together)))
    return seconds


def measure_http(path: pathlib.Path, count: int) -> dict[str, Any]:
    """Requests of a thousand observations."""
    names, times = names_and_times(path, count * BATCH // 1000 + 1)
    pick = [(k % len(names), k // len(names)) for k in range(count * BATCH)]
    bodies = [
        body_of([names[r] for r, _ in some], [times[r][t] for r, t in some], [100.0 + r % 7 for r, _ in some])
        for some in (pick[first : first + BATCH] for first in range(0, len(pick), BATCH))
    ]
    with serving(path) as (port, process):
        asyncio.run(post_batches(port, bodies[:5], 1))
        cpu, start = cpu_of(process), time.perf_counter()
        seconds = asyncio.run(post_batches(port, bodies[5:], 4))
        wall, used = time.perf_counter() - start, cpu_of(process) - cpu
    rate = round(len(seconds) * BATCH / wall)
    return {"phase": "http", "rate": rate, **percentiles(seconds), "cpu_ms": f"{used / len(seconds) * 1e3:.2f}"}


async def pairs(port: int, jobs: list[tuple[bytes, str | None]], rate: float, together: int) -> dict[str, list[float]]:
    """Seconds of updates and forecasts that begin at fixed times; by one request where there is no path of another."""
    seconds: dict[str, list[float]] = {}
    free: asyncio.Queue[Client] = asyncio.Queue()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(together):
            free.put_nowait(await stack.enter_async_context(Client(port)))
        begin = time.perf_counter() + 1  # when all tasks are there

        async def one(number: int, body: bytes, path: str | None) -> None:
            due = begin + number / rate
            await asyncio.sleep(due - time.perf_counter())
            client = await free.get()
            start = time.perf_counter()
            await client.ask("POST", "/observations", body)
            between = time.perf_counter()
            found = {"update with forecast": between - due}
            if path is not None:
                await client.ask("GET", path)
                end = time.perf_counter()
                found = {"update": between - start, "forecast": end - between, "update and forecast": end - due}
            free.put_nowait(client)
            for name, value in found.items():
                seconds.setdefault(name, []).append(value)

        await asyncio.gather(*(one(k, *job) for k, job in enumerate(jobs)))
    return seconds


def measure_latency(path: pathlib.Path, rate: float, span: float, requests: int) -> Iterator[dict[str, Any]]:
    """One update with a forecast, by one or two requests, so many a second."""
    names, times = names_and_times(path, 1)
    count = min(int(rate * span), len(names))
    order = np.random.default_rng(2).permutation(len(names))[:count].tolist()
    more = {"forecast": {}} if requests == 1 else {}
    jobs = [
        (
            body_of([names[r]], list(times[r]), [101.0], **more),
            None if more else f"/forecasts?item={names[r].replace(' ', '%20')}",
        )
        for r in order
    ]
    warm, jobs = jobs[:100], jobs[100:]
    gc.disable()  # else the client looks through all of its tasks now and then, and its pauses count as the service's
    with serving(path) as (port, process):
        asyncio.run(pairs(port, warm, rate, 32))
        cpu, start = cpu_of(process), time.perf_counter()
        found = asyncio.run(pairs(port, jobs, rate, 32))
        wall, used = time.perf_counter() - start, cpu_of(process) - cpu
    for name, seconds in found.items():
        row = {"phase": f"{name}, {rate:g}/s", "rate": round(len(jobs) / wall), **percentiles(seconds)}
        yield row | ({"cpu_ms": f"{used / len(jobs) * 1e3:.2f}"} if "update " in name else {})


def measure_memory(path: pathlib.Path) -> Iterator[dict[str, Any]]:
    """What a store takes in memory once it is open."""
    load_predictor(path / PREDICTOR, "cpu").filter(entries(2))
    before = _resident("VmRSS")
    start = time.perf_counter()
    with open_store(path) as store:
        opened = time.perf_counter() - start
        known = store.rows
        arrays = sum(part.nbytes for part in known.parts) + sum(
            getattr(known, name).nbytes for name in ("end", "sequence", "exponents")
        )
        parts = known.parts[0].nbytes + known.parts[1].nbytes
        grown = _resident("VmRSS") - before
        for phase, mib in (("memory, beliefs", parts / 2**20), ("memory, arrays", arrays / 2**20), ("memory", grown)):
            yield {"phase": phase, "mib": f"{mib:.1f}"}
        yield {"phase": "opening", "p50_ms": f"{opened * 1e3:.0f}"}
        store.observe([next(iter(micro_batches(known, 1)))])
        start = time.perf_counter()
        store.snapshot()
        yield {"phase": "snapshot", "p50_ms": f"{(time.perf_counter() - start) * 1e3:.0f}"}


def main() -> None:
    """Measures all phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=10_000, help="of the phases about speed")
    parser.add_argument("--memory", type=int, default=100_000, help="series of the phase about memory; 0 for none")
    parser.add_argument("--batches", type=int, default=100, help="of a thousand observations")
    parser.add_argument("--rates", type=float, nargs="+", default=[50, 200], help="updates with forecasts a second")
    parser.add_argument("--seconds", type=float, default=10, help="of the phase about latency")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "benchmarks" / "results" / "live.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    provenance(options.out)
    versions = f"torch {torch.__version__}; python {platform.python_version()}"
    facts = {"hardware": hardware("cpu"), "versions": versions}
    found = []

    def keep(row: dict[str, Any], series: int) -> None:
        common = facts | {"folder": str(options.folder), "series": series}
        found.append(common | {"load": f"{os.getloadavg()[0]:.1f}"} | row)
        print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)

    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        path = pathlib.Path(scratch, "store")
        if options.series:
            make_store(path, options.series)
            keep(measure_flush(pathlib.Path(scratch), 300), options.series)
            for row in measure_store(path, options.batches):
                keep(row, options.series)
            keep(measure_one(path, 320), options.series)
        if options.series:
            keep(measure_http(path, options.batches), options.series)
            for rate, requests in itertools.product(options.rates, (1, 2)):
                for row in measure_latency(path, rate, options.seconds, requests):
                    keep(row, options.series)
        if options.memory:
            make_store(path.with_name("large"), options.memory)
            for row in measure_memory(path.with_name("large")):
                keep(row, options.memory)
    rows.write(options.out, found, KEY, COLUMNS)


if __name__ == "__main__":
    main()
