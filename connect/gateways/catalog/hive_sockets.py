"""Connections to a Hive metastore: to allowed hosts, and limited in time and size.

Thrift's socket waits for ever, for a connection and for each byte, and takes any number of bytes.

Rules of this file:
- A tenant names the metastore. The address of a connection is checked after it is open, before the
  first byte is sent.
- Limits are those of one connection, which PyIceberg opens for each request.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Final

from pyiceberg.catalog import hive
from thrift.transport.TSocket import TSocket

from connect.clock import SystemClock
from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import AnswerLimitError, too_large
from connect.gateways.catalog_properties import CONNECT_TIMEOUT_MS, READ_TIMEOUT_MS

HIVE_BYTES_MAX: Final = 4 * 2**20
_PIECE_BYTES: Final = 2**16
_CLOCK: Final = SystemClock()


def limit_sockets() -> None:
    """Let PyIceberg's clients of this process open limited connections."""
    vars(hive)["TSocket"] = SimpleNamespace(TSocket=HiveSocket)


class HiveSocket(TSocket):  # type: ignore[misc]  # Thrift has no types
    """A connection to a metastore."""

    def open(self) -> None:
        """Connect.

        Raises:
            ConfigError: ``host_refused``.
            thrift.transport.TTransport.TTransportException: it cannot be opened in time.
        """
        policy = access_policy()
        self._left_bytes = min(HIVE_BYTES_MAX, policy.answer_bytes_max)
        self._until_ms = _CLOCK.monotonic_ms() + policy.answer_ms_max
        self.setTimeout(CONNECT_TIMEOUT_MS)
        super().open()
        try:
            policy.check_peer(self.host, self.handle.getpeername()[0])
        except BaseException:
            self.close()
            raise

    def read(self, sz: int) -> Any:
        """Receive once.

        Raises:
            AnswerLimitError: the answer is too large, or takes too long.
            thrift.transport.TTransport.TTransportException: no byte came in time.
        """
        self.setTimeout(max(1, min(READ_TIMEOUT_MS, self._left_ms)))
        try:
            piece = super().read(min(sz, _PIECE_BYTES))
        finally:
            if self._left_ms <= 0:
                limit_ms = access_policy().answer_ms_max
                raise AnswerLimitError(f"it takes longer than {limit_ms} ms", is_size=False)
        self._left_bytes -= len(piece)
        if self._left_bytes < 0:
            raise too_large(min(HIVE_BYTES_MAX, access_policy().answer_bytes_max))
        return piece

    @property
    def _left_ms(self) -> int:
        return self._until_ms - _CLOCK.monotonic_ms()
