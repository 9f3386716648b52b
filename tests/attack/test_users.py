"""Users who are removed, and grants for names around those that they mean."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import yaml

from connect.gateways.public_trust import public_trust
from connect.node.rest.auth import hashed_password, new_token
from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
LEAVERS = 16
APART_S = 0.08  # a password takes about as long to check
NUMBERS = itertools.count()  # of all rounds: each has addresses and users of its own
READ_AGAIN_S = 1.0  # the node checks the file once a second


@dataclass
class UsersFile:
    """The node's users file, with users added for a test."""

    attacked: AttackedStack
    path: Path
    before: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.before = yaml.safe_load(self.path.read_text())

    def write(self, *more: dict[str, Any]) -> None:
        """Replace the file by one with these users and those that were there."""
        new = self.path.with_suffix(".new")
        new.write_text(yaml.safe_dump({"users": [*self.before["users"], *more]}))
        os.replace(new, self.path)  # noqa: PTH105 - at once

    def status(self, path: str = "/connectors", *, source: int = 1, **more: Any) -> int:
        """The status of a request from an address and a connection of its own."""
        transport = httpx.HTTPTransport(local_address=f"127.0.1.{source}", verify=public_trust())
        url = self.attacked.stack.rest_url
        with httpx.Client(base_url=url, transport=transport, timeout=60) as client:
            return client.get(path, **more).status_code

    def wait_until(self, status: int, token: str) -> None:
        """Wait until the node answers a bearer of this token so."""
        heads = {"authorization": f"Bearer {token}"}
        self.attacked.wait_until(
            lambda: self.status(headers=heads) == status, lambda: f"the users file gives {status}"
        )


@pytest.fixture
def file(attacked: AttackedStack) -> Iterator[UsersFile]:
    """The users file, put back after the test."""
    users = UsersFile(attacked, attacked.stack.state_dir.parent / "users.yaml")
    yield users
    users.write()


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.matrix)])
def test_a_removed_user_cannot_sign_in(file: UsersFile, rounds: int) -> None:
    """Also when removed during the sign-in, once the node has read the file.

    Passwords are checked all the time in which the node reads the file again, so that some are
    being hashed when it does. None of them stays known.
    """
    passwords = [f"password-of-leaver-{n}" for n in range(LEAVERS)]
    hashes = [hashed_password(password) for password in passwords]  # slow on purpose: once
    checked = 0
    while checked < rounds:  # the test's timeout bounds it
        number = next(NUMBERS)
        names = [f"leaver-{number}-{n}" for n in range(LEAVERS)]
        token, entry = new_token()
        grants = [{"role": "read", "connectors": "guest-*"}]
        leavers = [
            {"name": name, "password": hashed, "grants": grants}
            for name, hashed in zip(names, hashes, strict=True)
        ]
        witness = {"name": f"witness-{number}", "token": entry, "grants": grants}
        file.write(witness, *leavers)
        file.wait_until(200, token)
        file.write()

        def sign_in(
            n: int, delay_s: float = 0.0, names: list[str] = names, address: int = number % 15
        ) -> int:
            time.sleep(delay_s)  # the attack is spread over the time between two readings
            # the addresses of each round are new: few attempts of one address are checked
            source = 1 + n + LEAVERS * address
            return file.status(source=source, auth=(names[n], passwords[n]))

        with ThreadPoolExecutor(LEAVERS) as pool:
            delays = [READ_AGAIN_S / 4 + n * APART_S for n in range(LEAVERS)]
            signed_in = list(pool.map(sign_in, range(LEAVERS), delays))
        assert set(signed_in) <= {200, 401}
        checked += 200 in signed_in  # on a busy machine the node may read the file before the first
        file.wait_until(401, token)
        assert [sign_in(n) for n in range(LEAVERS)] == [401] * LEAVERS


def _answers(file: UsersFile, token: str) -> Callable[[str], int]:
    heads = {"authorization": f"Bearer {token}"}
    return lambda name: file.status(f"/connectors/{quote(name, safe='')}", headers=heads)


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        (
            "team-*",
            ("team-", "team-1", "team-a-b", "team-*"),
            ("team", "tea", "teams-1", "xteam-1", "Team-1", "team.1", "team_1"),
        ),
        (
            "t?am-[ab].*",
            ("t?am-[ab].x", "t?am-[ab]."),
            ("team-a.x", "team-b.1", "t?am-a.x", "t?am-[ab]x", "team-[ab].x"),
        ),
        ("t*m-(a|b)+", ("tm-(a|b)+", "team-(a|b)+"), ("team-a", "team-aa", "team-b", "tem-(a|b)")),
    ],
)
def test_a_grant_covers_only_the_names_of_its_pattern(
    file: UsersFile, pattern: str, covered: tuple[str, ...], others: tuple[str, ...]
) -> None:
    """Only ``*`` is any text; similar names are refused, for reading and for creating."""
    token, entry = new_token()
    grants = [{"role": "admin", "connectors": pattern}]
    file.write({"name": "tenant", "token": entry, "grants": grants})
    file.wait_until(200, token)
    answer = _answers(file, token)
    assert {name: answer(name) for name in covered} == dict.fromkeys(covered, 404)
    assert {name: answer(name) for name in others} == dict.fromkeys(others, 403)
    heads = {"authorization": f"Bearer {token}"}
    for name in others:
        config = file.attacked.connector(topics="none", iceberg__tables="tenant.t")
        body = {"name": name, "config": config}
        created = file.attacked.anonymous.call("POST", "/connectors", json=body, headers=heads)
        assert created.status_code == 403, name
        put = f"/connectors/{quote(name, safe='')}/config"
        changed = file.attacked.anonymous.call("PUT", put, json=config, headers=heads)
        assert changed.status_code == 403, name
