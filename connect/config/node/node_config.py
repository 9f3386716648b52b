"""The node's configuration: a properties file, overridden by environment variables.

Rules of this file:
- Key names are those of Kafka Connect, so that the file of a Connect worker can be used unchanged.
  Keys of the Java worker without effect cause a warning.
- An unknown ``icefloe.*`` key is an error. The message suggests the nearest known key.
"""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from connect.config.client_overrides import is_unknown_client_property
from connect.config.invalid_config import InvalidConfigError
from connect.config.key import Key, missing, typed
from connect.config.node.node_environment import from_environment
from connect.config.node.node_keys import NODE_KEYS
from connect.config.node.node_prefixes import NODE_PREFIXES
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError

_FILE_DEFAULTS = {
    "group.id": "icefloe-standalone",
    "config.storage.topic": "",
    "status.storage.topic": "",
    "icefloe.log.output": "stdout",
}
_BY_NAME: dict[str, Key] = {key.name: key for key in NODE_KEYS}


class Address(NamedTuple):
    """An address of the REST API."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """Return the address as a base URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The typed configuration of a node.

    Attributes:
        properties: all properties as set, with placeholders. The Kafka gateway reads client
            properties from them.
        values: typed values of all declared keys, including defaults.
        warnings: warnings about properties without effect.
    """

    properties: Mapping[str, str]
    values: Mapping[str, Any]
    warnings: tuple[str, ...] = field(default=())

    @classmethod
    def load(
        cls,
        path: Path | None,
        environ: Mapping[str, str],
        fixed: Mapping[str, str] = MappingProxyType({}),
    ) -> NodeConfig:
        """Read the properties file, if any, and the environment variables.

        Args:
            path: the file.
            environ: environment variables; they replace properties of the file.
            fixed: properties that replace both.

        Raises:
            ConfigError: the file cannot be read, or properties are missing or invalid.
        """
        properties: dict[str, str] = {}
        if path is not None:
            try:
                properties = parse_properties(path.read_text(encoding="utf-8"))
            except OSError as error:
                raise ConfigError(
                    f"cannot read node properties {path}: {error.strerror}; name a file that exists"
                ) from error
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"cannot read node properties {path}: it is not UTF-8 text ({error.reason})"
                ) from error
            except ConfigError as error:
                raise ConfigError(f"{path}: {error.message}") from error
        properties.update({**from_environment(environ), **fixed})
        return cls.from_properties(properties)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> NodeConfig:
        """Check properties and convert them to typed values.

        Raises:
            InvalidConfigError: the properties have errors; contains all of them.
        """
        values: dict[str, Any] = {}
        errors: dict[str, list[str]] = {}
        warnings: list[str] = []
        properties = _with_file_defaults(properties)
        for key in NODE_KEYS:
            if key.is_required and key.name not in properties:
                errors[key.name] = [missing(key.name)]
                continue
            result = typed(key, properties.get(key.name, key.default_text))
            values[key.name] = result.value
            if result.errors and properties.get(key.name, key.default_text) is not None:
                errors[key.name] = list(result.errors)
            if key.java_only and key.name in properties:
                warnings.append(f"{key.name} has no effect: {key.java_only}")
        for name in properties:
            if name in _BY_NAME or name.startswith(tuple(p.name for p in NODE_PREFIXES)):
                continue
            if name.startswith("icefloe."):
                near = difflib.get_close_matches(name, list(_BY_NAME), n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                errors[name] = [f"Unknown configuration {name}.{hint}"]
            else:
                warnings.append(f"{name} is not known to this node and has no effect")
        warnings += [
            f"{name} has no effect: neither Kafka's Java clients nor librdkafka know it"
            for name in properties
            if is_unknown_client_property(name)
        ]
        for listener in values.get("listeners") or ():
            _check_listener(listener, values, errors)
        _check_node_certificates(values, errors)
        if errors:
            raise InvalidConfigError(None, errors)
        return cls(dict(properties), values, tuple(warnings))

    @property
    def bootstrap_servers(self) -> str:
        """Brokers, comma-separated."""
        return ",".join(self.values["bootstrap.servers"])

    @property
    def group_id(self) -> str:
        """Return the name of the cluster of nodes."""
        return str(self.values["group.id"])

    @property
    def config_topic(self) -> str:
        """Return the topic of connector configurations."""
        return str(self.values["config.storage.topic"])

    @property
    def status_topic(self) -> str:
        """Return the topic of connector and task states."""
        return str(self.values["status.storage.topic"])

    @property
    def config_replication_factor(self) -> int:
        """Return the replication factor of a new config topic; -1 is the broker's default."""
        return int(self.values["config.storage.replication.factor"])

    @property
    def status_replication_factor(self) -> int:
        """Return the replication factor of a new status topic; -1 is the broker's default."""
        return int(self.values["status.storage.replication.factor"])

    @property
    def status_partitions(self) -> int:
        """Return the number of partitions of a new status topic."""
        return int(self.values["status.storage.partitions"])

    @property
    def is_state_in_files(self) -> bool:
        """Return whether the state is in files, so that the node is alone."""
        return bool(self.values["icefloe.state.storage"] == "file")

    @property
    def has_rest(self) -> bool:
        """Return whether the node serves the REST API."""
        return not self.is_state_in_files or "listeners" in self.properties

    @property
    def listener(self) -> Address:
        """Return the first address of ``listeners``."""
        return parse_listener(self.values["listeners"][0])

    @property
    def advertised(self) -> Address:
        """Return the address that other nodes use."""
        listener = self.listener
        return Address(
            self.values["rest.advertised.host.name"] or listener.host,
            self.values["rest.advertised.port"] or listener.port,
            listener.scheme,
        )

    @property
    def users_file(self) -> Path | None:
        """Return the users file, or None for an API without authentication on loopback."""
        file = self.values["icefloe.rest.users.file"]
        return Path(file) if file else None

    @property
    def is_maintenance_allowed(self) -> bool:
        """Return whether connectors may have their tables maintained on this node."""
        setting = self.values["icefloe.maintenance.enabled"]
        return self.users_file is None if setting is None else bool(setting)

    @property
    def state_dir(self) -> Path:
        """Return the folder for temporary files."""
        return Path(self.values["icefloe.state.dir"])

    @property
    def is_log_on_stdout(self) -> bool:
        """Return whether node, worker and coordinator log to standard output."""
        return bool(self.values["icefloe.log.output"] == "stdout")

    @property
    def drain_grace_ms(self) -> int:
        """Return the time that child processes have to stop, in milliseconds."""
        return int(self.values["icefloe.drain.grace.ms"])

    @property
    def spark_properties(self) -> dict[str, str]:
        """Return the ``spark.*`` properties of the worker's session, including the master."""
        own = {k: v for k, v in self.properties.items() if k.startswith("spark.")}
        return {"spark.master": self.values["spark.master"], **own}


