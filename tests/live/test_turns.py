"""Others have their turns while the service reads a large request, and while it writes a large answer."""

import asyncio
import json
import multiprocessing
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.live.stores import make_store, observations
from tsforecast.live import answers, form, room, wire
from tsforecast.live.opening import open_store
from tsforecast.live.owner import Found, Owner, Wanted
from tsforecast.live.room import Room

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient

from tsforecast.live.app import make_app
from tsforecast.live.service import Service, Sizes

pytestmark = pytest.mark.usefixtures("unchecked_module")

PART = 2 * answers._PART  # bytes that a part of an answer may have at most


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with open_store(make_store(tmp_path_factory.mktemp("live"))) as store:
        yield store


@pytest.fixture(scope="module")
def client(store):
    with TestClient(make_app(Owner(store)), base_url="http://localhost") as client:
        yield client


def beside(work):
    """Return the result of a coroutine, or its error, and the number of turns that another had meanwhile."""

    async def run():
        turns = [0]

        async def other():
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        (result,) = await asyncio.gather(work, return_exceptions=True)
        task.cancel()
        return result, turns[0]

    return asyncio.run(run())


def given(count) -> list[Any]:
    days = np.datetime64("2024-05-01") + np.arange(count)
    return [{"item": f"s{k % 5}", "time": str(time), "value": float(k)} for k, time in enumerate(days)]


def test_others_have_their_turns_while_observations_are_read(store):
    """And in slices they come to the same arrays."""
    many = given(3000)
    found, turns = beside(wire.read_observations(store.engine, many))
    assert turns >= 3000 / form.TOGETHER
    whole = wire._observations_of(store.engine, many)
    assert found.items == whole.items
    for name in ("ordinals", "sequences", "values", "covariates"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))


