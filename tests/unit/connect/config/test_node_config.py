"""The node's properties and the providers they declare."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connect.config.invalid_config import InvalidConfigError
from connect.config.node.node_config import Address, NodeConfig, is_loopback
from connect.config.node.node_environment import from_environment, without_properties
from connect.config.node.node_keys import NODE_KEYS
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError
from connect.validation.parse import parse
from connect.validation.providers import VALUE_BYTES_MAX, Providers, resolve

GOOD = {
    "bootstrap.servers": "a:1, b:2",
    "group.id": "cluster",
    "config.storage.topic": "configs",
    "status.storage.topic": "status",
}


def test_properties_are_parsed_as_in_java() -> None:
    """Comments, separators, continued lines, escapes; the last of equal keys wins."""
    text = "# c\n! d\na=1\n b : 2\nc 3\nd\ne=x\\\n   y\nf\\ g=\\u0041\\t\\\\\na=4\n"
    assert parse_properties(text) == {
        "a": "4",
        "b": "2",
        "c": "3",
        "d": "",
        "e": "xy",
        "f g": "A\t\\",
    }


def test_a_broken_escape_is_an_error_with_its_line() -> None:
    """No guess at what was meant."""
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties("a=1\nb=\\u12\n")


@given(st.text())
def test_any_text_is_properties_or_an_error(text: str) -> None:
    """No other exception is raised."""
    with contextlib.suppress(ConfigError):
        assert isinstance(parse_properties(text), dict)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    """A worker file of Kafka Connect is accepted unchanged."""
    file = tmp_path / "connect.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in GOOD.items()) + "plugin.path=/x\n")
    node = NodeConfig.load(file, {"CONNECT_GROUP_ID": "other", "HOME": "/"})
    assert node.group_id == "other"
    assert node.bootstrap_servers == "a:1,b:2"
    assert node.listener == Address("127.0.0.1", 8083)
    assert node.advertised.url == "http://127.0.0.1:8083"
    assert node.spark_properties == {"spark.master": "local[*]"}
    assert any("plugin.path" in warning for warning in node.warnings)


@pytest.mark.parametrize("value", ["0", "4", "many"])
def test_a_removed_key_is_a_warning(value: str) -> None:
    """With any value: it refuses no start of a node."""
    properties = {**GOOD, "icefloe.coordinator.commit.processes": value}
    [warning] = NodeConfig.from_properties(properties).warnings
    assert warning.startswith("icefloe.coordinator.commit.processes has no effect: it was removed")


def test_names_of_environment_variables() -> None:
    """One, two and three underscores are dot, underscore and dash."""
    assert from_environment({"CONNECT_A_B__C___D": "x"}) == {"a.b_c-d": "x"}


def test_every_key_has_a_variable_with_the_programs_own_prefix() -> None:
    """With or without the ``icefloe.`` of the key; it replaces the form of Kafka Connect."""
    for key in NODE_KEYS:
        name = key.name.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        found = from_environment({f"CONNECT_{name}": "a", f"ICEFLOE_{name}": "b"})
        assert found == {key.name: "b"}
    given = {
        "ICEFLOE_LOG_OUTPUT": "stdout",
        "ICEFLOE_SASL_JAAS_CONFIG": "x",
        "ICEFLOE_SPARK_DRIVER_MEMORY": "2g",
        "ICEFLOE_GRANTS_ORDERS": "a.*",
    }
    assert from_environment(given) == {
        "icefloe.log.output": "stdout",
        "sasl.jaas.config": "x",
        "spark.driver.memory": "2g",
        "icefloe.grants.orders": "a.*",
    }


def test_other_variables_that_begin_like_the_program_are_no_properties() -> None:
    """Of the client, of connectors, and of a Kubernetes service of that name."""
    others = dict.fromkeys(
        (
            "ICEFLOE_SERVER",
            "ICEFLOE_TOKEN",
            "ICEFLOE_USER",
            "ICEFLOE_PASSWORD",
            "ICEFLOE_PROFILES",
            "ICEFLOE_CA_FILE",
            "ICEFLOE_CACHE_DIR",
            "ICEFLOE_MAVEN_REPOSITORY",
            "ICEFLOE_IPC_FD",
            "ICEFLOE_SECRET_DB",
            "ICEFLOE_CATALOG_URI",
            "ICEFLOE_INGEST_SASL_PASSWORD",
            "ICEFLOE_PORT",
            "ICEFLOE_PORT_8083_TCP_ADDR",
            "ICEFLOE_SERVICE_HOST",
            "ICEFLOE_SERVICE_PORT",
        ),
        "x",
    )
    assert from_environment(others) == {}
    assert without_properties({**others, "ICEFLOE_GROUP_ID": "g", "CONNECT_A": "b"}) == others


def test_missing_and_unknown_keys_are_named() -> None:
    """All in one error; an unknown key with the nearest known one."""
    with pytest.raises(InvalidConfigError) as caught:
        NodeConfig.from_properties({"group.id": "g", "icefloe.state.dri": "x"})
    errors = caught.value.errors
    assert {"bootstrap.servers", "config.storage.topic", "status.storage.topic"} <= set(errors)
    assert errors["icefloe.state.dri"][0].endswith("Did you mean icefloe.state.dir?")


@pytest.mark.parametrize(
    "listener", ["http://0.0.0.0:8083", "http://:8083", "http://host:1", "https://127.0.0.1:1", "x"]
)
def test_a_node_without_authentication_needs_a_loopback_listener(listener: str) -> None:
    """A listener that others can reach, or that is none, is refused."""
    with pytest.raises(InvalidConfigError, match="listener"):
        NodeConfig.from_properties({**GOOD, "listeners": listener})


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.1.2.3", True), ("::1", True), ("10.0.0.1", False), ("h", False)],
)
def test_names_other_than_localhost_are_not_loopback(host: str, *, expected: bool) -> None:
    """Names other than localhost are not trusted."""
    assert is_loopback(host) is expected


def providers(tmp_path: Path) -> Providers:
    """The three providers, bound to one folder and one name."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    (folder / "s.properties").write_text("password=hunter2\n")
    (folder / "token").write_text("abc")
    (tmp_path / "outside.properties").write_text("password=outside\n")
    (folder / "link.properties").symlink_to(tmp_path / "outside.properties")
    return Providers(
        {
            "config.providers": "file,dir,env",
            "config.providers.file.class": (
                "org.apache.kafka.common.config.provider.FileConfigProvider"
            ),
            "config.providers.file.param.allowed.paths": str(folder),
            "config.providers.dir.param.allowed.paths": str(folder),
            "config.providers.env.param.allowlist.pattern": "OK_.*",
        },
        {"OK_A": "1", "HOME": "/root"},
    )


