"""What the clients of connectors may reach from this process: hosts, local paths, credentials.

Rules of this file:
- The node's properties decide. Where the API has users, connectors are written by tenants: they
  reach no loopback, link-local and metadata address, no local path and no credentials of the
  node's own, unless a property allows it. Where it has none, everything is open.
- A name is judged by every address that it resolves to, and a connection by the address it has.
- An address counts in any notation: decimal, octal, hexadecimal, mapped into IPv6.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlparse

from connect.config.local_paths import LOCAL, LOCAL_KEY, USERS_FILE, allowed_roots, place, refusal
from connect.errors import ConfigError
from connect.redaction.foreign_text import hide_foreign_texts

HOSTS_ALLOWED: Final = "icefloe.hosts.allowed"
AMBIENT_ALLOWED: Final = "icefloe.ambient.credentials.allowed"
REACH_KEYS: Final = frozenset({USERS_FILE, HOSTS_ALLOWED, LOCAL_KEY, AMBIENT_ALLOWED})
"""Properties of the node that decide."""

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
Network: TypeAlias = "ipaddress.IPv4Network | ipaddress.IPv6Network"

_METADATA: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.0/24",
            "fd00:ec2::/32",
            "fd20:ce::254",
        ),
    )
)
_EMBEDDING: Final = tuple(map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96")))
_NOT_LISTED: Final = "it is not allowed"
_SURROUNDINGS: Final = "it is an address of this machine or of its surroundings"
_LOCAL_NAMES: Final = frozenset({"localhost", "metadata.google.internal", "metadata"})
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}|[0-9A-Fa-f:.]{2,64}")
_ADDRESS_KEY: Final = re.compile(
    r"(.*[.-])?(uri|url|endpoint|host|authority)|adls\.connection-string|.*\.issuer\.endpoint\.url"
)
_HOST_SCHEMES: Final = frozenset({"abfs", "abfss", "hdfs", "viewfs", "wasb", "wasbs"})
_STORES: Final = frozenset({"s3", "s3a", "s3n", "gs", "oss", "file", "sqlite", "hf"})
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]{0,40})://([^/?#\s;]*)")


@dataclass(frozen=True, slots=True)
class Reach:
    """What connectors may reach.

    Attributes:
        is_guarded: whether tenants write connectors.
        names: hosts by name, ``*.`` before a domain; None for every host that is not guarded.
        networks: addresses and networks among the allowed hosts.
        roots: local paths that clients may use, with all below them; None for every one.
        has_ambient: whether clients may use what the node's machine and environment offer:
            credentials, profiles, logins of ``.netrc``, proxies.
    """

    is_guarded: bool = False
    names: frozenset[str] | None = None
    networks: tuple[Network, ...] = field(default=())
    roots: tuple[str, ...] | None = None
    has_ambient: bool = True

    @classmethod
    def of(cls, node: Mapping[str, str]) -> Reach:
        """What the node's properties allow."""
        is_guarded = bool(node.get(USERS_FILE))
        hosts = _listed(node.get(HOSTS_ALLOWED))
        names, networks = set(), []
        for host in hosts or ():
            try:
                networks.append(ipaddress.ip_network(host.strip("[]"), strict=False))
            except ValueError:
                names.add(host.lower().rstrip("."))
        ambient = node.get(AMBIENT_ALLOWED, str(not is_guarded))
        return cls(
            is_guarded,
            None if hosts is None else frozenset(names),
            tuple(networks),
            allowed_roots(node),
            ambient.strip().lower() == "true",
        )

    # ------------------------------------------------------------ hosts

    def check_host(self, host: str, *, resolves: bool = True) -> None:
        """Check a host before a request is sent to it.

        Args:
            host: name or address, in any notation.
            resolves: resolve the name; else only an address is checked.

        Raises:
            ConfigError: ``host_refused``.
        """
        if self.names is None and not self.is_guarded:
            return
        name = host.strip("[]").partition("%")[0].rstrip(".").lower()
        if not _HOST.fullmatch(name):
            raise _refused(host, "it is no host's name or address")
        if self._is_named(name):
            return
        if self.names is not None and not self.networks:
            raise _refused(host, _NOT_LISTED)
        if self.names is None and (name in _LOCAL_NAMES or name.endswith(".localhost")):
            raise _refused(host, _SURROUNDINGS)
        found = _addresses(name) if resolves else _literal(name)
        if resolves and not found:
            raise _refused(host, "its name cannot be resolved")
        for address in found:
            self._check_address(host, address)

    def check_peer(self, host: str, address: str) -> None:
        """Judge the address that a connection has, before anything is sent over it.

        Raises:
            ConfigError: ``host_refused``.
        """
        if (self.names is None and not self.is_guarded) or self._is_named(host.lower()):
            return
        self._check_address(host, ipaddress.ip_address(address.partition("%")[0]))

    def check_addresses(self, properties: Mapping[str, Any], *, resolves: bool = True) -> None:
        """Judge every address among a client's properties.

        Raises:
            ConfigError: ``host_refused``, with the property.
        """
        if self.names is None and not self.is_guarded:
            return
        for key, value in properties.items():
            if isinstance(value, str) and _ADDRESS_KEY.fullmatch(key):
                for host in hosts_in(value):
                    try:
                        self.check_host(host, resolves=resolves)
                    except ConfigError as error:
                        raise error.at(property=key) from None

    def _is_named(self, name: str) -> bool:
        if self.names is None:
            return False
        parents = (f"*.{name.split('.', n)[n]}" for n in range(1, name.count(".") + 1))
        return "*" in self.names or name in self.names or not self.names.isdisjoint(parents)

    def _check_address(self, host: str, address: Address) -> None:
        plain = _unwrapped(address)
        if any(
            each.version == n.version and each in n
            for n in self.networks
            for each in {plain, address}
        ):
            return
        if self.names is not None:
            raise _refused(host, _NOT_LISTED)
        if _is_special(plain):
            raise _refused(host, _SURROUNDINGS)

    # ------------------------------------------------------------ paths

    def check_path(self, path: str | Path) -> None:
        """Judge a local path, links followed.

        Raises:
            ConfigError: ``path_refused``.
        """
        self._check_local(str(Path(path).absolute()), str(path))

    def check_location(self, location: str, *, resolves: bool = True) -> None:
        """Judge where a table or file lies.

        Raises:
            ConfigError: ``path_refused``, ``host_refused``.
        """
        if place(location).scheme == LOCAL:
            self._check_local(location, location)
            return
        uri = urlparse(location)
        if uri.scheme.lower() in _HOST_SCHEMES and uri.netloc:
            self.check_host(_host_of(uri.netloc), resolves=resolves)

    def _check_local(self, location: str, given: str) -> None:
        if (why := refusal(location, self.roots)) is not None:
            raise ConfigError(
                f"the local path {given!r} {why}; use another place, or ask the node's operator",
                code="path_refused",
            )


