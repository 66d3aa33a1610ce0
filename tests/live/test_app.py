"""The service over HTTP: answers, refusals, limits and names that mean harm."""

import asyncio
import json
import os
import threading
from urllib.parse import quote

import numpy as np
import pytest
import torch

from tests.forecasting.test_estimator import HORIZON, make_entries, make_estimator
from tests.live.stores import Source, begin_store, make_store, observations, save_predictor
from tsforecast.live import guard
from tsforecast.live.guard import LOOPBACK, Guard, Limits, read_token
from tsforecast.live.opening import open_store
from tsforecast.live.owner import Owner, Wanted
from tsforecast.live.rules import Pending

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from tsforecast.live.app import Sizes, make_app
from tsforecast.live.metrics import Metrics

pytestmark = pytest.mark.usefixtures("unchecked_module")  # those of the engine look at types

TOKEN = "a-token-of-some-letters"
NAMES = [
    "../../etc/passwd",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "a\x00b",
    "' OR 1=1 --",
    "ü\u2028",
    "%2e%2e%2f",
    " ",
    "🐘",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(make_store(tmp_path_factory.mktemp("live")), max_items=40, max_gap=50) as store:
        yield store


@pytest.fixture(scope="module")
def client(store):
    app = make_app(Owner(store), Sizes(observations=100, items=20, cells=2000))
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def send(client, *rows, **more):
    return client.post("/observations", json={"observations": list(rows), **more})


def row(item, time, value=1.0, **more):
    return {"item": item, "time": time, "value": value, **more}


def next_time(client, item):
    return client.get(f"/items/{item}").json()["next_time"]


def test_observations_move_a_series_and_its_forecasts(client):
    before = next_time(client, "s0")
    forecast = client.get("/forecasts", params={"item": "s0", "steps": 2}).json()["forecasts"][0]
    assert forecast["times"][0] == before
    answer = send(client, row("s0", before, 9.0, sequence=3), row("s0", before, 9.0), row("s0", "2024-01-02", 9.0))
    assert answer.json() == {"counts": {"applied": 1, "repeated": 1, "late": 1}, "refused": []}
    later = client.get("/forecasts", params={"item": "s0", "steps": 2}).json()["forecasts"][0]
    assert later["times"] == [forecast["times"][1], next_time_after(forecast["times"][1])]
    assert later["mean"][0] > forecast["mean"][1]
    assert client.get("/items/s0").json()["sequence"] == 3


def test_observations_are_answered_by_forecasts_where_these_are_wanted(tmp_path):
    """By those of another request, of the series that there are; where the wish is wrong, nothing is applied."""
    store = open_store(make_store(tmp_path), max_items=7, max_gap=50)
    with store as opened, TestClient(make_app(Owner(opened)), base_url="http://localhost") as client:
        time = next_time(client, "s0")
        rows = [row("s0", time, 9.0), row("s1", "2030-01-01"), row("s0", next_time_after(time), 8.0)]
        rows += [row(f"new {k}", "2030-01-01") for k in range(5)]
        body = {"observations": rows, "forecast": {"steps": 2}}
        assert client.post("/observations", json={**body, "forecast": {"steps": HORIZON + 1}}).status_code == 422
        answer = client.post("/observations", json=body).json()
        assert answer["counts"] == {"applied": 4, "gap": 1, "full": 3}
        assert [one["item"] for one in answer["forecasts"]] == ["s0", "s1", "new 0", "new 1"]
        alone = client.get("/forecasts", params={"item": ["s0", "s1"], "steps": 2}).json()["forecasts"]
        for one, other in zip(answer["forecasts"], alone, strict=False):
            assert one["times"] == other["times"]
            np.testing.assert_allclose(one["quantiles"]["0.9"], other["quantiles"]["0.9"], rtol=1e-5)
        body = {"observations": rows[-1:], "forecast": {}}
        assert client.post("/observations", json=body).json()["forecasts"] == []


def next_time_after(time):
    return str(np.datetime64(time) + np.timedelta64(1, "D"))


def test_forecasts_are_those_of_the_predictor(client, store):
    request = {"items": ["s1", "s3"], "quantiles": [0.05, 0.5, 0.95], "known": {"s3": [None, 4.5]}, "paths": 3}
    answer = client.post("/forecasts", json=request)
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["forecasts"]
    assert (first["item"], second["item"], len(first["times"])) == ("s1", "s3", HORIZON)
    (expected,) = store.engine.forecasts(store.rows, np.array([1]), HORIZON)
    for level in (0.05, 0.5, 0.95):
        np.testing.assert_allclose(first["quantiles"][f"{level:g}"], expected.quantile(level), rtol=1e-5)
    np.testing.assert_allclose(first["mean"], expected.mean, rtol=1e-5)
    assert second["quantiles"]["0.05"][1] == second["quantiles"]["0.95"][1] == pytest.approx(4.5)
    assert np.shape(second["paths"]) == (3, HORIZON)
    np.testing.assert_allclose(np.array(second["paths"])[:, 1], 4.5, rtol=1e-6)


@pytest.mark.parametrize("model", ["issm", "rsgls-issm"])
def test_the_same_request_has_the_same_paths_also_after_a_restart(tmp_path, model):
    """Whatever is asked or observed of other series; with the next value of its own series it has others."""
    path = make_store(tmp_path, model)
    asked, found = {"items": ["s1", "s3"], "steps": 3, "paths": 4}, []

    def paths():
        return [one["paths"] for one in client.post("/forecasts", json=asked).json()["forecasts"]]

    for restart in range(2):
        with open_store(path) as store, TestClient(make_app(Owner(store)), base_url="http://localhost") as client:
            found.append(paths())
            if not restart:
                client.post("/forecasts", json={"items": ["s0"], "paths": 7})
                send(client, row("s0", next_time(client, "s0"), 9.0))
            found.append(paths())
    assert found[0] == found[1] == found[2] == found[3]
    with open_store(path) as store, TestClient(make_app(Owner(store)), base_url="http://localhost") as client:
        send(client, row("s1", next_time(client, "s1"), None))
        assert np.abs(np.subtract(paths(), found[0])).min() > 0


def test_unknown_arguments_in_an_address_are_refused(client):
    for path in ("/forecasts?item=s0&quantil=0.9", "/items/s0?step=2"):
        assert client.get(path).status_code == 422
        assert "Extra inputs" in client.get(path).json()["detail"][0]["fault"]
    assert client.get("/health?probe=1").status_code == 200


def test_paths_of_another_seed_are_others(tmp_path):
    found = []
    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
        with open_store(make_store(tmp_path / str(seed), seed=seed)) as store:
            found.append(Owner(store).forecast(Wanted(["s1"], 2, (0.5,), 3)).result()[0].paths)
    assert np.abs(found[0] - found[1]).min() > 0


def held_up(owner):
    """Lets the owner wait until an event is set, so that requests wait together."""
    begun, free = threading.Event(), threading.Event()
    owner.ask(lambda _: (begun.set(), free.wait(60)))
    assert begun.wait(60)
    return free


@pytest.fixture
def unhurried(monkeypatch):
    """Micro-batches that do not become smaller on a busy machine."""
    monkeypatch.setattr("tsforecast.live.room._SECONDS", 1e9)
    monkeypatch.setattr("tsforecast.live.room._FIRST", 1 << 20)


@pytest.mark.usefixtures("unhurried")
def test_a_large_request_is_taken_in_parts_between_which_small_ones_have_their_turns(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        owner, order = Owner(store, batch=100), []
        first, second = store.rows.end[:2].tolist()
        free = held_up(owner)
        large = owner.observe(observations(["s0"] * 1000, first + np.arange(1000), np.ones(1000)))
        asked = [
            ("large", large),
            ("its forecast", owner.forecast(Wanted(["s0"], 1, (0.5,)), large)),
            ("many forecasts", owner.forecast(Wanted(["s1"] * 600, 1, (0.5,)))),
            ("small", owner.observe(observations(["s1"], [second], [1.0]))),
            ("small forecast", owner.forecast(Wanted(["s1"], 1, (0.5,)))),
        ]
        for name, answer in asked:
            answer.add_done_callback(lambda _, name=name: order.append(name))
        free.set()
        found = dict(asked)
        assert large.result(60) == ["applied"] * 1000
        assert found["its forecast"].result(60)[0].start == first + 1000
        assert [one.start for one in found["many forecasts"].result(60)] == [second + 1] * 600
        assert order[:2] == ["small", "small forecast"]
        assert order.index("large") < order.index("its forecast")
        assert store.number == 1 + 10
        assert owner.waiting == owner._numbers == 0
        owner.close()


@pytest.mark.usefixtures("unhurried")
def test_small_requests_do_not_share_a_micro_batch_with_large_ones(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        owner, order = Owner(store), []
        first, second = store.rows.end[:2].tolist()
        free = held_up(owner)
        for items, begin in ((["s0"] * 200, first), (["s1"], second)):
            given = observations(items, begin + np.arange(len(items)), np.ones(len(items)))
            owner.observe(given).add_done_callback(lambda answer: order.append(len(answer.result())))
        free.set()
        owner.close()
        assert (order, store.number) == ([1, 200], 2)


def test_paths_do_not_depend_on_what_is_asked_at_the_same_time(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        owner = Owner(store)
        wanted = [Wanted([item], 2, (0.5,), 3) for item in ("s1", "s2")]
        alone = [owner.forecast(one).result(60)[0].paths for one in wanted]
        free = held_up(owner)
        together = [owner.forecast(one) for one in wanted]
        free.set()
        for one, answer in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one, answer.result(60)[0].paths)
        owner.close()


@pytest.mark.usefixtures("unhurried")
def test_gaps_take_room_and_what_is_left_waits_its_turn(tmp_path):
    with open_store(make_store(tmp_path)) as store:
        owner = Owner(store, batch=100)
        ends = store.rows.end[:5] + 150
        answer = owner.observe(observations([f"s{k}" for k in range(5)], ends, np.ones(5)))
        assert answer.result(60) == ["applied"] * 5
        assert store.number == 8  # of 755 steps at most 100 in each
        assert (store.rows.end[:5] == ends + 1).all()
        owner.close()


@pytest.mark.usefixtures("unhurried")
def test_a_small_request_is_answered_within_the_gap_of_another(tmp_path):
    """And what comes of the gap is what comes of it at once, but for rounding."""
    ends, order = {}, []
    for room in (100, 5000):
        (tmp_path / str(room)).mkdir()
        with open_store(make_store(tmp_path / str(room))) as store:
            owner = Owner(store, batch=room)
            first, second = store.rows.end[:2].tolist()
            free = held_up(owner)
            for item, ahead, count in (("s0", first + 900, 70), ("s1", second, 1)):
                given = observations([item] * count, ahead + np.arange(count), np.ones(count))
                owner.observe(given).add_done_callback(lambda answer: order.append(answer.result()))
            free.set()
            owner.close()
            assert store.number == (11 if room == 100 else 2)
            ends[room] = [part[:2].clone() for part in store.rows.parts], store.rows.end[:2].tolist()
    assert order == [["applied"], ["applied"] * 70] * 2
    assert ends[100][1] == ends[5000][1] == [first + 970, second + 1]
    for some, others in zip(ends[100][0], ends[5000][0], strict=True):
        torch.testing.assert_close(some, others, equal_nan=True)


def test_a_gap_taken_in_parts_counts_once_against_the_bound(tmp_path):
    with open_store(make_store(tmp_path), max_gap=50) as store:
        end = int(store.rows.end[0])
        request = Pending(observations(["s0"] * 3, [end + 40, end + 51, end + 60], np.ones(3)))
        rounds = 0
        while not request.is_done:
            store.advance([request], 8)
            rounds += 1
        assert (request.outcomes, rounds) == (["applied", "applied", "gap"], 8)  # six to the first, two to the second
        assert store.rows.end[0] == end + 52


def test_a_request_with_which_the_program_fails_fails_alone(tmp_path, monkeypatch):
    with open_store(make_store(tmp_path)) as store:
        owner, real = Owner(store), store.engine.moved
        ends = store.rows.end[:3].tolist()

        def moved(known, steps):
            if 1 in steps.rows:
                raise ArithmeticError
            return real(known, steps)

        monkeypatch.setattr(store.engine, "moved", moved)
        free = held_up(owner)
        answers = [owner.observe(observations([f"s{k}"], [ends[k]], [1.0])) for k in range(3)]
        free.set()
        assert [answers[k].result(60) for k in (0, 2)] == [["applied"], ["applied"]]
        with pytest.raises(ArithmeticError):
            answers[1].result(60)
        assert store.rows.end[:3].tolist() == [ends[0] + 1, ends[1], ends[2] + 1]
        owner.close()


def test_more_forecasts_than_may_wait_are_turned_away(store, monkeypatch):
    monkeypatch.setattr("tsforecast.live.owner._MOST_NUMBERS", 10)
    owner = Owner(store)
    client = guarded(owner)
    assert client.get("/forecasts", params={"item": "s0", "steps": 3}).status_code == 503
    assert client.get("/forecasts", params={"item": "s0", "steps": 2}).status_code == 200
    owner.close()


def test_a_fault_of_one_request_is_not_that_of_another(store):
    """Requests that wait together are computed together."""

    owner = Owner(store)
    far = np.full((1, 1, 1), 1e30)
    asked = [
        owner.forecast(Wanted([item], 1, (0.5,), 0, future))
        for item, future in (("s1", None), ("nobody", None), ("s2", far), ("s2", None))
    ]
    assert asked[0].result()[0].quantiles.shape == (1, 1)
    with pytest.raises(KeyError):
        asked[1].result()
    with pytest.raises(ValueError, match="known_future"):
        asked[2].result()
    assert asked[3].result()[0].quantiles.shape == (1, 1)
    owner.close()


def test_a_new_series_begins_and_the_room_for_them_ends(client):
    assert send(client, row("begins", "2030-01-01")).json()["counts"] == {"applied": 1}
    found = client.get("/items/begins").json()
    assert found["warming_up"]
    missing = client.get("/items/nobody")
    assert missing.status_code == 404
    assert "'nobody'" in missing.text
    answer = send(client, *(row(f"many {k}", "2030-01-01") for k in range(60))).json()
    assert answer["counts"]["full"] >= 20
    assert "as many series" in answer["refused"][0]["reason"]
    assert send(client, row("begins", "2040-01-01")).json()["counts"] == {"applied": 0, "gap": 1}


@pytest.mark.parametrize(
    "body",
    [
        {"observations": [{"item": "s0", "time": "2030-01-01"}]},
        {"observations": [row("s0", "2030-01-01", "3")]},
        {"observations": [row("s0", "2030-01-01", True)]},
        {"observations": [row("s0", "2030-01-01", [1.0, 2.0])]},
        {"observations": [row("s0", "yesterday")]},
        {"observations": [row("s0", 20300101)]},
        {"observations": [row("s0", "2030-01-01T00:00:00Z")]},
        {"observations": [row("", "2030-01-01")]},
        {"observations": [row("x" * 201, "2030-01-01")]},
        {"observations": [row(5, "2030-01-01")]},
        {"observations": [row("s0", "2030-01-01", sequence=1.5)]},
        {"observations": [row("s0", "2030-01-01", sequence=-1)]},
        {"observations": [row("s0", "2030-01-01", covariates=[1.0])]},
        {"observations": [row("s0", "2030-01-01", weight=1)]},
        {"observations": [], "model": "x"},
        {"observations": {}},
        [],
        None,
    ],
)
def test_what_is_not_an_observation_is_refused_and_nothing_of_it_applied(client, store, body):
    before = store.number
    if isinstance(body, dict) and isinstance(body["observations"], list):
        body = {**body, "observations": [row("s4", next_time(client, "s4")), *body["observations"]]}
    answer = client.post("/observations", json=body)
    assert answer.status_code == 422, answer.text
    assert store.number == before
    assert "x" * 50 not in answer.text  # what was sent is not repeated


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1e301"])
def test_numbers_that_are_none_are_refused(client, value):
    text = '{"observations": [{"item": "s0", "time": "2030-01-01", "value": ' + value + "}]}"
    answer = client.post("/observations", content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 50_000, '{"observations": [{"item": "\\ud800", "time": "", "value": 1}]}', "\xff"]
)
def test_what_is_no_json_is_refused(client, text):
    answer = client.post("/observations", content=text.encode("latin-1"), headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"items": []}, 422),
        ({"items": ["nobody"]}, 404),
        ({"items": ["s1"] * 21}, 413),
        ({"paths": 1000}, 413),
        ({"steps": 0}, 422),
        ({"steps": HORIZON + 1}, 422),
        ({"quantiles": [0.0]}, 422),
        ({"quantiles": [1.5]}, 422),
        ({"quantiles": []}, 422),
        ({"known": {"s2": [1.0]}}, 422),
        ({"known": {"s1": [1.0] * (HORIZON + 1)}}, 422),
        ({"known": {"s1": [[1.0, 2.0]]}}, 422),
        ({"known": {"s1": [1e30]}}, 422),
        ({"covariates": {"s1": [[1.0]]}}, 422),
        ({"seed": 1}, 422),
    ],
)
def test_forecasts_that_can_not_be_made_are_refused(client, change, status):
    answer = client.post("/forecasts", json={"items": ["s1"], **change})
    assert answer.status_code == status
    assert ("'nobody'" in answer.text) == (status == 404)