def parse_listener(text: str) -> Address:
    """Parse ``http://host:port`` or ``https://host:port``.

    Raises:
        ConfigError: the text is not an address, has another scheme, or lacks a port.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"listener {text!r} is not http(s)://host:port: {error}") from error
    scheme = parts.scheme.lower()
    if scheme not in {"http", "https"} or port is None:
        raise ConfigError(f"listener {text!r} is not http(s)://host:port")
    host = parts.hostname or "0.0.0.0"  # noqa: S104 - an empty host means all interfaces
    return Address(host, port, scheme)


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _with_file_defaults(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the properties; a node with its state in files needs no group and no topics."""
    has_files = properties.get("icefloe.state.storage") == "file"
    return {**_FILE_DEFAULTS, **properties} if has_files else properties


def _check_listener(text: str, values: Mapping[str, Any], errors: dict[str, list[str]]) -> None:
    """Check that a listener beyond loopback has authentication and encryption."""
    errors_of = errors.setdefault
    try:
        address = parse_listener(text)
    except ConfigError as error:
        errors_of("listeners", []).append(error.message)
        return
    keystore = "listeners.https.ssl.keystore.location"
    if address.scheme == "https" and not values.get(keystore):
        errors_of(keystore, []).append(
            f"listener {text} requires this PEM file with its certificate and key"
        )
    if is_loopback(address.host):
        return
    if not values.get("icefloe.rest.users.file"):
        errors_of("listeners", []).append(
            f"listener {text} is reachable from other machines without authentication: "
            "listen on 127.0.0.1, or set icefloe.rest.users.file"
        )
    elif address.scheme == "http" and not values.get("icefloe.rest.plaintext.allowed"):
        errors_of("listeners", []).append(
            f"listener {text} receives passwords without encryption: use https, or set "
            "icefloe.rest.plaintext.allowed=true if a proxy encrypts the connections"
        )


def _check_node_certificates(values: Mapping[str, Any], errors: dict[str, list[str]]) -> None:
    """Check that the listeners request the certificates of other nodes."""
    name, auth = "icefloe.rest.node.certificates", "listeners.https.ssl.client.auth"
    store = "listeners.https.ssl.truststore.location"
    if values.get(name) and (values.get(auth) == "none" or not values.get(store)):
        errors.setdefault(name, []).append(
            f"nodes can only verify each other's certificates if {auth} is requested or required, "
            f"and {store} is set"
        )