_current = Reach()


def install(reach: Reach) -> None:
    """Let a policy hold for this process; texts of other systems stay in it where it is guarded."""
    global _current  # noqa: PLW0603 - one policy for a process, whichever client it opens
    _current = reach
    hide_foreign_texts(are_hidden=reach.is_guarded)


def reach() -> Reach:
    """The policy of this process."""
    return _current


def hosts_in(value: str) -> Iterator[str]:
    """Hosts that an address, or a list of some, names; buckets are none."""
    for piece in dict.fromkeys(value.split(",")):
        found = _SCHEME.findall(piece)
        for scheme, authority in found:
            if scheme.lower() not in _STORES:
                yield _host_of(authority)
        if not found and piece.strip():
            yield _host_of(re.split(r"[/?#]", piece.strip(), maxsplit=1)[0])


def _host_of(authority: str) -> str:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _listed(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [part.strip() for part in text.split(",") if part.strip()]


def _refused(host: str, why: str) -> ConfigError:
    return ConfigError(
        f"host {host!r} may not be reached by connectors: {why}; the node's property "
        f"{HOSTS_ALLOWED} lists those that may be reached",
        code="host_refused",
    )


def _literal(name: str) -> list[Address]:
    """The address that a text is, in any notation; none for a name."""
    try:
        return [ipaddress.ip_address(name)]
    except ValueError:
        pass
    try:
        return [ipaddress.IPv4Address(socket.inet_aton(name))]
    except OSError:
        return []


def _addresses(name: str) -> list[Address]:
    if literal := _literal(name):
        return literal
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(place[0]).partition("%")[0]) for *_, place in found]


def _unwrapped(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    if inner is not None:
        return inner
    if int(address) > 1 and any(address in network for network in _EMBEDDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _is_special(address: Address) -> bool:
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
        or address.is_reserved
        or any(address.version == n.version and address in n for n in _METADATA)
    )
