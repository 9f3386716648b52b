"""Canary secrets behind placeholders, through every way out of a process."""

from __future__ import annotations

import io
import json
import logging
import stat
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import structlog
from hypothesis import assume, given
from hypothesis import strategies as st

from connect import logs
from connect.clock import SystemClock
from connect.config.keys.connector_keys import KEYS, PREFIXES
from connect.config.masking import Masker
from connect.errors import ConfigError, IcefloeError
from connect.metrics.process_metrics import Registry
from connect.node.herder.units.status_publisher import status_value
from connect.node.node_requests import NodeInfo, ReportedStatus
from connect.node.rest.app import create_app
from connect.node.rest.log_levels import LogLevels
from connect.processes.child_main import error_fields
from connect.redaction.secret_values import KNOWN, MASK, SecretValues
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import RestServer

PARTS = ("canary-one-7f31", "canary two/91", "canaryÄ\"3\\'x")
CANARY = ",".join(PARTS)
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "config.providers": "env",
    "config.providers.env.param.allowlist.pattern": ".*",
}
GOOD = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
VALIDATE = "/connector-plugins/IcebergSink/config/validate"
SECRET = "${env:SECRET}"
NAMES = sorted(
    {*KEYS, *(prefix.example for prefix in PREFIXES), "transforms.a.type", "iceberg.nonsense"}
    | {"consumer.override.max.poll.records", "producer.override.acks", "iceberg.kafka.linger.ms"}
    | {"value.converter.schemas.enable", "transforms.x.nonsense", "iceberg.table.a.b.partition-by"}
    - {"name", "connector.class"}
)


def assert_clean(text: str) -> None:
    """No part of the canary, however it is spelled."""
    for part in PARTS:
        for form in (part, json.dumps(part)[1:-1], repr(part)[1:-1]):
            assert form not in text, (form, text[:2000])


