"""Access policy of this process: the hosts, local paths and credentials that connectors may use.

Rules of this file:
- The node's properties set the policy. If the REST API has users, tenants write connectors. Their
  connectors may use no loopback, link-local or metadata address, no local path and none of the
  node's own credentials, unless a property allows it. Without users, there is no restriction.
- A host name is checked by all addresses that it resolves to; a connection, by its peer address.
- Addresses are recognized in every notation: decimal, octal, hexadecimal, mapped into IPv6.
- The S3 clients of PyArrow and of the Delta library always follow redirects.
  So tenants may use the stores of Amazon and Google, and others only if the operator names them.
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

from connect.config.local_paths import (
    LOCAL,
    LOCAL_KEY,
    USERS_FILE,
    allowed_roots,
    normalized_location,
    refusal,
)
from connect.errors import ConfigError
from connect.redaction.foreign_text import hide_foreign_texts

HOSTS_ALLOWED: Final = "icefloe.hosts.allowed"
AMBIENT_ALLOWED: Final = "icefloe.ambient.credentials.allowed"
ANSWER_BYTES_MAX: Final = "icefloe.catalog.answer.bytes.max"
ANSWER_MS_MAX: Final = "icefloe.catalog.answer.ms.max"
ACCESS_POLICY_KEYS: Final = frozenset(
    {USERS_FILE, HOSTS_ALLOWED, LOCAL_KEY, AMBIENT_ALLOWED, ANSWER_BYTES_MAX, ANSWER_MS_MAX}
)
"""Node properties that set the policy."""
ANSWER_BYTES_DEFAULT: Final = 256 * 2**20
ANSWER_MS_DEFAULT: Final = 300_000

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
_SPECIAL_ADDRESS: Final = "it is a loopback, link-local, metadata or other special address"
_LOCAL_NAMES: Final = frozenset({"localhost", "metadata.google.internal", "metadata"})
_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}|[0-9A-Fa-f:.]{2,64}")
_ADDRESS_KEY: Final = re.compile(
    r"(.*[.-])?(uri|url|endpoint|host|authority)|adls\.connection-string|.*\.issuer\.endpoint\.url"
)
_HOST_SCHEMES: Final = frozenset({"abfs", "abfss", "hdfs", "viewfs", "wasb", "wasbs"})
_STORES: Final = frozenset({"s3", "s3a", "s3n", "gs", "oss", "file", "sqlite", "hf"})
_STORE_KEYS: Final = ("s3.endpoint", "s3.proxy-uri")
_ENDPOINT: Final = re.compile(
    r"\s*((https?://)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9./_-]*)?)?\s*"
)
_AMBIGUOUS: Final = re.compile(r"[\\;\x00-\x1f\x7f]|[^,\s]\s+[^,\s]")
_WITH_OPTIONS: Final = frozenset({"adls.connection-string"})
_KNOWN_STORE: Final = re.compile(
    r"(s3|s3-fips)(\.dualstack)?(\.[a-z]{2}(-[a-z]+)+-[0-9])?\.amazonaws\.com(\.cn)?"
    r"|storage\.googleapis\.com"
)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]{0,40})://([^/?#\s;]*)")


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """The hosts, local paths and credentials that connectors may use.

    Attributes:
        is_guarded: whether tenants write connectors.
        names: allowed host names; ``*.`` before a domain allows its subdomains. If None, all
            hosts are allowed, except special addresses while ``is_guarded``.
        networks: allowed addresses and networks.
        roots: local folders and files that clients may use; None for no restriction.
        has_ambient: whether clients may use credentials, profiles, ``.netrc`` logins and proxies
            of the node's machine and environment.
        answer_bytes_max: of an answer of a REST catalog, after decompression.
        answer_ms_max: of an answer of a REST catalog, in addition to the limit between two bytes.
    """

    is_guarded: bool = False
    names: frozenset[str] | None = None
    networks: tuple[Network, ...] = field(default=())
    roots: tuple[str, ...] | None = None
    has_ambient: bool = True
    answer_bytes_max: int = ANSWER_BYTES_DEFAULT
    answer_ms_max: int = ANSWER_MS_DEFAULT

    @classmethod
    def of(cls, node: Mapping[str, str]) -> AccessPolicy:
        """Return the policy that the node's properties set."""
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
            int(node.get(ANSWER_BYTES_MAX) or ANSWER_BYTES_DEFAULT),
            int(node.get(ANSWER_MS_MAX) or ANSWER_MS_DEFAULT),
        )

    # ------------------------------------------------------------ hosts

    def check_host(self, host: str, *, resolves: bool = True) -> None:
        """Check a host before a request is sent to it.

        Args:
            host: name or address, in any notation.
            resolves: whether to resolve a name; otherwise only addresses are checked.

        Raises:
            ConfigError: ``host_refused``.
        """
        if self.names is None and not self.is_guarded:
            return
        name = host.strip("[]").partition("%")[0].rstrip(".").lower()
        if not _HOST.fullmatch(name):
            raise _refused(host, "it is neither a host name nor an address")
        if self._is_named(name):
            return
        if self.names is not None and not self.networks:
            raise _refused(host, _NOT_LISTED)
        if self.names is None and (name in _LOCAL_NAMES or name.endswith(".localhost")):
            raise _refused(host, _SPECIAL_ADDRESS)
        addresses = _addresses(name) if resolves else _literal(name)
        if resolves and not addresses:
            raise _refused(host, "its name cannot be resolved")
        for address in addresses:
            self._check_address(host, address)

    def check_peer(self, host: str, address: str) -> None:
        """Check the peer address of a connection, before the first byte is sent.

        Raises:
            ConfigError: ``host_refused``.
        """
        if (self.names is None and not self.is_guarded) or self._is_named(host.lower()):
            return
        self._check_address(host, ipaddress.ip_address(address.partition("%")[0]))

    def check_addresses(self, properties: Mapping[str, Any], *, resolves: bool = True) -> None:
        """Check every address in a client's properties.

        Raises:
            ConfigError: ``host_refused``, with the name of the property.
        """
        if self.names is None and not self.is_guarded:
            return
        for key, value in properties.items():
            if isinstance(value, str) and _ADDRESS_KEY.fullmatch(key):
                try:
                    _check_spelling(key, value)
                    for host in hosts_in(value):
                        if key in _STORE_KEYS:
                            self.check_store(host)
                        self.check_host(host, resolves=resolves)
                except ConfigError as error:
                    raise error.at(property=key) from None

    def check_store(self, host: str) -> None:
        """Check the host of a store whose client follows redirects.

        Raises:
            ConfigError: ``host_refused``: tenants write connectors, and the operator names no
                hosts; the store could lead the client to any address.
        """
        is_known = _KNOWN_STORE.fullmatch(host.rstrip(".").lower()) is not None
        if self.is_guarded and self.names is None and not is_known:
            raise _refused(host, "its redirects would be followed")

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
            raise _refused(host, _SPECIAL_ADDRESS)

    # ------------------------------------------------------------ paths

    def check_path(self, path: str | Path) -> None:
        """Check a local path after symbolic links are resolved.

        Raises:
            ConfigError: ``path_refused``.
        """
        self._check_local(str(Path(path).absolute()), str(path))

    def check_location(self, location: str, *, resolves: bool = True) -> None:
        """Check the location of a table or file.

        Raises:
            ConfigError: ``path_refused``, ``host_refused``.
        """
        if normalized_location(location).scheme == LOCAL:
            self._check_local(location, location)
            return
        uri = urlparse(location)
        if uri.scheme.lower() in _HOST_SCHEMES and uri.netloc:
            self.check_host(_host_of(uri.netloc), resolves=resolves)

    def _check_local(self, location: str, path: str) -> None:
        if (why := refusal(location, self.roots)) is not None:
            raise ConfigError(
                f"the local path {path!r} {why}; use another path, or ask the node's operator",
                code="path_refused",
            )


