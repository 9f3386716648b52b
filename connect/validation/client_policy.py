"""The operator's policy for Kafka client properties that connectors override.

Rules of this file:
- Names, values and messages are those of Kafka Connect's
  ``connector.client.config.override.policy``.
- Servers, protocol, credentials and TLS determine who receives the node's secrets. If the REST API
  has users, connectors may override them only if the node's properties allow it.
- A value that equals the node's value is not an override.

Source:
    ``PrincipalConnectorClientConfigOverridePolicy`` and its siblings, Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from connect.config.client_overrides import PREFIXES, split
from connect.config.key import list_of
from connect.config.keys.client_keys import CLIENT_KEYS
from connect.config.local_paths import USERS_FILE
from connect.gateways.kafka.kafka_properties import SECURITY_PREFIXES, servers

POLICY = "connector.client.config.override.policy"
SERVERS_ALLOWED = "icefloe.kafka.servers.allowed"
EVERY = "*"
_SERVERS = "bootstrap.servers"
_SINKS_OWN = "iceberg.kafka."
_PRINCIPAL = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_ROLES = ("", "consumer.", "producer.", "admin.")


@dataclass(frozen=True, slots=True)
class ClientPolicy:
    """The client properties that connectors may override.

    Attributes:
        name: All, None or Principal.
        is_open: whether connectors may override connection and authentication properties.
        servers_allowed: additional servers that connectors may use; ``*`` allows all.
        own: the node's client properties by role.
    """

    name: str = "All"
    is_open: bool = True
    servers_allowed: frozenset[str] = frozenset({EVERY})
    own: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def of(
        cls, node: Mapping[str, str], resolve: Callable[[str], str] | None = None
    ) -> ClientPolicy:
        """Return the policy from the node's properties.

        Args:
            node: node properties.
            resolve: resolves placeholders; None if the properties have none.
        """
        resolved = {
            name: resolve(value) if resolve is not None else value
            for name, value in node.items()
            if is_of_policy(name)
        }
        has_users = bool(resolved.get(USERS_FILE))
        listed = resolved.get(SERVERS_ALLOWED)
        default = "" if has_users else EVERY
        allowed = list_of((default if listed is None else listed).lower().strip())
        plain = {name: value for name, value in resolved.items() if _is_about_connections(name)}
        own = tuple({**plain, **split(resolved, role)} if role else plain for role in _ROLES)
        return cls(
            resolved.get(POLICY, "All"),
            not has_users or POLICY in resolved or bool(listed),
            frozenset(allowed).union(*map(servers, own)),
            own,
        )

    def refusals(self, raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
        """Yield key and error message for each override that is not allowed.

        Args:
            raw: the configuration with resolved placeholders.
        """
        for prefix in PREFIXES:
            for name, value in split(raw, prefix).items():
                if (why := self._refusal(prefix, name, value)) is not None:
                    yield prefix + name, why

    def _refusal(self, prefix: str, name: str, value: str) -> str | None:
        by_name = (
            f"The '{self.name}' policy does not allow '{name}' to be overridden in the connector "
            "configuration."
        )
        is_named = self.name == "All" or (self.name == "Principal" and name in _PRINCIPAL)
        if prefix != _SINKS_OWN and not is_named:
            return by_name
        if not _is_about_connections(name) or self._is_own(name, value):
            return None
        if not is_named:
            return by_name
        if name == _SERVERS:
            named = servers({name: value})
            if EVERY in self.servers_allowed or named <= self.servers_allowed:
                return None
            return (
                "A connector may use only the node's brokers, and brokers in the node's property "
                f"{SERVERS_ALLOWED}."
            )
        if self.is_open:
            return None
        return (
            f"A connector may not override '{name}', which affects the node's authentication. The "
            f"operator can allow it with the node's property {POLICY}."
        )

    def _is_own(self, name: str, value: str) -> bool:
        """Return whether the node uses the same value."""
        if name == _SERVERS:
            return any(servers({name: value}) <= servers(each) for each in self.own)
        key = CLIENT_KEYS.get(name)
        default = key.default_text if key is not None else None
        texts = {each.get(name, default) for each in self.own or ({},)}
        return value.strip() in texts


def is_of_policy(name: str) -> bool:
    """Return whether a node property is part of this policy."""
    policy_names = {POLICY, SERVERS_ALLOWED, USERS_FILE}
    return name in policy_names or _is_about_connections(_bare(name))


def _bare(name: str) -> str:
    role = next((role for role in _ROLES if role and name.startswith(role)), "")
    return name.removeprefix(role)


def _is_about_connections(name: str) -> bool:
    return name == _SERVERS or name.startswith(SECURITY_PREFIXES)
