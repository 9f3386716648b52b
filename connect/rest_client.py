"""A node's REST API, as the command line asks it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import httpx
import typer

from connect.errors import ConfigError, IcefloeError, RetriableError

TIMEOUT_S = 90.0
Url = Annotated[
    str,
    typer.Option("--url", envvar="ICEFLOE_URL", help="Where a node answers."),
]
DEFAULT_URL = "http://127.0.0.1:8083"


class RefusedError(IcefloeError):
    """The node refuses, with its words."""

    default_code = "refused"


def ask(url: str, method: str, connector: str, *path: str, json: object = None) -> dict[str, Any]:
    """Ask ``/icefloe/v1/connectors/<connector>/<path>`` and return the JSON object.

    Raises:
        RefusedError: the node says no, with its message.
        ConfigError: the address is none.
        RetriableError: ``node_unavailable``: nobody answers there.
    """
    parts = "/".join(quote(part, safe="") for part in (connector, *path))
    try:
        answer = httpx.request(
            method, f"{url.rstrip('/')}/icefloe/v1/connectors/{parts}", json=json, timeout=TIMEOUT_S
        )
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as e:
        raise ConfigError(f"{url} is no address of a node: {e}", code="url") from e
    except httpx.TransportError as e:
        raise RetriableError(
            f"no node answers at {url} (--url, ICEFLOE_URL): {e}", code="node_unavailable"
        ) from e
    try:
        body = answer.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RefusedError(f"{url} answered {answer.status_code} without a JSON object: no node?")
    if answer.status_code >= httpx.codes.BAD_REQUEST:
        raise RefusedError(str(body.get("message", answer.status_code)))
    return body
