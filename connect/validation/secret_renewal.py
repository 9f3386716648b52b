"""Secrets that are replaced while a process runs: passwords, tokens, keys and certificates.

Rules of this file:
- Values of placeholders and versions of key files are compared, never kept in texts.
- A value that cannot be read, because its file is just being replaced, is not a change.
- The owner of a renewed configuration first ends its work in order, then opens new clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.config.node.node_config import NodeConfig
from connect.config.placeholders import has_placeholder
from connect.errors import ConfigError
from connect.gateways.kafka.key_stores import versions
from connect.logs import logger
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve

_log = logger("secrets")


@dataclass(frozen=True, slots=True)
class ResolvedConfig:
    """A connector's configuration and the node's properties, placeholders resolved."""

    config: ConnectorConfig
    node: Mapping[str, str]


class SecretRenewal:
    """The secrets of one connector, read again at intervals. Its owner's thread uses it.

    Args:
        raw: the connector's configuration, with placeholders.
        node: the node's properties, with placeholders.
        providers: resolves placeholders.
        clock: time.
        interval_ms: how often secrets are compared.

    Raises:
        ConfigError: as ``parse`` and ``resolve``.
    """

    def __init__(
        self,
        raw: Mapping[str, str],
        node: Mapping[str, str],
        providers: Providers,
        clock: Clock,
        *,
        interval_ms: int,
    ) -> None:
        self._raw = raw
        self._node = node
        self._providers = providers
        self._clock = clock
        self._interval_ms = interval_ms
        self._texts = [text for text in (*raw.values(), *node.values()) if has_placeholder(text)]
        self._seen = self._fingerprint()
        self._due_ms = clock.monotonic_ms() + interval_ms
        self._resolved = self._resolve()

    @classmethod
    def of(
        cls, raw: Mapping[str, str], node: NodeConfig, providers: Providers, clock: Clock
    ) -> SecretRenewal:
        """Return the secrets of a connector on a node, compared as often as the node says.

        Raises:
            ConfigError: as the constructor.
        """
        interval_ms = node.values["icefloe.secrets.refresh.ms"]
        return cls(raw, node.properties, providers, clock, interval_ms=interval_ms)

    def are_outdated(self) -> bool:
        """Return whether a secret was replaced; compared at most once per interval."""
        if self._clock.monotonic_ms() < self._due_ms:
            return False
        self._due_ms = self._clock.monotonic_ms() + self._interval_ms
        return self._has_changed()

    def latest(self) -> ResolvedConfig:
        """Return the configuration with the secrets of now."""
        if self._has_changed():
            try:
                self._seen = self._fingerprint()
                self._resolved = self._resolve()
            except ConfigError as error:
                _log.warning("new secrets cannot be used", error=str(error))
            else:
                _log.info("secrets were replaced, clients are opened again")
        return self._resolved

    def _has_changed(self) -> bool:
        try:
            return self._fingerprint() != self._seen
        except ConfigError:
            return False

    def _fingerprint(self) -> tuple[object, ...]:
        values = tuple(self._providers.resolve(text) for text in self._texts)
        return (*values, versions(self._node))

    def _resolve(self) -> ResolvedConfig:
        config = resolve(parse(self._raw), self._providers, node=self._node)
        return ResolvedConfig(config, self._providers.resolve_all(self._node))


class LiveProperties(Mapping[str, str]):
    """Client properties that are made again for each new client, with the secrets of then.

    Args:
        make: returns the properties, with placeholders resolved.

    Raises:
        ConfigError: as ``make``, the first time. Later the last properties are kept.
    """

    def __init__(self, make: Callable[[], Mapping[str, str]]) -> None:
        self._make = make
        self._last = make()

    def __iter__(self) -> Iterator[str]:
        try:
            self._last = self._make()
        except ConfigError as error:
            _log.warning("secrets cannot be read again", error=str(error))
        return iter(self._last)

    def __getitem__(self, name: str) -> str:
        return self._last[name]

    def __len__(self) -> int:
        return len(self._last)
