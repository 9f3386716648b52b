"""``icefloe control vtts reset``: take back a valid-through time that was wrong.

Rules of this file:
- The connector is stopped: its tasks and its coordinator forget what they claimed.
- Tables are changed first, by the coordinator process, which has the catalog's clients and secrets.
  Then an event says it to the next coordinator, which reads older claims in the control topic.
- A repeated request does no harm: a client that got no answer repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connect.config.connector import ConnectorConfig
from connect.node.herder.offset_events import OffsetEvents
from connect.state.connector_state import StoredConnector


class ValidThroughReset:
    """Resets the VTTS of stopped connectors.

    Args:
        moves: announces it in the control topic.
        ask: sends a command to a child and returns its answer.
    """

    def __init__(
        self, moves: OffsetEvents, ask: Callable[[str, Mapping[str, Any]], Mapping[str, Any]]
    ) -> None:
        self._moves = moves
        self._ask = ask

    def run(
        self,
        state: StoredConnector,
        config: ConnectorConfig,
        tables: Sequence[str],
        reason: str,
        is_applied: bool,
    ) -> dict[str, Any]:
        """Show which tables hold claims, or take them back; see ``HerderApi``."""
        answer = self._ask(
            "coordinator",
            {
                "op": "reset_valid_through",
                "connector": state.name,
                "config": dict(state.config or {}),
                "tables": sorted({*config.tables, *tables}),
                "reason": reason,
                "apply": is_applied,
            },
        )
        is_done = is_applied and all(t["code"] is None for t in answer["tables"])
        if is_done and answer["error"] is None:
            self._moves.announce_reset(state)
        return {
            "connector": state.name,
            "applied": is_done and answer["error"] is None,
            "reason": reason,
            "tables": answer["tables"],
            "error": answer["error"],
        }
