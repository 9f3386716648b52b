"""Converters of topics and of users in configurations: keys, entries, secrets, addresses."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connect.config.connector import ConverterConfig, TopicConverters
from connect.config.keys.topic_keys import topic_key
from connect.config.masking import may_be_secret
from connect.errors import ConfigError
from connect.gateways.access_policy import AccessPolicy
from connect.records.converters.custom_converters import GROUP, installed
from connect.redaction.secret_values import KNOWN
from connect.validation.access_check import unreachable
from connect.validation.parse import parse
from connect.validation.plugins import BUILT_IN, Plugins, custom_converters
from connect.validation.preflight.registry_checks import registry_checks
from connect.validation.providers import Providers, resolve
from connect.validation.validate import Validation, validate
from tests.support.connector_json import changed, errors
from tests.support.entry_points import install

TOPIC = "icefloe.topic."


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("icefloe.topic.a.value.converter", ("a", "value.converter", None)),
        ("icefloe.topic.a.b.key.converter.x.y", ("a.b", "key.converter", "x.y")),
        ("icefloe.topic.a.regex", ("a", "regex", None)),
        ("icefloe.topic.a.regex.key.converter", ("a.regex", "key.converter", None)),
        ("icefloe.topic.a.key.converter.regex", ("a", "key.converter", "regex")),
        ("icefloe.topic.a.header.converter", None),
        ("icefloe.topic..value.converter", None),
        ("icefloe.topic.value.converter", None),
        ("value.converter", None),
    ],
)
def test_keys_are_divided_at_the_setting(key: str, parts: tuple[Any, ...] | None) -> None:
    """Topics and options have dots."""
    found = topic_key(key)
    assert (None if found is None else tuple(found)) == parts
    assert found is None or key.startswith(found.whole)


def test_topics_come_before_patterns() -> None:
    """The first entry of a topic counts; converters that it does not set are the connector's."""
    config = parse(
        changed(
            {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                "key.converter": "String",
                f"{TOPIC}a.regex": "o.*",
                f"{TOPIC}a.value.converter": "Long",
                f"{TOPIC}a.value.converter.plugin.version": "1",
                f"{TOPIC}orders.value.converter": " Json ",
                f"{TOPIC}orders.value.converter.schemas.enable": "false",
                f"{TOPIC}b.regex": "order2",
                f"{TOPIC}b.key.converter": "Long",
            }
        ),
        node={"value.converter": "Integer"},
    )
    plain = ConverterConfig("Json", {"schemas.enable": "false"})
    assert config.topic_converters == (
        TopicConverters("orders", None, None, plain),
        TopicConverters("a", "o.*", None, ConverterConfig("Long")),
        TopicConverters("b", "order2", ConverterConfig("Long"), None),
    )
    found = {
        topic: [
            converter.class_name
            for converter in (
                config.for_topic(topic).key_converter,
                config.for_topic(topic).value_converter,
            )
        ]
        for topic in ("orders", "order2", "refunds")
    }
    assert found == {
        "orders": ["String", "Json"],
        "order2": ["String", "Long"],
        "refunds": ["String", "Integer"],
    }


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"orders.header.converter": "String"}, "orders.header.converter", "Unknown topic setting"),
        (
            {"orders.regex": "orders"},
            "orders.regex",
            "have no converter; set icefloe.topic.orders.",
        ),
        (
            {"orders.regex": "(", "orders.value.converter": "String"},
            "orders.regex",
            "for configuration icefloe.topic.orders.regex",
        ),
        (
            {"orders.value.converter.x": "1"},
            "orders.value.converter.x",
            "needs a converter; set icefloe.topic.orders.value.converter, too",
        ),
        (
            {"orders.value.converter": " "},
            "orders.value.converter",
            "set the class of a converter",
        ),
        (
            {"orders.value.converter": "Jsonn"},
            "orders.value.converter",
            "Class Jsonn could not be found.",
        ),
        (
            {"orders.value.converter": "Json", "orders.value.converter.schemas.enable": "maybe"},
            "orders.value.converter.schemas.enable",
            "either true or false",
        ),
    ],
)
def test_errors_are_at_their_key(change: dict[str, str], key: str, message: str) -> None:
    """One error each."""
    found = errors({TOPIC + name: value for name, value in change.items()})
    assert list(found) == [TOPIC + key]
    assert message in found[TOPIC + key][0]


