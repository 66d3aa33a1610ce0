"""A service that is killed under load has every observation that it acknowledged, and none twice.

Moments are drawn by a seed; `TSFORECAST_KILLS=30 pytest tests/live/test_kills.py` takes more.
"""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.forecasting.test_estimator import make_entries
from tests.live.stores import begun, day, make_store, observations
from tsforecast.live import log as logs
from tsforecast.live.count import Count
from tsforecast.live.description import read_description
from tsforecast.live.opening import open_store
from tsforecast.live.steps import Steps
from tsforecast.live.store import count_of, log_of

pytest.importorskip("fastapi")

KILLS = int(os.environ.get("TSFORECAST_KILLS", "2"))
CLIENTS, ITEMS = 3, 4  # each client has series of its own
BEGIN = day("2024-01-01")

# A process that has imported everything, and forks for each service: the import takes seconds.
_SERVER = """
import json, os, sys
import tsforecast.cli.live, tsforecast.live.app, tsforecast.live.metrics, uvicorn, uvloop, httptools
from tsforecast.cli import main

for line in sys.stdin:
    order = json.loads(line)
    if "ended" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["ended"], 0)[1]), flush=True)
        continue
    process = os.fork()
    if not process:
        said = os.open(order["said"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        os._exit(main(order["argv"]))
    print(process, flush=True)
"""


class Services:
    """Starts services, and waits until they are gone."""

    def __init__(self, folder):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self.said = folder / "said"
        self.server = subprocess.Popen(
            [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, path, *options):
        """Returns process and port."""
        self.said.unlink(missing_ok=True)
        argv = ["live", "serve", str(path), "--port", "0", *map(str, options)]
        process = self._ask({"argv": argv, "said": str(self.said)})
        for _ in range(3000):
            said = self.said.read_text() if self.said.exists() else ""
            if found := re.search(r"http://127\.0\.0\.1:(\d+)\n", said):
                return process, int(found[1])
            time.sleep(0.01)
        raise AssertionError(said)

    def stop(self, process, number):
        os.kill(process, number)
        return self._ask({"ended": process})

    def close(self):
        self.server.stdin.close()
        self.server.wait()
        self.server.stdout.close()

    def _ask(self, order):
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())


class Client(threading.Thread):
    """Sends the next value of each of its series until the service is gone; what was not answered is sent again."""

    def __init__(self, port, places):
        super().__init__()
        self.port, self.places = port, places
        self.acknowledged, self.repeated = 0, 0
        self.problem = None

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while self.problem is None:
            rows = [observation(item, place) for item, place in self.places.items()]
            try:
                text = json.dumps({"observations": rows})
                connection.request("POST", "/observations", text, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                content = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                return
            counts = content.get("counts", {})
            if answer.status != 200 or counts.get("applied", 0) + counts.get("repeated", 0) != len(rows):
                self.problem = answer.status, content
                return
            for item in self.places:
                self.places[item] += 1
            self.acknowledged += 1
            self.repeated += counts.get("repeated", 0)


def value(item, place):
    return float(10 + sum(item.encode()) % 7 + np.sin(place))


def observation(item, place):
    time = str(np.datetime64("2024-01-01") + place)
    return {"item": item, "time": time, "value": value(item, place), "sequence": place}


def logged(path):
    """Row and period of each observation in the log of a store that nobody has open."""
    key, found = read_description(path).key, []
    count = Count(count_of(path), key)
    for contents, _ in logs.read(log_of(path, count.first), key, count.first, count.end):
        steps = Steps.from_bytes(contents)
        found += zip(steps.rows.tolist(), steps.ordinals.tolist(), strict=True)
    return found


@pytest.mark.usefixtures("unchecked_types")
def test_acknowledged_observations_outlive_kills_and_none_counts_twice(tmp_path):
    path = make_store(tmp_path, entries=begun(make_entries(count=2)), warm_up=6)
    never = tmp_path / "never"
    shutil.copytree(path, never)
    rng = np.random.default_rng(0)
    services = Services(tmp_path)
    places = [{f"client {c} item {k}": 0 for k in range(ITEMS)} for c in range(CLIENTS)]
    try:
        for number in range(KILLS):
            every = (10_000, 30)[number % 2]  # with snapshots under way, and without
            process, port = services.start(path, "--snapshot_every", every)
            clients = [Client(port, series) for series in places]
            for client in clients:
                client.start()
            wanted, deadline = 1 + rng.integers(0, 15), time.monotonic() + 60
            while sum(client.acknowledged for client in clients) < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.03))
            assert services.stop(process, signal.SIGKILL) == -signal.SIGKILL
            for client in clients:
                client.join()
                assert client.problem is None
            assert sum(client.acknowledged for client in clients) >= wanted
            found = logged(path)
            assert len(found) == len(set(found))
            with open_store(path) as store:
                check_places(store, places)
        process, port = services.start(path)
        assert ask_health(port) == "ok"
        assert services.stop(process, signal.SIGTERM) in (0, -signal.SIGTERM)  # uvicorn ends by the signal that it got
        assert not logged(path)  # a service that ends leaves a snapshot
    finally:
        services.close()
    check_beliefs(path, never, places)


def ask_health(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/health")
    return json.loads(connection.getresponse().read())["status"]


def check_places(store, places):
    """Every series has seen what was acknowledged, and at most the one request that was under way."""
    for series in places:
        for item, place in series.items():
            if item not in store.rows.index:
                assert place == 0
                continue
            row = store.rows.index[item]
            seen = int(store.rows.sequence[row]) + 1
            assert seen in (place, place + 1)
            assert int(store.rows.end[row]) - BEGIN == seen


def check_beliefs(path, never, places):
    """The beliefs are those of a store that took every value once, one period after the other."""
    with open_store(path) as store, open_store(never) as other:
        seen = {item: int(store.rows.sequence[store.rows.index[item]]) + 1 for series in places for item in series}
        for place in range(max(seen.values())):
            items = [item for item, count in seen.items() if place < count]
            values = [value(item, place) for item in items]
            ((*outcomes,),) = other.observe([observations(items, [BEGIN + place] * len(items), values)])
            assert set(outcomes) == {"applied"}
        order = np.array([other.rows.index[name] for name in store.rows.names])
        rows = np.arange(len(order))
        for mine, theirs in zip(store.rows.gather(rows), other.rows.gather(order), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-4, atol=1e-4)
