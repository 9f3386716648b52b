"""Transaction identifiers with which a table's log remembers what a connector committed.

Source:
    Delta transaction log protocol, "Transaction Identifiers": a pair of an application's id and
    its version, of which a table keeps the last version of each id.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from connect.config.connector import ConnectorConfig

_TOPICS: Final = 2**62


@dataclass(frozen=True, slots=True)
class TransactionIds:
    """Transaction identifiers of one connector in its tables.

    Args:
        prefix: ``icefloe/<control topic>/<connect group>``.
    """

    prefix: str

    @classmethod
    def of(cls, config: ConnectorConfig) -> TransactionIds:
        """Return the identifiers of a connector."""
        return cls(f"icefloe/{config.control_topic}/{config.connect_group_id}")

    def floor(self, partition: int) -> str:
        """Of the floor of a control partition; its version is the next control offset."""
        return f"{self.prefix}/offset/{partition}"

    @property
    def valid_through(self) -> str:
        """Of the VTTS; its version is milliseconds since 1970."""
        return f"{self.prefix}/valid-through"

    @property
    def topic(self) -> str:
        """Of the control topic; its version is a hash of the topic's identity."""
        return f"{self.prefix}/topic"


def topic_version(topic_id: str) -> int:
    """Return the version that stands for a control topic's identity."""
    digest = hashlib.sha256(topic_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") % _TOPICS