def _check_spelling(key: str, value: str) -> None:
    """Refuse an address that clients read as another host than ``hosts_in`` does."""
    is_store = key in _STORE_KEYS or key.endswith(".endpoint")
    is_plain = (
        _ENDPOINT.fullmatch(value)
        if is_store
        else key in _WITH_OPTIONS or (_AMBIGUOUS.search(value) is None)
    )
    if not is_plain:
        raise ConfigError(
            f"connectors may not use the address in {key}: give http(s)://host:port without a "
            "login, spaces and backslashes",
            code="host_refused",
        )


_current = AccessPolicy()


def install(policy: AccessPolicy) -> None:
    """Set the access policy of this process; a guarded one also hides texts of other systems."""
    global _current  # noqa: PLW0603 - one policy per process, for all its clients
    _current = policy
    hide_foreign_texts(are_hidden=policy.is_guarded)


def access_policy() -> AccessPolicy:
    """Return the access policy of this process."""
    return _current


def hosts_in(value: str) -> Iterator[str]:
    """Yield the hosts in an address or in a list of addresses; buckets are not hosts."""
    for piece in dict.fromkeys(value.split(",")):
        urls = _SCHEME.findall(piece)
        for scheme, authority in urls:
            if scheme.lower() not in _STORES:
                yield _host_of(authority)
        if not urls and piece.strip():
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
        f"connectors may not use the host {host!r}: {why}; the node property {HOSTS_ALLOWED} "
        "lists the allowed hosts",
        code="host_refused",
    )


def _literal(name: str) -> list[Address]:
    """Parse an address in any notation; return an empty list for a name."""
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
        peers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ipaddress.ip_address(str(peer[0]).partition("%")[0]) for *_, peer in peers]


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself."""
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
