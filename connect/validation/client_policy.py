"""Which client properties the node's operator lets connectors override.

Rules of this file:
- Names and values are Kafka Connect's ``connector.client.config.override.policy``; its sentences
  are Kafka's, too.
- Servers, protocol, login and TLS decide who gets what the node knows. Where the API has users, a
  connector overrides them only when the node's properties say so.
- A value that equals the node's own overrides nothing.

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
    """What connectors may override.

    Attributes:
        name: All, None or Principal.
        is_open: whether connectors may change how a client connects and logs in.
        servers_allowed: servers that connectors may name; ``*`` stands for every one.
        own: the node's client properties of each role.
    """

    name: str = "All"
    is_open: bool = True
    servers_allowed: frozenset[str] = frozenset({EVERY})
    own: tuple[Mapping[str, str], ...] = ()

    @classmethod
    def of(
        cls, node: Mapping[str, str], resolve: Callable[[str], str] | None = None
    ) -> ClientPolicy:
        """The policy that the node's properties state.

        Args:
            node: node properties.
            resolve: turns placeholders in them into values; None when they have none.
        """
        known = {
            name: resolve(value) if resolve is not None else value
            for name, value in node.items()
            if is_of_policy(name)
        }
        has_users = bool(known.get(USERS_FILE))
        listed = known.get(SERVERS_ALLOWED)
        given = "" if has_users else EVERY
        allowed = list_of((given if listed is None else listed).lower().strip())
        plain = {name: value for name, value in known.items() if _is_about_connections(name)}
        own = tuple({**plain, **split(known, role)} if role else plain for role in _ROLES)
        return cls(
            known.get(POLICY, "All"),
            not has_users or POLICY in known or bool(listed),
            frozenset(allowed).union(*map(servers, own)),
            own,
        )

    def refusals(self, raw: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
        """Sentences about overrides that are not allowed, with their keys.

        Args:
            raw: the configuration, placeholders resolved.
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
                "A connector may name the node's own brokers only, and those that the node's "
                f"property {SERVERS_ALLOWED} lists."
            )
        if self.is_open:
            return None
        return (
            f"A connector may not change '{name}': it decides how the node logs in. The node's "
            f"property {POLICY} can allow it."
        )

    def _is_own(self, name: str, value: str) -> bool:
        """Whether the node itself uses this value."""
        if name == _SERVERS:
            return any(servers({name: value}) <= servers(each) for each in self.own)
        key = CLIENT_KEYS.get(name)
        default = key.default_text if key is not None else None
        texts = {each.get(name, default) for each in self.own or ({},)}
        return value.strip() in texts


def is_of_policy(name: str) -> bool:
    """Whether a property of the node decides what connectors may override."""
    known = {POLICY, SERVERS_ALLOWED, USERS_FILE}
    return name in known or _is_about_connections(_bare(name))


def _bare(name: str) -> str:
    role = next((role for role in _ROLES if role and name.startswith(role)), "")
    return name.removeprefix(role)


def _is_about_connections(name: str) -> bool:
    return name == _SERVERS or name.startswith(SECURITY_PREFIXES)