@pytest.mark.parametrize(
    ("place", "fault", "end"),
    [(700, {"time": 5}, ["time"]), (700, {"more": 1}, ["more"]), (2999, {"value": [1.0, "x"]}, ["value"])],
)
def test_nothing_behind_the_first_fault_is_looked_at(client, monkeypatch, place, fault, end):
    many, looked = given(3000), []
    many[place].update(fault)
    many[place + 1 :] = [{}] * (2999 - place)
    whole = form._FORM

    class Form:
        def validate_python(self, some, **options):
            looked.append(len(some))
            return whole.validate_python(some, **options)

    monkeypatch.setattr(form, "_FORM", Form())
    monkeypatch.setattr("tsforecast.live.app.LARGE", 1 << 20)  # nothing goes to another process
    answer = client.post("/observations", json={"observations": many})
    assert answer.status_code == 422
    faults = answer.json()["detail"]
    assert sum(looked) == -(-(place + 1) // form.TOGETHER) * form.TOGETHER
    assert all(one["place"][:2] == ["observations", place] for one in faults)
    assert faults[0]["place"][2:][:1] == end
    behind = f"; the {2999 - place} observations behind it were not looked at"
    assert faults[-1]["fault"].endswith(behind) == (place < 2999)


def test_a_large_body_is_read_by_another_process_as_this_one_would(client, monkeypatch):
    """Answers, also to faults, are those of small bodies. A process that was killed begins anew."""
    day = "2024-05-01"
    names = {f"name {k}": 0 for k in range(1000)}
    bodies = [
        ("/observations", {"observations": [{"item": "s1", "time": day, "value": 1.0, "sequence": k} for k in (5, 4)]}),
        ("/observations", {"observations": given(3000), "forecast": {"steps": 1}}),
        ("/observations", {"observations": [*given(700), {"item": "s1"}, {}]}),
        ("/observations", {"observations": given(10_001)}),
        ("/observations", {"observations": names}),
        ("/observations", {"observations": [], **names}),
        ("/observations", {"observations": [names]}),
        ("/observations", [1]),
        ("/forecasts", {"items": ["s1", "s2"], "steps": 2, "known": {"s1": [1.0, None]}}),
        ("/forecasts", {"items": ["s1"], "known": {"s1": ["x"]}}),
        ("/forecasts", {"items": ["s1"], **names}),
        ("/forecasts", None),
    ]
    texts = [(path, json.dumps(body).encode() if body else b'{"items": [1,,]}') for path, body in bodies]
    ask = lambda path, text: client.post(path, content=text, headers={"content-type": "application/json"})  # noqa: E731
    monkeypatch.setattr("tsforecast.live.app.LARGE", 0)
    monkeypatch.setattr("tsforecast.live.app.orjson.loads", None)  # this process reads none
    found = [ask(*one) for one in texts]
    monkeypatch.undo()
    (process,) = multiprocessing.active_children()
    process.kill()
    process.join()
    monkeypatch.setattr("tsforecast.live.app.LARGE", 0)
    again = ask(*texts[-2])
    assert (again.status_code, again.json()) == (found[-2].status_code, found[-2].json())
    monkeypatch.setattr("tsforecast.live.app.LARGE", 1 << 30)
    for one, own in zip(found[2:], texts[2:], strict=True):
        assert one.json() == ask(*own).json()
    assert found[0].json()["counts"] == {"applied": 1, "repeated": 1}
    assert len(found[1].json()["forecasts"]) == 5
    assert [one.status_code for one in found] == [200, 200, 422, 413, 422, 422, 422, 422, 200, 422, 422, 422]


@pytest.mark.parametrize(
    ("items", "steps", "paths", "together"),
    [(600, 1, 0, 256), (600, 24, 0, 256), (600, 25, 0, 256), (600, 50, 0, 128), (10, 30, 100, 8), (2, 28, 1000, 1)],
)
def test_a_part_of_forecasts_has_few_series_where_each_has_many_numbers(items, steps, paths, together):
    """Four numbers a step, of which a hundred count as a series; one series is the least."""
    wanted = Wanted([f"s{k}" for k in range(items)], steps, (0.1, 0.5, 0.9), paths)
    assert wanted.part(0).items == wanted.items[:together]
    assert wanted.part(1).items == wanted.items[1 : 1 + together]


@pytest.mark.parametrize("where", ["observation", "forecast", "observations", "forecasts"])
def test_an_object_of_many_names_has_one_fault(client, where):
    """A fault of each of a hundred thousand strange names takes a second."""
    strange = {f"name {k}": 0 for k in range(1000)}
    path, body = "/observations", {"observations": [], **strange}
    if where == "observation":
        body = {"observations": [strange]}
    elif where == "forecast":
        body = {"observations": [], "forecast": strange}
    elif where == "forecasts":
        path, body = "/forecasts", {"items": ["s1"], **strange}
    answer = client.post(path, json=body)
    assert answer.status_code == 422
    (fault,) = answer.json()["detail"]
    assert "expected at most 20 names, got 100" in fault["fault"]


def test_an_observation_names_a_few_of_its_faults_alone(client):
    rows = [{"item": "s1", "time": "2024-05-01", "value": ["x"] * 1000}]
    answer = client.post("/observations", json={"observations": rows})
    assert (answer.status_code, len(answer.json()["detail"])) == (422, form.MOST_FAULTS)


def sent(response):
    """Return the bodies of the messages of a response, and the turns of another while they are sent."""
    bodies = []

    async def send(message):
        bodies.append(message.get("body", b""))

    async def receive():
        await asyncio.Event().wait()

    _, turns = beside(response({"type": "http", "asgi": {}}, receive, send))
    return [body for body in bodies if body], turns


@pytest.mark.parametrize(("items", "samples", "steps"), [(200, 100, 7), (1, 20_000, 7), (3, 2, 1)])
def test_a_large_answer_becomes_text_and_is_sent_in_parts(store, items, samples, steps):
    """Also that of one series; a small answer is one part."""
    generator = np.random.default_rng(0)
    found = [
        Found(
            19_900 + k,
            generator.normal(size=steps),
            generator.normal(size=(2, steps)),
            generator.normal(size=(steps, samples)).T,
        )
        for k in range(items)
    ]
    service = Service(SimpleNamespace(store=store), Sizes(), None)  # pyright: ignore[reportArgumentType]
    wanted = Wanted([f"s{k}" for k in range(items)], steps, (0.1, 0.9), samples)
    response, turns = beside(answers.answered_in_parts({"freq": "D"}, service.shown(wanted, found, samples)))
    parts, turns_of_sending = sent(response)
    text = b"".join(parts)
    assert int(response.headers["content-length"]) == len(text)
    assert max(map(len, parts)) < PART
    assert min(turns, turns_of_sending) >= len(parts) - 1
    assert len(parts) >= len(text) / PART
    answer = json.loads(text)
    assert answer["freq"] == "D"
    assert [one["item"] for one in answer["forecasts"]] == wanted.items
    for one, expected in zip(answer["forecasts"], found, strict=True):
        assert list(one["times"]) == list(store.engine.calendar.stamps(expected.start, steps))
        np.testing.assert_array_equal(one["mean"], expected.mean)
        np.testing.assert_array_equal(one["quantiles"]["0.9"], expected.quantiles[1])
        np.testing.assert_array_equal(one["paths"], expected.paths)


def test_no_forecasts_are_an_empty_list():
    response, _ = beside(answers.answered_in_parts({"counts": {}}, []))
    assert json.loads(response.body) == {"counts": {}, "forecasts": []}


def test_the_room_of_a_micro_batch_follows_the_time_beyond_that_of_the_quickest():
    """Seconds that every micro-batch takes make none smaller, and none grows that was not full."""
    space = Room(1000)
    quickest, more = 0.1, room._SECONDS
    rooms = []
    for seconds, is_full in [(0, True), (0, False), (0, True), (0.8, True), (2, True), (1e9, True), (0.4, True)]:
        space.follow(quickest + seconds * more, is_full=is_full)
        rooms.append(space.now)
    first, least = room._FIRST, room._LEAST
    assert rooms == [2 * first, 2 * first, 4 * first, 4 * first, 2 * first, least, 2 * least]
    for _ in range(20):
        space.follow(quickest, is_full=True)
    assert space.now == 1000


def test_a_slow_disk_makes_no_micro_batch_smaller(tmp_path, monkeypatch):
    """Those of a large request grow until it is done: to wait for the disk takes no CPU."""
    with open_store(make_store(tmp_path)) as store:
        flush, sizes, advance = store._log.flush, [], store.advance

        def slow():
            threading.Event().wait(2 * room._SECONDS)
            flush()

        def noting(requests, space=None):
            sizes.append(space)
            advance(requests, space)

        monkeypatch.setattr(store._log, "flush", slow)
        monkeypatch.setattr(store, "advance", noting)
        monkeypatch.setattr("tsforecast.live.owner.time.thread_time", lambda: 0.0)
        owner, first = Owner(store, batch=512), int(store.rows.end[0])
        large = observations(["s0"] * 1500, first + np.arange(1500), np.ones(1500))
        assert owner.observe(large).result(60) == ["applied"] * 1500
        assert sizes == [64, 128, 256, 512, 512, 512]
        owner.close()


def test_an_update_with_its_forecast_waits_for_one_part_of_large_requests(tmp_path, monkeypatch):
    """Whatever waits with it: the part that is computed when it comes."""
    with open_store(make_store(tmp_path)) as store:
        owner, order, asked = Owner(store, batch=64), [], []
        first, second = store.rows.end[:2].tolist()
        advance, forecasts = store.advance, store.engine.forecasts
        done = threading.Event()

        def observe(requests, space=None):
            large = requests[0].size > 64
            order.append("observations" if large else "update")
            if order.count("observations") == 4 and large:
                asked.append(owner.observe(observations(["s1"], [second], [1.0])))
                asked.append(owner.forecast(Wanted(["s1"], 1, (0.5,)), asked[0]))
                asked[1].add_done_callback(lambda _: (order.append("answered"), done.set()))
            advance(requests, space)

        def forecast(known, rows, *more):
            order.append("forecasts" if len(rows) > 64 else "forecast")
            return forecasts(known, rows, *more)

        monkeypatch.setattr(store, "advance", observe)
        monkeypatch.setattr(store.engine, "forecasts", forecast)
        free = threading.Event()
        owner.ask(lambda _: free.wait(60))
        large = owner.observe(observations(["s0"] * 1000, first + np.arange(1000), np.ones(1000)))
        many = owner.forecast(Wanted(["s2"] * 2000, 1, (0.5,)))
        free.set()
        assert done.wait(60)
        assert asked[1].result(0)[0].start == second + 1
        begin = order.index("update")
        assert order[begin - 1 :][:4] == ["observations", "update", "forecast", "answered"]
        assert large.result(60) == ["applied"] * 1000
        assert len(many.result(60)) == 2000
        assert order[begin + 3 :][:2] == ["forecasts", "observations"]
        owner.close()
