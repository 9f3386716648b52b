"""Protection against cross-site requests and DNS rebinding.

Rules of this file:
- A browser sends stored passwords and client certificates with every request to this node, also
  for a page of another site. A request that changes state is refused when its headers show such a
  page. The steps are those of Go's ``net/http.CrossOriginProtection``. Other clients do not send
  these headers.
- A node without authentication listens on loopback. Its clients use an address, ``localhost`` or
  the advertised name. Another name in ``Host`` belongs to a site that resolves to this machine, so
  that its pages can read the answers (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def refusal(
    method: str,
    headers: Mapping[str, str],
    *,
    trusted: frozenset[str],
    hosts: frozenset[str] | None,
) -> str | None:
    """Return why a request is refused; None when it is served.

    Args:
        method: HTTP method.
        headers: the request's, names in lower case.
        trusted: origins with pages that may change state; ``*`` is every origin.
        hosts: valid names in ``Host``, in addition to addresses and ``localhost``; None is any.
    """
    host = headers.get("host", "")
    if hosts is not None and host and not _is_own_name(host, hosts):
        return (
            f"This node is not called {_name(host)}; set rest.advertised.host.name to that name, "
            "or icefloe.rest.users.file so that it knows its callers"
        )
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if method in _SAFE or (origin is not None and trusted & {origin, "*"}):
        return None
    if site is not None:
        is_own = site in _OWN_SITES
    else:
        is_own = origin is None or origin.partition("://")[2].lower() == host.lower()
    if is_own:
        return None
    return (
        "A page of another site may not change anything on this node; "
        "set access.control.allow.origin to allow its origin"
    )


def _name(host: str) -> str:
    """Return a ``Host`` header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_own_name(host: str, hosts: frozenset[str]) -> bool:
    name = _name(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name in hosts
    return True  # an address is not a name that another site could resolve
