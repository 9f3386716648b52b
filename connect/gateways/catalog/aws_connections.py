"""Connections of Glue catalogs: to allowed hosts, and limited in time and size.

Rules of this file:
- A tenant may name the endpoint. The address of a connection is checked after it is open, before
  the first byte is sent.
- Only the connections of these clients are limited. Those of stores receive files. The client of
  DynamoDB takes no endpoint, so no tenant names its server.
"""

from __future__ import annotations

from typing import Any

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


class _Connection(AWSHTTPConnection):
    response_class = AwsResponse

    def _new_conn(self) -> Any:
        return checked_peer(super()._new_conn(), self.host)


class _SecureConnection(AWSHTTPSConnection):
    response_class = AwsResponse

    def _new_conn(self) -> Any:
        return checked_peer(super()._new_conn(), self.host)


class _Pool(AWSHTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(AWSHTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class LimitedGlue:
    """Put before a client of Glue."""

    glue: Any

    def __init__(self, *arguments: Any, **properties: Any) -> None:
        super().__init__(*arguments, **properties)
        limit_client(self.glue)


def limit_client(client: Any) -> None:
    """Limit the connections of a client of ``boto3``."""
    session = client._endpoint.http_session  # noqa: SLF001 - botocore has no setting for it
    pools = {"http": _Pool, "https": _SecurePool}
    session._pool_classes_by_scheme = pools  # noqa: SLF001 - of proxies
    session._manager.pool_classes_by_scheme = pools  # noqa: SLF001
