"""The order of a VTTS reset and of a rewind, both of which fence the coordinator first."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from connect.config.connector import ConnectorConfig
from connect.model.layout import TopicPartition
from connect.node.herder.offsets.rewind import RewindSteps, rewind_text
from connect.node.herder.requests.stopped_connectors import StoppedConnectors, ValidThroughReset
from connect.node.node_requests import ConflictError, NotAllowedError
from connect.protocol.offset_plan import OffsetTarget
from connect.state.connector_state import StoredConnector
from connect.state.rewind_record import RewindChoice, RewindRecord
from connect.validation.parse import parse
from tests.support.tables import QuickClock, connector


@dataclass
class CallRecorder:
    """Stands for everything that the class under test calls, and records the calls in order."""

    answer: dict[str, Any]
    calls: list[str] = field(default_factory=list)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The control topic's."""
        return [TopicPartition(topic, number) for number in range(2)]

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

    def announce_rewind(self, state: StoredConnector, partitions: Iterable[TopicPartition]) -> None:
        """The event that takes source offsets back."""
        self.calls.append(f"rewind of {state.name} {[tp.partition for tp in partitions]}")

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """The typed configuration."""
        return connector(state.name, ["db.a"])

    def get(self, name: str) -> StoredConnector:
        """A connector with an unfinished rewind."""
        return StoredConnector(name, target="STOPPED", rewind=RewindRecord("r"))

    def put_rewind(self, name: str, record: RewindRecord) -> None:
        """The record."""
        self.calls.append(f"step {record.step} of {name}")

    def run(self, *, is_applied: bool) -> dict[str, Any]:
        """A reset of two tables."""
        reset = ValidThroughReset(self, self, self.fence, self)  # type: ignore[arg-type]
        state = StoredConnector("c")
        return reset.run(state, connector("c", ["db.a"]), ["db.b"], "dated 2100", is_applied)


ASKED = "coordinator reset_valid_through db.a,db.b"


def test_tables_are_reset_before_the_event_is_sent() -> None:
    """A crash in between leaves claims in the topic only; the request is repeated.

    Before both, a coordinator that is still frozen loses its transactional id.
    """
    recorder = CallRecorder({"tables": [{"table": "db.a", "code": None}], "error": None})
    assert recorder.run(is_applied=True)["applied"]
    assert recorder.calls == ["fence c", ASKED, "event for c"]


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
    recorder = CallRecorder(answer)
    assert not recorder.run(is_applied=is_applied)["applied"]
    assert recorder.calls == [*["fence c"] * is_applied, ASKED]


def test_a_rewind_fences_the_coordinator_before_it_announces() -> None:
    """A coordinator that is frozen could else send an event after the announcement."""
    recorder = CallRecorder({})
    steps = RewindSteps(
        *[recorder] * 4,  # type: ignore[arg-type]
        fence_coordinator=recorder.fence,
        requests=recorder,  # type: ignore[arg-type]
        clock=QuickClock(),
    )
    group = recorder.parsed(StoredConnector("c")).connect_group_id
    steps.announce("c", RewindRecord("r", group, offsets=[("t", 3, 7)]))
    assert recorder.calls == ["step tables of c", "fence c", "rewind of c [3]"]
    with pytest.raises(ConflictError, match="has ended"):
        steps.announce("c", RewindRecord("cancelled", group))
    assert len(recorder.calls) == 3


class _Finishing:
    """The stores of a rewind whose tables are done; notes the steps in their order."""

    def __init__(self) -> None:
        self.changing = threading.Lock()
        self.calls: list[str] = []

    def get(self, name: str) -> StoredConnector:
        """The connector with its record."""
        return StoredConnector(name, target="STOPPED", rewind=RewindRecord("r"))

    def settle(self, name: str) -> str:
        """Its group."""
        return f"connect-{name}"

    def set(self, _: StoredConnector, group: str, offsets: object, *, is_announced: bool) -> None:
        """The source offsets."""
        assert (offsets, is_announced) == ({TopicPartition("t", 3): 7}, True)
        self.calls.append(f"offsets of {group}")

    def run_again(self, name: str) -> None:
        """A complete bounded run."""
        self.calls.append(f"run {name} again")

    def put_rewind(self, name: str, record: RewindRecord | None) -> None:
        """The record."""
        self.calls.append(f"record of {name}: {record and record.step}")


