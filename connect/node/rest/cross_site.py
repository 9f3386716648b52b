"""What pages of others must not make a browser do here.

Rules of this file:
- A browser sends passwords it has been told, and client certificates, with every request to this
  node, whichever page asks for it. So a request that changes something is refused when the browser
  says that another site's page has made it; the steps are those of Go's
  ``net/http.CrossOriginProtection``. Clients that are no browsers send none of these headers.
- A node that asks nobody who they are listens at loopback, and is called there by an address, by
  ``localhost`` or by its advertised name. Another name in ``Host`` belongs to a site that has
  itself resolved to this machine, so that its pages may read what they get (DNS rebinding).
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
    """Why a request is not served; None when it is.

    Args:
        method: HTTP method.
        headers: the request's, names in lower case.
        trusted: origins whose pages may change things; ``*`` is every origin.
        hosts: names, besides addresses and ``localhost``, under which the node may be called;
            None is any.
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
        "A page of another site may not change anything here; "
        "access.control.allow.origin names those that may"
    )


def _name(host: str) -> str:
    """A ``Host`` header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_own_name(host: str, hosts: frozenset[str]) -> bool:
    name = _name(host)
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name.endswith(".localhost") or name in hosts
    return True  # nobody's name resolves to it, it is the address itself