def test_entries_have_definitions() -> None:
    """The class, with recommended values, and the options of its converter."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    name = f"{TOPIC}orders.value.converter"
    found = validate(
        sink, changed({name: "Avro", f"{name}.schema.registry.url": "http://r"}), BUILT_IN
    )
    entries = {info.name: info for info in found.configs}
    assert entries[name].value == "io.confluent.connect.avro.AvroConverter"
    assert entries[name].value in entries[name].recommended
    definition = entries[f"{name}.basic.auth.user.info"].definition
    assert definition is not None
    assert definition["type"] == "PASSWORD"
    assert found.errors == ()


def test_options_are_secret_by_their_own_name() -> None:
    """A topic may have any name."""
    assert may_be_secret("icefloe.topic.a.value.converter.basic.auth.user.info")
    assert not may_be_secret("icefloe.topic.tokens.value.converter.schemas.enable")
    assert not may_be_secret("icefloe.topic.tokens.regex")
    secret = "topic-secret-5a1c"
    config = parse(
        changed(
            {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                f"{TOPIC}orders.value.converter": "Avro",
                f"{TOPIC}orders.value.converter.basic.auth.user.info": f"me:{secret}",
                f"{TOPIC}orders.value.converter.schema.registry.url": "${env:URL}",
            }
        )
    )
    node = {"config.providers": "env", "config.providers.env.class": "env"}
    node["config.providers.env.param.allowlist.pattern"] = "URL"
    found = resolve(config, Providers(node, {"URL": "http://registry"}))
    assert secret not in KNOWN.mask(f"x {secret} x")
    (own,) = found.topic_converters
    assert own.value is not None
    assert own.value.options["schema.registry.url"] == "http://registry"
    (check,) = registry_checks(found, each_s=1)
    assert check.key == f"{TOPIC}orders.value.converter.schema.registry.url"


def test_addresses_and_files_are_checked_as_those_of_the_connector() -> None:
    """A topic cannot reach what the connector cannot."""
    name = f"{TOPIC}orders.value.converter"
    raw = changed(
        {
            name: "Avro",
            f"{name}.schema.registry.url": "http://registry:8081",
            f"{name}.schema.registry.ssl.truststore.location": "/etc/passwd",
        }
    )
    found = dict(unreachable(raw, AccessPolicy(names=frozenset({"127.0.0.1"}), roots=())))
    assert set(found) == {
        f"{name}.schema.registry.url",
        f"{name}.schema.registry.ssl.truststore.location",
    }


@pytest.mark.parametrize("converter", ["value.converter", f"{TOPIC}orders.value.converter"])
def test_a_schema_file_must_be_below_the_allowed_folders(converter: str, tmp_path: Path) -> None:
    """An error about its content would show parts of any file of the machine."""
    key = f"{converter}.schema.file"
    (tmp_path / "a.avsc").write_text('"string"')
    for file, is_refused in (("/etc/passwd", True), (str(tmp_path / "a.avsc"), False)):
        raw = changed({converter: "Avro", key: file})
        refused = dict(unreachable(raw, AccessPolicy(names=frozenset(), roots=(str(tmp_path),))))
        assert (key in refused) == is_refused


def own(options: Any) -> Any:
    """A converter with a required number."""
    int(options["size"])
    return lambda *_: {}


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Plugins]:
    """The plugins of a node with an installed converter."""
    module = types.ModuleType("own_converters")
    vars(module).update(own=own)
    monkeypatch.setitem(sys.modules, "own_converters", module)
    install(monkeypatch, tmp_path, GROUP, "acme.Own = own_converters:own")
    installed.cache_clear()
    yield BUILT_IN + custom_converters()
    installed.cache_clear()


def checked(plugins: Plugins, change: dict[str, str], **more: Any) -> Validation:
    sink = plugins.connector("IcebergSink")
    assert sink is not None
    return validate(sink, changed(change), plugins, **more)


def test_installed_converters_are_plugins(plugins: Plugins) -> None:
    """With their own name only, for keys, values and headers."""
    kinds = [plugin.type for plugin in plugins.all() if plugin.class_name == "acme.Own"]
    assert kinds == ["converter", "header_converter"]
    assert plugins.find("acme.Own") is not None
    assert plugins.find("Own") is None


@pytest.mark.parametrize(
    "key", ["value.converter", "header.converter", f"{TOPIC}orders.key.converter"]
)
def test_options_of_an_installed_converter_are_checked(plugins: Plugins, key: str) -> None:
    """By its own function; a resolved secret is not in the error."""
    assert checked(plugins, {key: "acme.Own", f"{key}.size": "1"}).errors == ()
    for size in ({}, {f"{key}.size": "${env:S}"}):
        found = checked(
            plugins,
            {key: "acme.Own", **size},
            resolve=lambda text: text.replace("${env:S}", "hunter2"),
        )
        wrong = {info.name: info.errors for info in found.configs if info.errors}
        assert list(wrong) == [key]
        assert "converter acme.Own rejects its options" in wrong[key][0]
        assert "hunter2" not in str(found.to_json())


def test_unknown_converters_of_a_stored_connector_are_reported_when_it_starts() -> None:
    """With the names that are known."""
    from connect.records.record_path import ReferencePath

    config = parse(
        changed(
            {
                "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
                f"{TOPIC}orders.value.converter": "Gone",
            }
        )
    )
    with pytest.raises(ConfigError, match="unknown converter 'Gone'"):
        ReferencePath(config)
