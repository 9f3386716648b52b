"""Shares of the API: turns of callers, attempts of addresses, passwords apart."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar

import pytest
import yaml

from connect.clock import SystemClock
from connect.node.node_requests import NodeInfo, Offsets
from connect.node.rest.api_errors import TooManyError
from connect.node.rest.app import create_app
from connect.node.rest.auth import Caller, Login, Users, hashed_password, new_token
from connect.node.rest.limits import ATTEMPT_BACK_MS, ATTEMPTS_MAX, ORDINARY, Attempts
from connect.node.rest.log_levels import LogLevels
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import Reply, RestServer

TOKENS = {name: new_token() for name in ("alice", "bob")}
PASSWORD = "correct horse"


class SetClock(SystemClock):
    """A clock that stands until it is set."""

    now = 0

    def monotonic_ms(self) -> int:
        """The time that was set."""
        return self.now


class CountingUsers(Users):
    """Users that note whose password is hashed."""

    checks: ClassVar[list[str]] = []

    def check(self, login: Login) -> Caller | None:
        """The same, noted."""
        self.checks.append(login.name)
        return super().check(login)


class WaitingHerder(FakeHerder):
    """A herder whose offsets of ``alice-1`` come when the test lets them."""

    def __init__(self, levels: LogLevels) -> None:
        super().__init__(levels)
        self.asked = threading.Semaphore(0)
        self.answers = threading.Event()

    def offsets(self, name: str) -> Offsets:
        """Waits for alice's."""
        if name.startswith("alice"):
            self.asked.release()
            self.answers.wait(60)
        return super().offsets(name)


@contextmanager
def serving(folder: Path) -> Iterator[tuple[RestServer, WaitingHerder]]:
    """A node with two tenants."""
    users = [
        {"name": name, "token": entry, "grants": [{"role": "admin", "connectors": f"{name}-*"}]}
        for name, (_, entry) in TOKENS.items()
    ]
    users[1]["password"] = hashed_password(PASSWORD)
    file = folder / "users.yaml"
    file.write_text(yaml.safe_dump({"users": users}))
    CountingUsers.checks.clear()
    levels = LogLevels(SystemClock())
    herder = WaitingHerder(levels)
    for name in TOKENS:
        herder.create(f"{name}-1", {"connector.class": "IcebergSink", "topics": "t"})
    app = create_app(
        herder.handlers,
        NodeInfo("http://n:1", "c"),
        levels,
        users=CountingUsers(file, SystemClock()),
    )
    with RestServer(app, is_guarded=True) as server:
        try:
            yield server, herder
        finally:
            herder.answers.set()


def offsets(server: RestServer, name: str) -> Reply:
    """Ask for a tenant's offsets with the tenant's token."""
    token = {"Authorization": f"Bearer {TOKENS[name][0]}"}
    return server.send("GET", f"/connectors/{name}-1/offsets", None, token)


def basic(password: str) -> dict[str, str]:
    """Bob's header with a password."""
    return {"Authorization": "Basic " + base64.b64encode(f"bob:{password}".encode()).decode()}


def test_a_caller_is_limited_by_its_own_requests_only(tmp_path: Path) -> None:
    """Above its limits it gets 429; other callers are served."""
    most = ORDINARY.served + ORDINARY.waiting
    with serving(tmp_path) as (server, herder), ThreadPoolExecutor(most + 10) as pool:
        requests = [pool.submit(offsets, server, "alice") for _ in range(most + 10)]
        for _ in range(ORDINARY.served):
            assert herder.asked.acquire(timeout=60)
        assert offsets(server, "bob").status == 200
        # the others wait for the herder
        refused = [one.result() for _, one in zip(range(10), as_completed(requests), strict=False)]
        herder.answers.set()
        statuses = Counter(one.result().status for one in requests)
    assert statuses == {200: most, 429: 10}
    assert all(reply.headers["retry-after"] == "1" for reply in refused)


def test_a_body_is_read_of_a_known_caller_only(tmp_path: Path) -> None:
    """An unknown caller gets the answer before its body is read."""
    with serving(tmp_path) as (server, _):
        head = {"content-length": "1000"}
        assert server.send("PUT", "/connectors/alice-1/config", None, head).status == 401


def test_the_same_password_is_hashed_once(tmp_path: Path) -> None:
    """Concurrent requests with one password wait for one check."""
    with serving(tmp_path) as (server, _), ThreadPoolExecutor(50) as pool:
        path, right = "/connectors/bob-1", basic(PASSWORD)
        requests = [pool.submit(server.send, "GET", path, None, right) for _ in range(50)]
        assert {one.result().status for one in requests} == {200}
    assert CountingUsers.checks == ["bob"]


def test_wrong_passwords_use_up_attempts(tmp_path: Path) -> None:
    """Then 429 without hashing; a cached password is still accepted."""
    with serving(tmp_path) as (server, _):
        assert server.send("GET", "/connectors", None, basic(PASSWORD)).status == 200

        def guesses() -> Iterator[Reply]:
            for number in count():
                yield server.send("GET", "/connectors", None, basic(f"guess {number}"))

        # attempts come back with time, so on a slow machine there are more than the first ones
        allowed, refused = 0, None
        for refused in guesses():
            if refused.status != 401:
                break
            allowed += 1
        assert allowed >= ATTEMPTS_MAX
        assert refused is not None
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert CountingUsers.checks == ["bob"] * (1 + allowed)
        assert server.send("GET", "/connectors", None, basic(PASSWORD)).status == 200


def test_attempts_are_restored_over_time() -> None:
    """One after the other, for each address separately."""
    clock = SetClock()
    attempts = Attempts(clock, sources_max=2)
    for _ in range(ATTEMPTS_MAX):
        attempts.spend("a")
    with pytest.raises(TooManyError) as refused:
        attempts.spend("a")
    assert refused.value.retry_after_s == ATTEMPT_BACK_MS // 1000
    attempts.spend("b")
    clock.now += ATTEMPT_BACK_MS
    attempts.spend("a")
    with pytest.raises(TooManyError):
        attempts.spend("a")
    attempts.give_back("a")
    attempts.spend("a")
    attempts.spend("c")  # in place of b, of which nothing came for longest
    for _ in range(ATTEMPTS_MAX):
        attempts.spend("b")
