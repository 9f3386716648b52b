"""The node's own configuration: a properties file, then the environment over it.

Rules of this file:
- Names are Kafka Connect's, so that a worker's file can be used as it is; keys of the Java worker
  that mean nothing here are accepted with a warning.
- Environment variables start with ``CONNECT_``: lower case, ``_`` becomes ``.``, ``__`` becomes
  ``_``, ``___`` becomes ``-`` (the convention of the usual container images).
- Unknown ``icefloe.*`` keys are errors that name the nearest known key.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from connect.config.invalid_config import InvalidConfigError
from connect.config.key import Key, missing, typed
from connect.config.node.node_keys import NODE_KEYS
from connect.config.node.node_prefixes import NODE_PREFIXES
from connect.config.properties_file import parse_properties
from connect.errors import ConfigError

ENVIRONMENT_PREFIX = "CONNECT_"
_MARKS = {1: ".", 2: "_", 3: "-"}
_BY_NAME: dict[str, Key] = {key.name: key for key in NODE_KEYS}


class Address(NamedTuple):
    """Where the REST API listens or is reached."""

    host: str
    port: int
    scheme: str = "http"

    @property
    def url(self) -> str:
        """The address as the base of URLs."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything the node's properties say.

    Attributes:
        properties: all properties as given, placeholders unresolved; Kafka client settings are
            taken from here by the gateway.
        values: typed value per declared key, defaults included.
        warnings: sentences about properties without effect.
    """

    properties: Mapping[str, str]
    values: Mapping[str, Any]
    warnings: tuple[str, ...] = field(default=())

    @classmethod
    def load(cls, path: Path | None, environ: Mapping[str, str]) -> NodeConfig:
        """Read the file, if any, and the environment over it.

        Raises:
            ConfigError: the file cannot be read, or properties are missing or wrong.
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
                    f"cannot read node properties {path}: it is no UTF-8 text ({error.reason})"
                ) from error
            except ConfigError as error:
                raise ConfigError(f"{path}: {error.message}") from error
        properties.update(from_environment(environ))
        return cls.from_properties(properties)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> NodeConfig:
        """Check and type properties.

        Raises:
            InvalidConfigError: with every error at its key.
        """
        values: dict[str, Any] = {}
        errors: dict[str, list[str]] = {}
        warnings: list[str] = []
        for key in NODE_KEYS:
            if key.is_required and key.name not in properties:
                errors[key.name] = [missing(key.name)]
                continue
            found = typed(key, properties.get(key.name, key.default_text))
            values[key.name] = found.value
            if found.errors and properties.get(key.name, key.default_text) is not None:
                errors[key.name] = list(found.errors)
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
        """Name of the cluster of nodes."""
        return str(self.values["group.id"])

    @property
    def config_topic(self) -> str:
        """Topic of connector configurations."""
        return str(self.values["config.storage.topic"])

    @property
    def status_topic(self) -> str:
        """Topic of states."""
        return str(self.values["status.storage.topic"])

    @property
    def config_replication_factor(self) -> int:
        """Of the config topic, when it has to be created; -1 is the broker's default."""
        return int(self.values["config.storage.replication.factor"])

    @property
    def status_replication_factor(self) -> int:
        """Of the status topic, when it has to be created; -1 is the broker's default."""
        return int(self.values["status.storage.replication.factor"])

    @property
    def status_partitions(self) -> int:
        """Of the status topic, when it has to be created."""
        return int(self.values["status.storage.partitions"])

    @property
    def listener(self) -> Address:
        """Where to listen: the first of ``listeners``."""
        return parse_listener(self.values["listeners"][0])

    @property
    def advertised(self) -> Address:
        """How others reach this node."""
        listener = self.listener
        return Address(
            self.values["rest.advertised.host.name"] or listener.host,
            self.values["rest.advertised.port"] or listener.port,
            listener.scheme,
        )

    @property
    def users_file(self) -> Path | None:
        """Who may use the API; None lets everybody, at loopback."""
        file = self.values["icefloe.rest.users.file"]
        return Path(file) if file else None

    @property
    def state_dir(self) -> Path:
        """Folder for what may be lost."""
        return Path(self.values["icefloe.state.dir"])

    @property
    def drain_grace_ms(self) -> int:
        """How long children may take to end, milliseconds."""
        return int(self.values["icefloe.drain.grace.ms"])

    @property
    def task_restarts_max(self) -> int:
        """Restarts of a failed task by itself before it stays failed."""
        return int(self.values["icefloe.task.restart.max"])

    @property
    def task_restart_backoff_ms(self) -> tuple[int, int]:
        """Pause before the first restart and the longest pause, milliseconds."""
        first_ms = int(self.values["icefloe.task.restart.backoff.ms"])
        return first_ms, max(first_ms, int(self.values["icefloe.task.restart.backoff.max.ms"]))

    @property
    def metadata_refresh_ms(self) -> int:
        """How often topics and partitions are looked up, milliseconds."""
        return int(self.values["icefloe.metadata.refresh.ms"])

    @property
    def spark_properties(self) -> dict[str, str]:
        """``spark.*`` properties for the worker's session, master included."""
        own = {k: v for k, v in self.properties.items() if k.startswith("spark.")}
        return {"spark.master": self.values["spark.master"], **own}


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Properties that environment variables stand for."""
    found: dict[str, str] = {}
    for variable, value in environ.items():
        if variable.startswith(ENVIRONMENT_PREFIX):
            name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
            found[re.sub(r"_{1,3}", lambda mark: _MARKS[len(mark[0])], name)] = value
    return found


def parse_listener(text: str) -> Address:
    """Read ``http://host:port`` or ``https://host:port``.

    Raises:
        ConfigError: another scheme, no port, or no address at all.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"listener {text!r} is not http(s)://host:port: {error}") from error
    scheme = parts.scheme.lower()
    if scheme not in {"http", "https"} or port is None:
        raise ConfigError(f"listener {text!r} is not http(s)://host:port")
    host = parts.hostname or "0.0.0.0"  # noqa: S104 - an empty host means all
    return Address(host, port, scheme)


