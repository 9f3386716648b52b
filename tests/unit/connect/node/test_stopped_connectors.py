"""The order of a VTTS reset: tables first, then the event, and no event after a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from connect.config.connector import ConnectorConfig
from connect.model.layout import TopicPartition
from connect.node.herder.stopped_connectors import ValidThroughReset
from connect.state.connector_state import StoredConnector
from tests.support.tables import connector


@dataclass
class Rig:
    """What a reset asks and says, in order."""

    answer: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def topics(self) -> dict[str, int]:
        """The cluster's topics."""
        return {"control-iceberg": 2}

    def high_watermarks(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The ends of the control topic."""
        return {tp: 40 + tp.partition for tp in partitions}

    def fence(self, config: ConnectorConfig) -> None:
        """The coordinator's transactional id."""
        self.calls.append(f"fence {config.name}")

    def ask(self, child: str, command: Mapping[str, Any]) -> Mapping[str, Any]:
        """The coordinator process."""
        self.calls.append(f"{child} {command['op']} {','.join(command['tables'])}")
        assert command["control_ends"] == {"0": 40, "1": 41}
        return self.answer

    def announce_reset(self, state: StoredConnector) -> None:
        """The control topic."""
        self.calls.append(f"event for {state.name}")

    def run(self, *, is_applied: bool) -> dict[str, Any]:
        """A reset of two tables."""
        reset = ValidThroughReset(self, self, self.fence, self.ask)  # type: ignore[arg-type]
        state = StoredConnector("c")
        return reset.run(state, connector("c", ["db.a"]), ["db.b"], "dated 2100", is_applied)


ASKED = "coordinator reset_valid_through db.a,db.b"


def test_tables_are_reset_before_the_event_is_sent() -> None:
    """A crash in between leaves claims in the topic only; the request is repeated.

    Before both, a coordinator that is still frozen loses its transactional id.
    """
    rig = Rig({"tables": [{"table": "db.a", "code": None}], "error": None})
    assert rig.run(is_applied=True)["applied"]
    assert rig.calls == ["fence c", ASKED, "event for c"]


@pytest.mark.parametrize(
    ("answer", "is_applied"),
    [
        ({"tables": [{"table": "db.a", "code": None}], "error": None}, False),
        ({"tables": [{"table": "db.a", "code": "forbidden"}], "error": None}, True),
        ({"tables": [], "error": "no catalog"}, True),
    ],
)
def test_no_event_is_sent_without_a_reset(answer: dict[str, Any], *, is_applied: bool) -> None:
    """Showing changes nothing; a failed table keeps the claims."""
    rig = Rig(answer)
    assert not rig.run(is_applied=is_applied)["applied"]
    assert rig.calls == [*["fence c"] * is_applied, ASKED]
