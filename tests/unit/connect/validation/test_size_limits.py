"""Large or deep configurations: refused, or validated in time that grows with their size."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.clock import SystemClock
from connect.config import size_limits
from connect.config.keys.connector_keys import KEYS, PREFIXES
from connect.config.placeholders import placeholders
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.node.node_requests import NodeInfo
from connect.node.rest.app import create_app
from connect.node.rest.log_levels import LogLevels
from connect.validation.client_policy import ClientPolicy
from connect.validation.key_checks import split_terms
from connect.validation.plugins import BUILT_IN
from connect.validation.providers import Providers
from connect.validation.validate import validate
from tests.support.fakes.herder import FakeHerder
from tests.support.fakes.rest_server import Reply, RestServer

GOOD = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
NODE = {
    "bootstrap.servers": "127.0.0.1:1",
    "icefloe.rest.users.file": "users.yaml",
    "config.providers": "env",
    "config.providers.env.param.allowlist.pattern": ".*",
}
VALIDATE = "/connector-plugins/IcebergSink/config/validate"
SIZE = 100_000
PIECES = ("${", "${a:", "${:", "a,", ",", "(", "[", '"', "'", "ARRAY<", "a.", "{", "\\", "x", "}")
PIECES += ("a=b,", "x:y,", "://", "*", "(a", "|", "%", " ", "\n", "bucket(")
PIECES_OF_PARSED = ("${", "${a:", "a,", "x", " ", "\n")  # a placeholder, or a text of one kind
SHARES = 3  # a key is tested with one of them, ``make matrix`` tests all
REGEXES = ("topics.regex", "route-regex", "pattern", "regex")  # their engine has its own bounds
NAMES = sorted({*KEYS, *(p.example for p in PREFIXES), "iceberg.nonsense"} - {"name"})
# keys of numbers and booleans; a text is only parsed
PARSED = [n for n in NAMES if n in KEYS and KEYS[n].type not in {"STRING", "LIST", "CLASS"}]
TOGETHER = 4  # more characters are refused as a whole
SECONDS_MAX = 5.0  # a minute or more where time grows with the square


@pytest.fixture
def api() -> Iterator[RestServer]:
    """The API over a herder in memory."""
    node = NodeInfo("http://127.0.0.1:8083", "cluster")
    levels = LogLevels(SystemClock())
    resolve = Providers(NODE, {"BIG": "x" * 1_000_000}).resolve
    with RestServer(
        create_app(FakeHerder(levels).handlers, node, levels, resolve=resolve)
    ) as running:
        yield running


def long_values() -> Iterator[Any]:
    """Yield each key with each share of the pieces; one share without ``matrix``, in turn."""
    names = [n for n in NAMES if not n.endswith(REGEXES) and n not in PARSED]
    for number, name in enumerate(names):
        for share in range(SHARES):
            marks = [] if share == number % SHARES else [pytest.mark.matrix]
            yield pytest.param(name, share, marks=marks)


def answer_size(raw: dict[str, str]) -> int:
    """Characters of the answer; 0 where the configuration is refused as too large."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    resolve = Providers(NODE, {}).resolve
    try:
        found = validate(
            sink,
            raw,
            BUILT_IN,
            resolve=resolve,
            policy=ClientPolicy.of(NODE),
            access=AccessPolicy.of(NODE),
        )
    except ConfigError:
        return 0
    return len(json.dumps(found.to_json()))