def test_a_rewind_lets_a_complete_bounded_run_read_again() -> None:
    """Its rows were taken back; the record goes last, so a crash repeats the steps."""
    stores = _Finishing()
    steps = RewindSteps(
        *[stores] * 4,  # type: ignore[arg-type]
        fence_coordinator=lambda _: None,
        requests=stores,  # type: ignore[arg-type]
        clock=QuickClock(),
    )
    recorded = RewindRecord("r", offsets=[("t", 3, 7)])
    steps.finish("c", recorded)
    steps.end("c", recorded, "done")
    step, *others = stores.calls
    assert step == "record of c: offsets"
    assert others == ["offsets of connect-c", "run c again", "record of c: None"]
    other = RewindRecord("of another request", offsets=[("t", 3, 1)])
    with pytest.raises(ConflictError, match="has ended"):
        steps.finish("c", other)
    steps.end("c", other, "done")
    assert len(stores.calls) == 4


def test_two_requests_do_not_change_a_rewind_at_the_same_time() -> None:
    """One could cancel what the other is applying."""
    recorder = CallRecorder({})
    steps = RewindSteps(
        *[recorder] * 4,  # type: ignore[arg-type]
        fence_coordinator=recorder.fence,
        requests=recorder,  # type: ignore[arg-type]
        clock=QuickClock(),
    )
    with steps.alone("c"), steps.alone("d"), pytest.raises(ConflictError), steps.alone("c"):
        pass
    with steps.alone("c"):
        pass


def test_the_status_says_what_an_unfinished_rewind_does() -> None:
    """Its step, where it goes, and the command that finishes it."""
    recorded = RewindRecord("r", tables={"db.a": 1}, step="tables")
    text = rewind_text(StoredConnector("c", rewind=recorded))
    assert text is not None
    assert "to the beginning is not finished: its tables are being taken back (1 tables" in text
    assert "icefloe rewind c --yes" in text
    assert rewind_text(StoredConnector("c")) is None


def test_no_offsets_are_planned_while_a_rewind_is_unfinished() -> None:
    """It sets them itself, so a plan would be outdated."""
    recorder = CallRecorder({})
    stopped = StoppedConnectors(
        *[recorder] * 5,  # type: ignore[arg-type]
        requests=recorder,  # type: ignore[arg-type]
        clock=QuickClock(),
    )
    with pytest.raises(ConflictError, match="icefloe rewind c --yes"):
        stopped.plan_offsets("c", OffsetTarget.of("earliest", None, None, None))
    assert recorder.calls == []


class DeltaConnectors(CallRecorder):
    """A stopped connector of Delta tables; every change of it fails the test."""

    @contextlib.contextmanager
    def change(self) -> Iterator[None]:
        """One change at a time."""
        yield

    def parsed(self, state: StoredConnector) -> ConnectorConfig:
        """Its configuration."""
        raw = connector(state.name, ["db.a"]).raw
        kept = {k: v for k, v in raw.items() if not k.startswith("iceberg.catalog.")}
        return parse({**kept, "icefloe.format": "delta", "icefloe.delta.location": "/lake"})

    def get(self, name: str) -> StoredConnector:
        """It has stopped, and no rewind was begun."""
        return StoredConnector(name, target="STOPPED")


@pytest.mark.parametrize(
    "request_",
    [
        lambda stopped: stopped.rewind("c", RewindChoice(is_to_beginning=True), is_applied=False),
        lambda stopped: stopped.rewind("c", RewindChoice(is_to_beginning=True), is_applied=True),
        lambda stopped: stopped.rebase("c", [], is_applied=False),
        lambda stopped: stopped.rebase("c", [], is_applied=True),
        lambda stopped: stopped.reset_valid_through("c", [], "why", is_applied=True),
    ],
    ids=["rewind plan", "rewind", "rebase plan", "rebase", "reset"],
)
def test_operations_on_snapshots_are_refused_for_delta_tables(
    request_: Callable[[StoppedConnectors], Any],
) -> None:
    """Before anything is fenced, written or asked; the answer is 400, not "try again"."""
    recorder = DeltaConnectors({})
    stopped = StoppedConnectors(
        *[recorder] * 5,  # type: ignore[arg-type]
        requests=recorder,  # type: ignore[arg-type]
        clock=QuickClock(),
    )
    with pytest.raises(NotAllowedError, match="Delta tables") as caught:
        request_(stopped)
    assert caught.value.code == "delta_unsupported"
    assert recorder.calls == []