@pytest.fixture
def api() -> Iterator[RestServer]:
    """The API of a node whose provider has the canary."""
    providers = Providers(NODE, {"SECRET": CANARY, "FIRST": PARTS[0], "SHORT": "1"})
    app = create_app(
        FakeHerder(LogLevels(SystemClock())).handlers,
        NodeInfo("http://127.0.0.1:8083", "cluster"),
        LogLevels(SystemClock()),
        resolve=providers.resolve,
    )
    with RestServer(app) as running:
        yield running


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Log lines of this process."""
    handlers, level = logging.getLogger().handlers[:], logging.getLogger().level
    stream = io.StringIO()
    logs.configure("node", stream=stream)
    yield stream
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers
    logging.getLogger().setLevel(level)


def test_no_answer_contains_a_resolved_value(api: RestServer, lines: io.StringIO) -> None:
    """For any key, in validate and in a refused creation."""
    for name in NAMES:
        for text in (SECRET, "x-${env:FIRST}", "a,${env:SECRET},b"):
            config = {**GOOD, name: text}
            answer = api.json("PUT", VALIDATE, config)
            assert_clean(answer.content.decode())
            refused = api.json("POST", "/connectors", {"name": "orders", "config": config})
            assert_clean(refused.content.decode())
            if refused.status == 201:
                api.send("DELETE", "/connectors/orders")
    assert_clean(lines.getvalue())


def test_groups_and_names_of_aliases_are_masked(api: RestServer) -> None:
    """A placeholder may give a list of aliases."""
    config = {**GOOD, "transforms": SECRET, "predicates": "p,${env:FIRST}"}
    answer = api.json("PUT", VALIDATE, config).json()
    assert f"Transforms: {SECRET}" in answer["groups"]
    assert "Predicates: p" in answer["groups"]
    assert_clean(json.dumps(answer, ensure_ascii=False))


def test_a_short_secret_is_masked_only_as_a_whole(api: RestServer) -> None:
    """In sentences about its key."""
    config = {**GOOD, "tasks.max": "-${env:SHORT}", "iceberg.control.topic": ""}
    answer = api.json("PUT", VALIDATE, config).json()
    errors = {c["value"]["name"]: c["value"]["errors"] for c in answer["configs"]}["tasks.max"]
    (sentence,) = errors
    assert sentence.startswith("Invalid value -${env:SHORT} for configuration tasks.max: ")
    assert sentence.endswith("Value must be at least ${env:SHORT}")
    assert KNOWN.mask("task 1 of 10") == "task 1 of 10"


def test_texts_of_children_contain_no_secret(lines: io.StringIO) -> None:
    """Traces, states, log lines and labels."""
    providers = Providers(NODE, {"SECRET": CANARY})
    resolve(parse({**GOOD, "iceberg.catalog.token": SECRET}), providers, node=NODE)
    for part in PARTS:
        error = ConfigError(f"no table {part}", code="config", table=part)
        error.__cause__ = RuntimeError(f"at https://x/?y={part!r}")
        state = error_fields(error)
        assert_clean(state["trace"])
        status = ReportedStatus("orders", "FAILED", "n", (), f"{part} {error}")
        assert_clean(str(status_value(status, generation=1, version="1").to_json()))
        log = logs.logger("x")
        log.warning(
            "about", text=f"about {part}", table=part, many=[part, {"k": part}], error=error
        )
        logging.getLogger("y").warning("about %s", part)
        registry = Registry()
        labels = {"connector": "orders", "table": part, "outcome": "committed"}
        registry.value("counter", "table_commits", labels).inc()
        (sample,) = registry.snapshot()[1]
        assert sample[1] == {"connector": "orders", "table": MASK, "outcome": "committed"}
        registry.forget(connector="orders", table=part)
        assert not registry.snapshot()[1]
    with pytest.raises(IcefloeError) as caught:
        raise IcefloeError(PARTS[0])
    logs.logger("x").error("failed", exc_info=caught.value)
    assert_clean(lines.getvalue())
    assert MASK in lines.getvalue()


def test_long_texts_are_masked_before_they_are_cut() -> None:
    """So no part of a secret is left."""
    KNOWN.add("x" * 20_000 + "canary")
    assert error_fields(ConfigError("x" * 20_000 + "canary"))["trace"].count("x") < 100


def test_plain_secrets_in_properties_are_masked_in_children() -> None:
    """They are known by the names of their keys."""
    jaas = 'org.x.PlainLoginModule required username="node" password="canary-of-node";'
    node = {**NODE, "sasl.jaas.config": jaas, "spark.hadoop.fs.s3a.secret.key": "canary-of-spark"}
    raw = {**GOOD, "iceberg.catalog.credential": "client:canary-of-catalog"}
    resolve(parse(raw), Providers(node, {}), node=node)
    text = "node canary-of-node canary-of-spark client:canary-of-catalog canary-of-catalog orders"
    assert KNOWN.mask(text) == f"node {MASK} {MASK} {MASK} {MASK} orders"


def test_log_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    """With any umask, and also if the file exists."""
    file = tmp_path / "x.log"
    file.write_text("")
    file.chmod(0o644)
    with logs.open_private(file) as opened:
        opened.write(b"line")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == b"line"


@given(
    st.text(min_size=1, max_size=30),
    st.lists(st.text(min_size=4, max_size=40), min_size=1, max_size=4),
)
def test_masking_removes_every_secret(before: str, values: list[str]) -> None:
    """From any text, in time."""
    known = SecretValues()
    for value in values:
        known.add(value)
    for value in values:
        if len(value) > 7 and not value.isdigit() and MASK not in value and value not in MASK:
            assert value not in known.mask(f"{before}{value}") or value in f"{before}{MASK}"


@pytest.mark.parametrize(
    ("value", "text", "masked"),
    [
        ("rest", "the rest of interest", f"the {MASK} of interest"),
        ("abc", "abc", "abc"),
        ("true", "true", "true"),
        ("8083", "port 8083", "port 8083"),
        ("canary-1,canary-2", "canary-2 and canary-1", f"{MASK} and {MASK}"),
        ("first line\nsecond line", "a second line", f"a {MASK}"),
        ("p@ss/key 1", "p%40ss%2Fkey+1 p%40ss%2Fkey%201", f"{MASK} {MASK}"),
        ("", "text", "text"),
    ],
)
def test_short_and_common_values_are_not_masked_inside_texts(
    value: str, text: str, masked: str
) -> None:
    """Parts and other spellings of secrets are masked."""
    known = SecretValues()
    known.add(value)
    assert known.mask(text) == masked


def test_an_empty_value_masks_nothing() -> None:
    """A placeholder may resolve to an empty text."""
    sent: Mapping[str, Any] = {"topics": "${env:EMPTY}"}
    assert Masker(sent, Providers(NODE, {"EMPTY": ""}).resolve)("a text") == "a text"


SPELLINGS: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "swapped": str.swapcase,
    "trimmed": str.strip,
    "in one line": lambda text: " ".join(text.split()),
    "quoted by Python": repr,
    "ASCII": ascii,
    "bytes": lambda text: repr(text.encode()),
    "JSON": json.dumps,
    "URL": lambda text: quote(text, ""),
    "form": quote_plus,
    "HTML": escape,
    "base64": lambda text: b64encode(text.encode()).decode(),
    "base64 for URLs": lambda text: urlsafe_b64encode(text.encode()).decode(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(value=st.text(st.characters(codec="utf-8"), min_size=8, max_size=24))
def test_a_value_is_masked_as_errors_spell_it(spelling: str, value: str) -> None:
    """In any case, and in the spellings of formats and languages."""
    assume(len(value.strip()) >= 8)
    assume(not any(c in ",\r\n" for c in value))  # the parts of lists are values of their own
    shown = SPELLINGS[spelling](value)
    secrets = SecretValues()
    secrets.add(value)
    masked = secrets.mask(f"No enum constant Type.{shown}!")
    inner = value.strip()
    assert inner not in masked
    assert inner.lower() not in masked.lower()
    assert MASK in masked


def test_the_case_of_a_short_value_does_not_matter() -> None:
    """It is masked where it stands alone, and not inside other text."""
    secrets = SecretValues()
    secrets.add("pa55")
    assert secrets.mask("Type.PA55 of PA55KEY") == f"Type.{MASK} of PA55KEY"