def test_providers_resolve_placeholders(tmp_path: Path) -> None:
    """File, folder and environment; text around a placeholder is kept."""
    found = providers(tmp_path)
    folder = tmp_path / "allowed"
    assert found.resolve(f"x${{file:{folder}/s.properties:password}}y") == "xhunter2y"
    assert found.resolve(f"${{dir:{folder}:token}}") == "abc"
    assert found.resolve("${env:OK_A}${env:OK_A}") == "11"
    assert found.resolve("${other:a:b}") == "${other:a:b}"


@pytest.mark.parametrize(
    "text",
    [
        "${env:HOME}",
        "${env:OK_NONE}",
        "${file:{tmp}/outside.properties:password}",
        "${file:{tmp}/allowed/../outside.properties:password}",
        "${file:{tmp}/allowed/link.properties:password}",
        "${file:{tmp}/allowed/s.properties:other}",
        "${file:{tmp}/allowed/none.properties:password}",
        "${dir:{tmp}/allowed:../outside.properties}",
        "${dir:{tmp}/allowed:none}",
    ],
)
def test_an_unresolvable_placeholder_is_an_error_without_its_value(
    tmp_path: Path, text: str
) -> None:
    """What is not there or not allowed is one error that says no value."""
    found = providers(tmp_path)
    with pytest.raises(ConfigError) as caught:
        found.resolve(text.replace("{tmp}", str(tmp_path)))
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    "text",
    [
        "${dir:{tmp}/allowed:link.properties}",  # a link that leads out
        "${dir:{tmp}/allowed/away:outside.properties}",  # a folder that does
        "${dir:{tmp}/allowed/..:outside.properties}",
        "${dir:{tmp}/allowed/../allowed-not:token}",  # a name that begins like an allowed one
        "${dir:{tmp}/allowed-not:token}",
        "${dir:{tmp}:outside.properties}",
        "${dir:allowed:token}",  # relative to the working directory
        "${dir::token}",
        "${dir:{tmp}/allowed:.}",
        "${dir:{tmp}/allowed:..}",
        "${dir:{tmp}/allowed:}",
        "${dir:{tmp}/allowed:sub}",  # a folder
        "${dir:{tmp}/allowed:sub/token}",
        "${dir:{tmp}/allowed:loop}",
        "${dir:{tmp}/allowed:large}",
        "${dir:{tmp}/allowed:bytes}",
        "${dir:{tmp}/allowed:a\0b}",
        "${file:{tmp}/allowed/away/outside.properties:password}",
        "${file:{tmp}/allowed/loop:password}",
        "${file:{tmp}/allowed/large:password}",
        "${file:{tmp}/allowed/bytes:password}",
        "${file:{tmp}/allowed:password}",
    ],
)
def test_a_placeholder_cannot_leave_its_folder(tmp_path: Path, text: str) -> None:
    """By links, dots or similar names; the text is bounded."""
    found = providers(tmp_path)
    folder = tmp_path / "allowed"
    (tmp_path / "allowed-not").mkdir()
    (tmp_path / "allowed-not" / "token").write_text("outside")
    (folder / "away").symlink_to(tmp_path)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "sub").mkdir()
    (folder / "sub" / "token").write_text("abc")
    (folder / "large").write_bytes(b"x" * (VALUE_BYTES_MAX + 1))
    (folder / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="does not exist or may not be read"):
        found.resolve(text.replace("{tmp}", str(tmp_path)))


