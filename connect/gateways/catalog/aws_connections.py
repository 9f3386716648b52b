"""Connections of Glue catalogs: to allowed hosts, and limited in time and size.

Rules of this file:
- A tenant may name the endpoint. The address of a connection is checked after it is open, before
  the first byte is sent.
- Only the connections of these clients are limited. Those of stores receive files. The client of
  DynamoDB takes no endpoint, so no tenant names its server.
"""

from __future__ import annotations

from typing import Any, Final

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)

from connect.gateways.answer_limits import LimitedResponse
from connect.gateways.guarded_http import checked_peer


class AwsResponse(LimitedResponse):
    """An answer with the description of a table."""

    bytes_max = 4 * 2**20


def _limited(connection_class: Any, pool_class: Any) -> Any:
    """Return a class of pools whose connections are checked and limited."""

    def opened(connection: Any) -> Any:
        return checked_peer(connection_class._new_conn(connection), connection.host)  # noqa: SLF001 - of urllib3

    own = {"response_class": AwsResponse, "_new_conn": opened}
    limited = type(f"Limited{connection_class.__name__}", (connection_class,), own)
    return type(f"Limited{pool_class.__name__}", (pool_class,), {"ConnectionCls": limited})


_POOLS: Final = {
    "http": _limited(AWSHTTPConnection, AWSHTTPConnectionPool),
    "https": _limited(AWSHTTPSConnection, AWSHTTPSConnectionPool),
}


class LimitedGlue:
    """Put before a client of Glue."""

    glue: Any

    def __init__(self, *arguments: Any, **properties: Any) -> None:
        super().__init__(*arguments, **properties)
        limit_client(self.glue)


def limit_client(client: Any) -> None:
    """Limit the connections of a client of ``boto3``."""
    session = client._endpoint.http_session  # noqa: SLF001 - botocore has no setting for it
    session._pool_classes_by_scheme = _POOLS  # noqa: SLF001 - of proxies
    session._manager.pool_classes_by_scheme = _POOLS  # noqa: SLF001
