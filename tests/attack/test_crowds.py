"""One caller, or one address, that asks for too much: others are still served."""

from __future__ import annotations

import resource
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx
import pytest

from connect.node.rest.limits import ATTEMPT_BACK_MS, ATTEMPTS_MAX
from tests.support.attacked_stack import BOB, PASSWORDS, VALIDATE, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
CROWD, BYSTANDER = "127.0.0.2", "127.0.0.3"  # addresses that connections come from


@contextmanager
def connections(
    attacked: AttackedStack, count: int, sent: bytes = b""
) -> Iterator[list[socket.socket]]:
    """Connections from one address, each with these bytes and nothing more."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    to = urlsplit(attacked.stack.rest_url)
    all_made: list[socket.socket] = []
    with ExitStack() as held:
        for _ in range(count):
            connection = socket.create_connection((to.hostname, to.port), 60, (CROWD, 0))
            all_made.append(held.enter_context(connection))
            try:
                connection.sendall(sent)
            except ConnectionError:  # it was cut off
                continue
        yield all_made


def client(attacked: AttackedStack, source: str, user: str, password: str) -> httpx.Client:
    """A caller with a password at an address."""
    return httpx.Client(
        base_url=attacked.stack.rest_url,
        transport=httpx.HTTPTransport(local_address=source, verify=False),
        auth=(user, password),
        timeout=60,
    )


def others_are_served(attacked: AttackedStack) -> None:
    """A tenant, and a probe of the node's health, each on connections of its own."""
    for _ in range(10):
        for tenant, path in (
            (attacked.bob, f"/connectors/{BOB}/status"),
            (attacked.anonymous, "/health"),
        ):
            answer = tenant.call("GET", path, headers={"connection": "close"})
            assert answer.status_code == 200, answer.text
        time.sleep(0.1)


def test_endless_bodies_of_unknown_callers_block_no_other_caller(attacked: AttackedStack) -> None:
    """401 comes before their bodies: 510 of them take no place of other callers."""
    head = f"PUT {VALIDATE} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n{{"
    with connections(attacked, 510, head.encode()) as clients:
        others_are_served(attacked)
        statuses = Counter(_answer(client) for client in clients)
    assert set(statuses) <= {b"HTTP/1.1 401", b""}
    assert statuses[b"HTTP/1.1 401"] >= 100


def _answer(connection: socket.socket) -> bytes:
    """Version and status of the answer; nothing where the connection was closed in its place."""
    try:
        return connection.recv(12)
    except ConnectionError:
        return b""


def test_silent_connections_block_no_caller(attacked: AttackedStack) -> None:
    """1,100 connections that send nothing, also from the caller's own address."""
    with connections(attacked, 1_100):
        others_are_served(attacked)
        with client(attacked, CROWD, "bob", PASSWORDS["bob"]) as neighbour:
            assert neighbour.get(f"/connectors/{BOB}").status_code == 200


def test_many_validations_of_one_tenant_delay_no_other_tenant(attacked: AttackedStack) -> None:
    """60 at a time: some may get 429."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        config = attacked.connector(topics="alice-none", iceberg__tables="alice.t")
        config |= {
            "name": "alice-slow",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        with ThreadPoolExecutor(60) as pool:
            requests = [pool.submit(attacked.alice.validate, config) for _ in range(60)]
            others_are_served(attacked)
            own = attacked.connector(topics="bob-none", iceberg__tables="bob.t")
            answer = attacked.bob.validate({**own, "name": "bob-quick"})
            assert answer.status_code == 200
            assert "validations are running" not in answer.text
            answers = [one.result() for one in requests]
    statuses = Counter(answer.status_code for answer in answers)
    assert set(statuses) <= {200, 429}
    assert statuses[200] >= 12
    assert all(a.headers["retry-after"].isdecimal() for a in answers if a.status_code == 429)


def test_many_wrong_passwords_block_no_sign_in(attacked: AttackedStack) -> None:
    """100 from one address: few are checked."""

    def guess(number: int) -> int:
        with client(attacked, CROWD, "bob", f"guess-{number}") as guessing:
            return guessing.get("/connectors").status_code

    started_s = time.monotonic()
    with ThreadPoolExecutor(50) as pool:
        guesses = [pool.submit(guess, number) for number in range(100)]
        with client(attacked, BYSTANDER, "bob", PASSWORDS["bob"]) as bystander:
            assert bystander.get(f"/connectors/{BOB}").status_code == 200
        statuses = Counter(one.result() for one in guesses)
    assert set(statuses) == {401, 429}
    came_back = (time.monotonic() - started_s) * 1000 / ATTEMPT_BACK_MS
    assert statuses[401] <= ATTEMPTS_MAX + came_back + 1
    others_are_served(attacked)