def test_names_are_data(tmp_path):
    path = make_store(tmp_path)
    with open_store(path) as store, TestClient(make_app(Owner(store)), base_url="http://localhost") as client:
        files = sorted(path.rglob("*"))
        for name in NAMES:
            assert send(client, row(name, "2030-01-01")).json()["counts"] == {"applied": 1}
            assert client.post("/forecasts", json={"items": [name]}).json()["forecasts"][0]["item"] == name
            found = client.get("/items/" + quote(name, safe=""))
            if not name.startswith(("..", "%")):  # clients take dots out of a path, and this one decodes it twice
                assert found.json()["item"] == name
        assert sorted(path.rglob("*")) == files


def test_too_many_observations_are_refused(client):
    assert send(client, *(row("s0", "2030-01-01") for _ in range(101))).status_code == 413


def guarded(owner, **limits):
    return TestClient(Guard(make_app(owner), Limits(**limits)), base_url="http://localhost")


@pytest.fixture
def answering(store):
    """An owner for a test of what comes before him, who is not started with the client."""
    owner = Owner(store)
    yield owner
    owner.close()


def test_requests_need_the_token_all_but_health(answering):
    client = guarded(answering, token=TOKEN)
    assert client.get("/health").json()["status"] == "ok"
    for headers in ({}, {"Authorization": TOKEN}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer "}):
        for path in ("/items/s0", "/openapi.json", "/forecasts?item=s0"):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.post("/observations", json={"observations": []}, headers=headers).status_code == 401
    known = {"Authorization": f"Bearer {TOKEN}"}
    assert client.get("/items/s0", headers=known).status_code == 200
    assert "/observations" in client.get("/openapi.json", headers=known).json()["paths"]


def test_a_page_of_a_browser_reaches_nothing(answering):
    client = guarded(answering, hosts=LOOPBACK)
    assert client.get("/health", headers={"Host": "evil.example"}).status_code == 421
    assert client.get("/health", headers={"Host": "localhost:8000"}).status_code == 200
    assert client.get("/health", headers={"Host": "[::1]:8000"}).status_code == 200
    body = json.dumps({"observations": []})
    assert client.post("/observations", content=body, headers={"content-type": "text/plain"}).status_code == 415
    assert client.post("/observations", content=body).status_code == 415


def test_bodies_and_rates_have_limits(answering):
    client = guarded(answering, most_bytes=1000)
    parts = (b"x" * 100 for _ in range(20))
    headers = {"content-type": "application/json"}
    assert client.post("/observations", content=b"x" * 1001, headers=headers).status_code == 413
    assert client.post("/observations", content=parts, headers=headers).status_code == 413
    assert client.post("/observations", json={"observations": []}).status_code == 200
    client = guarded(answering, rate=0.001, burst=3)
    assert [client.get("/health").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert client.get("/health").headers["retry-after"] == "1"


def test_a_client_that_was_quiet_for_long_has_no_more_at_once_than_others(answering, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("tsforecast.live.guard.time.monotonic", lambda: now[0])
    client = guarded(answering, rate=2.0, burst=3)
    statuses = lambda count: [client.get("/health").status_code for _ in range(count)]  # noqa: E731
    assert statuses(4) == [200, 200, 200, 429]
    now[0] += 1.0  # two more
    assert statuses(3) == [200, 200, 429]
    now[0] += 1000.0
    assert statuses(4) == [200, 200, 200, 429]


def test_bodies_of_many_values_are_not_looked_into(answering):
    """A million empty objects would cost gigabytes of faults; of fewer the first fault is told."""
    client = guarded(answering, most_values=2000)
    headers = {"content-type": "application/json"}
    for text, status in (("{},", 413), ("[", 413), ("0,", 413), ("{},", 422)):
        count = 300 if status == 422 else 3000
        body = '{"observations": [' + text * count + ("{}]}" if text == "{}," else "")
        answer = client.post("/observations", content=body, headers=headers)
        assert answer.status_code == status, text
        if status == 413:
            assert answer.json()["detail"] == "expected a body of at most 2000 values; send fewer at a time"
        else:
            assert {tuple(one["place"][:2]) for one in answer.json()["detail"]} == {("observations", 0)}


@pytest.mark.parametrize("name", ["known", "covariates"])
def test_faults_of_many_series_are_not_all_told(client, name):
    body = {"items": ["s1"], name: {f"s{k}": ["x"] * 5 for k in range(1001)}}
    answer = client.post("/forecasts", json=body)
    assert (answer.status_code, len(answer.json()["detail"])) == (422, 1)
    assert "at most 1000 series" in answer.json()["detail"][0]["fault"]


def test_bodies_that_are_read_at_once_have_a_limit(answering):
    guard = Guard(make_app(answering), Limits(most_bytes=100))
    client = TestClient(guard, base_url="http://localhost")
    guard._held.bytes = 1590
    assert send(client).status_code == 503
    assert guard._held.bytes == 1590  # without the one that was refused
    guard._held.bytes = 0
    assert send(client).status_code == 200
    assert guard._held.bytes == 0


def test_a_client_of_many_faults_waits_for_its_answers_and_nobody_else_does(monkeypatch):
    """Neither others, nor its other requests; the bodies are dropped before, and few connections are kept."""
    pauses, free = [], asyncio.Event()

    async def paused(seconds):
        pauses.append(seconds)
        await free.wait()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run():
        guarded, statuses = Guard(app, Limits(most_bytes=100)), []

        async def ask(client, size):
            async def receive():
                return {"type": "http.request", "body": bytes(size), "more_body": False}

            async def send(message):
                statuses.extend([(client, message["status"])] if "status" in message else [])

            head = [(b"content-type", b"application/json")]
            scope = {"type": "http", "method": "POST", "path": "/", "headers": head, "client": (client, 1)}
            await guarded(scope, receive, send)

        many = [asyncio.create_task(ask("hostile", 101)) for _ in range(50)]
        await asyncio.create_task(ask("other", 101))  # behind the others
        assert statuses == [("hostile", 413)] * (50 - guard._PAUSES) + [("other", 413)]
        assert pauses == [guard._PAUSE] * guard._PAUSES
        assert guarded._held.bytes == 0
        await ask("hostile", 99)
        assert statuses[-1] == ("hostile", 200)
        free.set()
        await asyncio.gather(*many)
        assert statuses.count(("hostile", 413)) == 50

    monkeypatch.setattr("tsforecast.live.guard.time.monotonic", lambda: 0.0)
    monkeypatch.setattr("tsforecast.live.guard.asyncio.sleep", paused)
    asyncio.run(run())


def test_metrics_count_requests_and_observations(answering):
    metrics = Metrics(answering)
    client = TestClient(Guard(make_app(answering, metrics=metrics), Limits(most_bytes=1000), metrics.note))
    assert send(client, row("s0", "2024-01-02")).json()["counts"] == {"applied": 0, "late": 1}
    assert client.get("/secret/item/1").status_code == 404
    assert (
        client.post("/observations", content=b" " * 2000, headers={"content-type": "application/json"}).status_code
        == 413
    )
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in (
        'tsforecast_observations_total{outcome="late"} 1.0',
        'tsforecast_requests_total{path="observations",status="200"} 1.0',
        'tsforecast_requests_total{path="observations",status="413"} 1.0',
        'tsforecast_requests_total{path="other",status="404"} 1.0',
        'tsforecast_request_seconds_count{path="observations"} 2.0',
        "tsforecast_healthy 1.0",
    ):
        assert line in answer.text.splitlines()
    assert "secret" not in answer.text


def test_a_store_whose_disk_has_failed_says_so(answering, store):
    client = guarded(answering)
    store.failed = True
    try:
        assert client.get("/health").status_code == 503
        answer = client.post("/observations", json={"observations": [row("s0", "2030-01-01")]})
        assert answer.status_code == 503
        assert client.get("/forecasts", params={"item": "s0"}).status_code == 200
    finally:
        store.failed = False


def test_a_full_disk_is_answered_by_507_and_the_service_goes_on_when_there_is_room(tmp_path, monkeypatch, caplog):
    path = make_store(tmp_path)
    with open_store(path) as store:
        client = guarded(owner := Owner(store, snapshot_every=1))
        time = next_time(client, "s0")

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "write", full)
        for _ in range(2):
            answer = send(client, row("s0", time))
            assert (answer.status_code, answer.json()) == (
                507,
                {"detail": "the disk is full; make room, and send again: what was applied before counts once"},
            )
            assert client.get("/health").json()["status"] == "ok"
            assert client.get("/forecasts", params={"item": "s0"}).status_code == 200
        monkeypatch.undo()
        monkeypatch.setattr("tsforecast.live.store.write_rows", full)  # and none for a snapshot
        assert send(client, row("s0", time)).json()["counts"] == {"applied": 1}
        assert send(client, row("s0", next_time(client, "s0"))).json()["counts"] == {"applied": 1}
        client.get("/health")
        monkeypatch.undo()
        ends = store.rows.end[0]
        owner.close()
        assert owner.tally["snapshots"] == 1
    assert "a snapshot could not be written ([Errno 28] No space left on device); the log goes on" in caplog.text
    assert "Traceback" not in caplog.text
    with open_store(path) as store:
        assert (store.rows.end[0], store.number) == (ends, 2)


def test_more_observations_than_may_wait_are_turned_away(store):
    owner = Owner(store, waiting=3)
    client = guarded(owner)
    rows = [row("s0", "2024-01-02") for _ in range(4)]
    assert client.post("/observations", json={"observations": rows}).status_code == 503
    assert client.post("/observations", json={"observations": rows[:3]}).status_code == 200
    owner.close()


@pytest.mark.parametrize("text", ["short", "two words of letters", "ünïcödë-token-of-letters", ""])
def test_a_token_is_one_word(tmp_path, text):
    path = tmp_path / "token"
    path.write_text(text)
    with pytest.raises(ValueError, match="expected a token"):
        read_token(path)
    path.write_text(f"{TOKEN}\n")
    assert read_token(path) == TOKEN


@pytest.mark.parametrize("effects", ["given", "curves"])
def test_covariates_come_with_observations_and_forecasts(tmp_path, effects):
    rng = np.random.default_rng(1)
    entries = [
        {**e, "feat_dynamic_real": 5 + rng.normal(size=(1, len(e["target"]) + HORIZON))} for e in make_entries(count=2)
    ]
    predictor = make_estimator("issm", epochs=1, effects=effects).train(entries)
    save_predictor(predictor, tmp_path / "predictor")
    first = [{**e, "target": e["target"][:30]} for e in entries]
    begin_store(tmp_path / "store", tmp_path / "predictor", [Source("all", lambda: first)], device="cpu")
    ends = {e["item_id"]: e["start"] + len(e["target"]) for e in entries}
    with (
        open_store(tmp_path / "store") as store,
        TestClient(make_app(Owner(store)), base_url="http://localhost") as client,
    ):
        for k in range(30, 41):
            rows = [
                row(e["item_id"], str(e["start"] + k), None if np.isnan(e["target"][k]) else float(e["target"][k]),
                    covariates=e["feat_dynamic_real"][:, k].tolist())
                for e in entries if k < len(e["target"])
            ]  # fmt: skip
            assert send(client, *rows).json()["counts"] == {"applied": len(rows)}
        assert send(client, row("s0", str(ends["s0"] + 1), covariates=[1.0])).json()["counts"]["covariates"] == 1
        assert send(client, row("s0", str(ends["s0"]))).status_code == 422
        given = {e["item_id"]: e["feat_dynamic_real"][:, len(e["target"]) :].T.tolist() for e in entries}
        answer = client.post("/forecasts", json={"items": ["s0", "s1"], "covariates": given})
        assert client.post("/forecasts", json={"items": ["s0"]}).status_code == 422
        news = [{**e, "start": e["start"] + 30, "target": e["target"][30:]} for e in entries]
        news = [{**e, "feat_dynamic_real": e["feat_dynamic_real"][:, 30:]} for e in news]
        whole = predictor.update(predictor.filter(first), news)
        futures = [
            {"item_id": e["item_id"], "feat_dynamic_real": e["feat_dynamic_real"][:, len(e["target"]) :]}
            for e in entries
        ]
        for mine, theirs in zip(
            answer.json()["forecasts"], predictor.forecast_from(whole, futures, num_samples=0), strict=True
        ):
            np.testing.assert_allclose(mine["quantiles"]["0.9"], theirs.quantile(0.9), rtol=1e-4)


def test_what_goes_wrong_in_the_program_is_not_told(answering, store, monkeypatch):
    client = TestClient(
        Guard(make_app(answering), Limits()), base_url="http://localhost", raise_server_exceptions=False
    )
    monkeypatch.setattr(store.engine.net.inference.__class__, "marginals", None)
    answer = client.get("/forecasts", params={"item": "s0"})
    assert answer.status_code == 500
    assert "NoneType" not in answer.text
