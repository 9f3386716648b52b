"""Checks side by side, and sentences without secrets."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from connect.clock import SystemClock
from connect.config.masking import Masker
from connect.errors import ConfigError, RetriableError
from connect.node.rest.auth import EVERYBODY
from connect.node.rest.config_validation import ConfigValidator, NodeFacts
from connect.node.rest.log_levels import LogLevels
from connect.redaction.secret_values import MASK
from connect.validation.plugins import BUILT_IN
from connect.validation.preflight.live_checks import Check, run_checks
from connect.validation.preflight.preflight import AT_A_TIME, Preflight
from connect.validation.validate import Validation
from tests.support.fakes.herder import FakeHerder

GOOD: dict[str, str | None] = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}


def finds(*found: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """A check that finds something."""
    yield from found


def fails(error: Exception) -> Iterator[tuple[str, str]]:
    """A check that is not answered."""
    raise error
    yield


def test_errors_are_at_the_keys_of_their_checks() -> None:
    """Also timeouts; duplicates are removed."""
    away = RetriableError("no\nanswer", code="broker_unavailable")
    checks = [
        Check("topics", "Asked A", lambda: finds(("x", "wrong"), ("y", "bad"))),
        Check("topics", "Asked A", lambda: finds(("x", "wrong"))),
        Check("topics", "Asked B", lambda: fails(away)),
        Check("name", "Asked C", lambda: fails(TimeoutError())),
        Check("name", "Asked D", lambda: fails(ConfigError("x" * 1000))),
    ]
    found = run_checks(checks, whole_s=120, clock=SystemClock())
    assert found["x"] == ["Asked A: wrong"]
    assert found["y"] == ["Asked A: bad"]
    assert found["topics"] == ["Asked B: no answer"]
    assert found["name"] == ["Asked C: no answer", "Asked D: " + "x" * 300]


def test_checks_have_a_timeout() -> None:
    """Checks run in parallel; a timeout does not affect other checks."""
    both, never = threading.Barrier(2, timeout=120), threading.Event()

    def meets() -> Iterator[tuple[str, str]]:
        both.wait()
        yield "a", "met"

    def hangs() -> Iterator[tuple[str, str]]:
        never.wait(60)
        yield "a", "too late"

    checks = [Check("a", "Asked A", meets), Check("a", "Asked B", meets)]
    assert run_checks(checks, whole_s=120, clock=SystemClock()) == {
        "a": ["Asked A: met", "Asked B: met"]
    }
    try:
        found = run_checks([Check("a", "Asked", hangs)], whole_s=0.05, clock=SystemClock())
    finally:
        never.set()
    assert found == {"a": ["Asked: no answer within 0.05 s"]}
    assert run_checks([], whole_s=1, clock=SystemClock()) == {}


def test_concurrent_validations_are_bounded() -> None:
    """The answer says that too many are running."""
    preflight = Preflight({}, str, whole_s=0.01, excluded=frozenset(), clock=SystemClock())
    for _ in range(AT_A_TIME):
        assert preflight._turns.acquire(timeout=0)
    (sentence,) = preflight.check({})["name"]
    assert "try again" in sentence
    assert "icefloe.remote=false" in sentence


def resolve(text: str) -> str:
    """Two secrets, one that cannot be had."""
    if "${env:NONE}" in text:
        raise ConfigError("not there")
    return text.replace("${env:P}", "p@ss wörd").replace("${env:URI}", "http://host/hunter22")


@pytest.mark.parametrize(
    ("sent", "text", "masked"),
    [
        ({"iceberg.catalog.uri": "x://u:${env:P}@h"}, "to u:p@ss wörd@h", "to u:${env:P}@h"),
        ({"a": "${env:P}"}, "p%40ss%20w%C3%B6rd p%40ss+w%C3%B6rd", "${env:P} ${env:P}"),
        ({"a": "${env:URI}"}, "GET http://host/hunter22?x", "GET ${env:URI}?x"),
        ({"a": "${env:NONE}", "b": "${env:P}"}, "p@ss wörd", "${env:P}"),
        ({"iceberg.catalog.token": "hunter22"}, "bad hunter22", f"bad {MASK}"),
        ({"iceberg.catalog.credential": "name:hunter22"}, "bad hunter22", f"bad {MASK}"),
        ({"iceberg.catalog.uri": "http://u:hunter22@h"}, "for u:hunter22@h", f"for {MASK}@h"),
        ({"iceberg.catalog.uri": "http://hunter22@h"}, "for hunter22", f"for {MASK}"),
        (
            {"iceberg.kafka.sasl.jaas.config": 'x required password="hunter22";'},
            'parsing password="hunter22"',
            f'parsing password="{MASK}"',
        ),
        ({"iceberg.catalog.uri": "http://h", "b": None}, "http://h is away", "http://h is away"),
    ],
)
def test_messages_contain_no_secret(sent: dict[str, str | None], text: str, masked: str) -> None:
    """They have placeholders, and masked inline secrets."""
    assert Masker(sent, resolve, is_inline_masked=True)(text) == masked


def validator(**facts: object) -> ConfigValidator:
    """Return a validator without remote checks."""
    given = NodeFacts("nodes", **facts)  # type: ignore[arg-type]  # of one test each
    return ConfigValidator(FakeHerder(LogLevels(SystemClock())), BUILT_IN, given)


def validated(change: dict[str, str | None], **facts: object) -> Validation:
    """Validate a good configuration with a change."""
    local = validator(**facts)
    return local.whole(local.plugin_of(GOOD), {**GOOD, **change}, EVERYBODY)


def test_grants_are_checked_before_a_configuration_is_stored() -> None:
    """A table without grant is an error at its key, with placeholders instead of values."""
    granted = {"icefloe.grants.orders": r"shop\..*", "icefloe.grants.default": "none"}
    assert validated({}, properties=granted).errors == ()
    found = validated({"iceberg.tables": "bank.orders"}, properties=granted)
    (sentence,) = found.errors
    assert "bank.orders is not among the granted tables" in sentence
    change: dict[str, str | None] = {"errors.deadletterqueue.table": "${env:T}"}
    found = validated(
        change, properties=granted, resolve=lambda text: text.replace("${env:T}", "bank.letters")
    )
    assert "bank.letters" not in str(found.to_json())
    assert found.errors