@pytest.mark.parametrize(("name", "share"), list(long_values()))
def test_long_values_are_checked_quickly(name: str, share: int) -> None:
    """For any key, and the message is short."""
    for piece in PIECES[share::SHARES]:
        start = time.process_time()
        size = answer_size({**GOOD, name: piece * (SIZE // len(piece))})
        assert time.process_time() - start < SECONDS_MAX, (name, piece)
        assert size < 10 * SIZE, (name, piece)


@pytest.mark.parametrize("first", range(0, len(PARSED), TOGETHER))
def test_long_texts_instead_of_numbers_are_refused_quickly(first: int) -> None:
    """Several at a time: each is an error before any other check sees its value."""
    some = PARSED[first : first + TOGETHER]
    for piece in PIECES_OF_PARSED:
        start = time.process_time()
        size = answer_size({**GOOD, **dict.fromkeys(some, piece * (SIZE // len(piece)))})
        assert time.process_time() - start < SECONDS_MAX, (some, piece)
        assert size < 10 * SIZE * len(some), (some, piece)
        assert size or "${" in piece, "refused as too large, so it was not checked"


def names(prefix: str, count: int) -> list[str]:
    """Different names."""
    return [f"{prefix}{n:05d}" for n in range(count)]


STRING = "org.apache.kafka.connect.storage.StringConverter"
TOPIC_LIST = ",".join(names("t", 20_000))
NO_TOPICS = {name: value for name, value in GOOD.items() if name != "topics"}
MANY: dict[str, dict[str, str]] = {
    "start offsets": {
        "topics": TOPIC_LIST,
        "icefloe.start.offsets": json.dumps({topic: {"0": 1} for topic in names("u", 10_000)}),
    },
    "topics with converters": {
        "topics": TOPIC_LIST,
        **{f"icefloe.topic.{t}.value.converter": STRING for t in names("u", 4_000)},
    },
    "expressions of topics": {
        "topics": TOPIC_LIST,
        **{f"icefloe.topic.{t}.value.converter": STRING for t in names("u", 2_000)},
        **{f"icefloe.topic.{t}.regex": f".*{t}" for t in names("u", 2_000)},
    },
    "slow expressions of topics": {
        "topics": ",".join(f"{'a' * 200}{n}" for n in range(900)),
        **{f"icefloe.topic.{t}.value.converter": STRING for t in names("u", 90)},
        **{f"icefloe.topic.{t}.regex": f"(?=(a+)+{n}b).*" for n, t in enumerate(names("u", 90))},
    },
    "settings of tables": {
        "iceberg.tables": ",".join(names("db.t", 20_000)),
        **{f"iceberg.table.{t}.id-columns": "x" for t in names("db.u", 4_000)},
    },
    "mapped topics": {
        "topics": TOPIC_LIST,
        "iceberg.tables": "",
        "iceberg.tables.topic-to-table-map": ",".join(f"{t}:db.t" for t in names("u", 10_000)),
    },
    "options of converters": {
        "topics": ",".join(names("t", 2_000)),
        **{f"icefloe.topic.{t}.value.converter": "Avro" for t in names("t", 2_000)},
    },
}


@pytest.mark.parametrize("kind", MANY)
def test_many_names_are_compared_quickly(kind: str) -> None:
    """The time is not the product of two lists, and the answer grows with the request only."""
    raw = {**GOOD, **MANY[kind]}
    start = time.process_time()
    size = answer_size(raw)
    assert time.process_time() - start < SECONDS_MAX
    assert size < 40 * sum(len(name) + len(value) for name, value in raw.items()), size


def test_a_slow_topics_regex_with_many_converters_is_an_error() -> None:
    """One expression and 2,000 names: the names are a list, with the time of a list."""
    slow = {"topics.regex": "(?=(a+)+b).*"}
    own = {f"icefloe.topic.{'a' * 200}{n}.value.converter": STRING for n in range(2_000)}
    start = time.process_time()
    assert answer_size({**NO_TOPICS, **slow, **own})
    assert time.process_time() - start < SECONDS_MAX


@pytest.mark.parametrize("text", ["${", "${:", "${a", "${a:", "${a}", "${a:}", "}", "${a:b}"])
def test_placeholders_are_found_in_linear_time(text: str) -> None:
    """The time is linear in the length of a value."""
    start = time.process_time()
    assert sum(1 for _ in placeholders(text * (1_000_000 // len(text)))) in {0, 200_000, 166_666}
    assert time.process_time() - start < SECONDS_MAX


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("a, bucket(id, 4), b", ("a", "bucket(id, 4)", "b")),
        ("a,b)", ("a,b)",)),
        ("(a,b", ("(a", "b")),
        ("f(a,(b,c),d)", ("f(a", "(b,c),d)")),
        (",", ("", "")),
        ("  ", ()),
    ],
)
def test_terms_are_split_outside_parentheses(text: str, terms: tuple[str, ...]) -> None:
    """A comma belongs to a term when a closing parenthesis comes before an opening one."""
    assert split_terms(text) == terms


def too_large(answer: Reply, why: str) -> None:
    """The error is clear and has a bounded length."""
    assert answer.status == 400
    message = answer.json()["message"]
    assert message.startswith("The configuration is too large: ")
    assert why in message
    assert len(message) < 2_000


def test_too_large_configurations_are_400(api: RestServer) -> None:
    """Keys, names, values, placeholders, resolved values and aliases have size limits."""
    large = {
        "keys": {f"k{n}": "" for n in range(size_limits.KEYS_MAX)},
        "key has": {"k" * (size_limits.NAME_CHARACTERS_MAX + 1): ""},
        "value of": {"iceberg.x": "x" * (size_limits.VALUE_CHARACTERS_MAX + 1)},
        "placeholders": {"iceberg.x": "${env:X}" * (size_limits.PLACEHOLDERS_MAX + 1)},
        "values of its placeholders": {f"iceberg.x{n}": "${env:BIG}" for n in range(5)},
    }
    for why, more in large.items():
        config = {**GOOD, **more}
        too_large(api.json("PUT", VALIDATE, config), why)
        too_large(api.json("POST", "/connectors", {"name": "orders", "config": config}), why)
        assert api.json("POST", "/connectors", {"name": "good", "config": {**GOOD, "name": "good"}})
        too_large(api.json("PATCH", "/connectors/good/config", more), why)


def test_the_name_of_a_connector_is_bounded(api: RestServer) -> None:
    """It is in each of its metrics, and a path of the API with a long one is not read."""
    longest = "o" * size_limits.CONNECTOR_CHARACTERS_MAX
    config = {**GOOD, "name": longest}
    assert api.json("PUT", f"/connectors/{longest}/config", config).status == 201
    config["name"] += "o"
    too_large(api.json("PUT", VALIDATE, config), "its name has")
    too_large(api.json("POST", "/connectors", {"name": config["name"], "config": config}), "name")
    too_large(api.json("PUT", f"/connectors/{config['name']}/config", config), "its name has")


@pytest.mark.parametrize("kind", ["transforms", "predicates"])
def test_aliases_are_bounded(api: RestServer, kind: str) -> None:
    """A list of a hundred thousand aliases is one error."""
    config = {**GOOD, kind: ",".join(f"a{n}" for n in range(30_000))}
    answer = api.json("PUT", VALIDATE, config)
    assert answer.status == 200
    assert len(answer.content) < 1_000_000
    errors = {c["value"]["name"]: c["value"]["errors"] for c in answer.json()["configs"]}
    assert errors[kind] == [
        f"Configuration {kind} is too long: it lists 30000 aliases, more than 100"
    ]
    assert api.json("POST", "/connectors", {"name": "orders", "config": config}).status == 400


@pytest.mark.parametrize("expression", ["[" * 5_000, "a" + "[0]" * 3_000, "(" * 9_000, "!" * 9_000])
def test_deep_expressions_are_errors(api: RestServer, expression: str) -> None:
    """An expression that is nested too deeply is an error and does not fail the node."""
    config = {
        **GOOD,
        "transforms": "j",
        "transforms.j.type": "icefloe.transforms.Jmespath$Value",
        "transforms.j.where": expression,
    }
    answer = api.json("PUT", VALIDATE, config)
    assert answer.status == 200
    assert answer.json()["error_count"]


def test_a_resolved_value_is_bounded() -> None:
    """Five placeholders of a megabyte each are an error of their key."""
    resolve = Providers(NODE, {"BIG": "x" * 1_000_000}).resolve
    assert len(resolve("${env:BIG}" * 4)) == 4_000_000
    with pytest.raises(ConfigError) as caught:
        resolve("${env:BIG}" * 5)
    assert caught.value.code == "config_too_large"


def test_a_file_of_secrets_is_read_once_per_change(tmp_path: Path) -> None:
    """A large file is parsed once for many placeholders, and again after a change."""
    file = tmp_path / "secrets.properties"
    file.write_text("".join(f"k{n}=value\n" for n in range(60_000)))
    node = {
        "config.providers": "file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    }
    providers = Providers(node, {})
    start = time.process_time()
    for n in range(500):
        assert providers.resolve(f"${{file:{file}:k{n}}}") == "value"
    assert time.process_time() - start < SECONDS_MAX
    file.write_text("k0=other\n")
    assert providers.resolve(f"${{file:{file}:k0}}") == "other"