def is_loopback(host: str) -> bool:
    """True when only this machine can reach the host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_listener(text: str, values: Mapping[str, Any], errors: dict[str, list[str]]) -> None:
    """Refuse to be open to others without knowing who they are, or with passwords in the clear."""
    found = errors.setdefault
    try:
        address = parse_listener(text)
    except ConfigError as error:
        found("listeners", []).append(error.message)
        return
    keystore = "listeners.https.ssl.keystore.location"
    if address.scheme == "https" and not values.get(keystore):
        found(keystore, []).append(f"listener {text} needs a certificate and its key in this")
    if is_loopback(address.host):
        return
    if not values.get("icefloe.rest.users.file"):
        found("listeners", []).append(
            f"listener {text} is reachable from other machines and everybody may do everything: "
            "listen at 127.0.0.1, or say who may do what with icefloe.rest.users.file"
        )
    elif address.scheme == "http" and not values.get("icefloe.rest.plaintext.allowed"):
        found("listeners", []).append(
            f"listener {text} takes passwords in the clear: use https, or set "
            "icefloe.rest.plaintext.allowed=true where something else encrypts"
        )


def _check_node_certificates(values: Mapping[str, Any], errors: dict[str, list[str]]) -> None:
    """Nodes know each other by certificates only where they ask for them."""
    name, auth = "icefloe.rest.node.certificates", "listeners.https.ssl.client.auth"
    store = "listeners.https.ssl.truststore.location"
    if values.get(name) and (values.get(auth) == "none" or not values.get(store)):
        errors.setdefault(name, []).append(
            f"nodes show each other their certificates only with {auth} requested or required, and "
            f"{store}"
        )