def test_links_inside_an_allowed_folder_are_followed(tmp_path: Path) -> None:
    """Containers mount secrets this way."""
    found = providers(tmp_path)
    folder = tmp_path / "allowed"
    (folder / "..2026").mkdir()
    (folder / "sub").mkdir()
    (folder / "..2026" / "mounted").write_text("abc")
    (folder / "..data").symlink_to(folder / "..2026")
    (folder / "mounted").symlink_to(Path("..data") / "mounted")
    (tmp_path / "entry").symlink_to(folder)
    assert found.resolve(f"${{dir:{folder}:mounted}}") == "abc"
    assert found.resolve(f"${{dir:{tmp_path}/entry:mounted}}") == "abc"
    assert found.resolve(f"${{dir:{folder}/sub/..:token}}") == "abc"


def test_an_unknown_provider_class_is_refused() -> None:
    """At the start of the node."""
    with pytest.raises(ConfigError, match=r"com\.example\.Vault"):
        Providers({"config.providers": "v", "config.providers.v.class": "com.example.Vault"}, {})


def test_a_resolved_configuration_keeps_the_sent_form(tmp_path: Path) -> None:
    """Secrets are in the values, never in ``raw``."""
    raw = {
        "name": "c",
        "connector.class": "IcebergSink",
        "topics": "t",
        "iceberg.tables": "a.b",
        "iceberg.catalog.token": "${env:OK_A}",
    }
    resolved = resolve(parse(raw), providers(tmp_path))
    assert resolved.catalog_properties == {"token": "1"}
    assert resolved.raw == raw
