"""Clients that are silent or slow lose their connections, and lock nobody out."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from tsforecast.live.connections import Connection
from tsforecast.live.guard import Guard, Limits

pytestmark = pytest.mark.usefixtures("unchecked_module")

MOST = 8  # connections
inside, free = [0], threading.Event()  # requests that are answered, and until when
handed_over = threading.Event()


class Quick(Connection):
    seconds_of_head = 0.3
    seconds_of_body = 0.6
    most_head = 2000


class Patient(Connection):
    seconds_of_head = seconds_of_body = 60


async def answering(scope, receive, send):
    """An application that answers by the length of a body, or by very much."""
    size = len((await receive()).get("body", b""))
    if scope["path"] == "/long":
        inside[0] += 1
        await asyncio.to_thread(free.wait, 30)
    body = bytes(50_000_000) if scope["path"] == "/much" else json.dumps({"size": size}).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["path"] == "/much":
        for first in range(0, len(body), 1 << 16):
            await send({"type": "http.response.body", "body": body[first : first + (1 << 16)], "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})
    if scope["path"] == "/much":
        handed_over.set()


@contextlib.contextmanager
def serving(kind):
    """Port of a service with a kind of connection."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        config = uvicorn.Config(
            Guard(answering, Limits()), http=kind, log_level="critical", limit_concurrency=MOST, lifespan="off"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield bound.getsockname()[1]
        server.should_exit = server.force_exit = True
        thread.join()


@pytest.fixture(scope="module")
def quick():
    with serving(Quick) as port:
        yield port


@pytest.fixture(scope="module")
def patient():
    with serving(Patient) as port:
        yield port


def said(port, *parts, pause=0.0):
    """What comes back until the connection ends."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(30)
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        found = b""
        while some := connection.recv(1 << 16):
            found += some
    return found


def ask(port, path="/"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, b"12345", {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n"


@pytest.mark.parametrize("parts", [(), (b"POST / HT",), (HEAD,), (HEAD + b"\r\n12",), (HEAD + b"\r\n12345" + HEAD,)])
def test_a_request_that_does_not_come_to_its_end_is_ended(quick, parts):
    """Where nothing was sent, where the head or the body stops, and behind a whole request."""
    found = said(quick, *parts)
    assert found.endswith(b'{"detail":"the request took too long"}')
    assert b"HTTP/1.1 408 Request Timeout" in found
    assert found.count(b'{"size": 5}') == (len(parts) == 1 and b"12345" in parts[0])


def test_a_head_byte_by_byte_has_no_more_time(quick):
    start = time.monotonic()
    with pytest.raises(OSError):  # noqa: PT011 - reset or broken pipe
        said(quick, *(b"x" for _ in range(200)), pause=0.1)
    assert time.monotonic() - start < 15


def test_a_long_head_is_refused(quick):
    found = said(quick, b"GET / HTTP/1.1\r\nX: " + b"x" * 2500)
    assert found.startswith(b"HTTP/1.1 431 ")


def test_requests_in_time_are_answered_one_after_the_other(quick):
    connection = http.client.HTTPConnection("127.0.0.1", quick, timeout=30)
    for _ in range(3):
        connection.request("POST", "/", b"12345", {"Content-Type": "application/json"})
        assert json.loads(connection.getresponse().read()) == {"size": 5}


def test_an_answer_that_is_taken_slowly_arrives(quick):
    status, body = ask(quick, "/much")
    assert (status, len(body)) == (200, 50_000_000)


def test_nothing_waits_for_a_client_that_does_not_take_its_answer(quick):
    """A part of an answer is handed over before those before it are taken; the connection has its time for all."""
    handed_over.clear()
    with socket.create_connection(("127.0.0.1", quick)) as connection:
        connection.sendall(HEAD.replace(b" / ", b" /much ") + b"\r\n12345")
        assert handed_over.wait(30)


@pytest.mark.parametrize("sent", [b"", b"POST / HT", HEAD + b"\r\n12"])
def test_silent_connections_give_way_to_those_with_a_request(patient, sent):
    silent = [socket.create_connection(("127.0.0.1", patient)) for _ in range(3 * MOST)]
    for connection in silent:
        connection.sendall(sent)
    assert [ask(patient)[0] for _ in range(3)] == [200, 200, 200]
    for connection in silent:
        connection.close()


def test_no_connection_gives_way_that_is_answered(patient):
    """More connections than there may be, all of which are answered: the last is refused."""
    found = []

    def work():
        found.append(ask(patient, "/long")[0])

    threads = [threading.Thread(target=work) for _ in range(MOST)]
    before = inside[0]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while inside[0] < before + MOST and time.monotonic() < deadline:
        time.sleep(0.01)
    assert said(patient).startswith(b"HTTP/1.1 503 ")
    free.set()
    for thread in threads:
        thread.join()
    assert found == [200] * MOST
