"""The floor: control offsets below which everything announced is already in a table.

Rules of this file:
- Per control partition the floor is the maximum of four: the newest sink snapshot in the branch's
  ancestry, the snapshot of the connector's tag, the mirror in the table's properties, and the last
  commit of this coordinator (an argument).
- The last VTTS is in a mirror property, too: expiry must not let a claim go back. Only an operator
  takes claims back, with a snapshot that carries the reason (docs/decisions/0023).
- If the ancestry is cut off and has none of these, the floor is unknown (``floor_lost``): the table
  may hold rows that would be written again. An operator who knows what was committed sets the
  mirror property; ``{}`` means nothing.
- If the tag's snapshot is no longer in the branch, the table was rolled back. The commit is
  refused: each way to continue loses or repeats rows, so the operator must choose.

Source:
    Iceberg Kafka Connect ``Coordinator.lastCommittedOffsetsForTable``, which takes the newest
    snapshot that carries the property and knows neither tag nor mirror.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import takewhile

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connect.config.connector import ConnectorConfig
from connect.errors import CommitRefused, InvariantViolation
from connect.protocol.control_offsets import covers, merged, parse_offsets

VALID_THROUGH_PROPERTY = "kafka.connect.valid-through-ts"
RESET_PROPERTY = "icefloe.valid-through-reset"  # the operator's reason
OLD_VALID_THROUGH_PROPERTY = "kafka.connect.vtts"  # of the io.tabular sink: epoch milliseconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FloorKeys:
    """Where a connector keeps its floors.

    Attributes:
        summary: snapshot summary key.
        mirror: table property of the control offsets.
        valid_through_mirror: table property of the VTTS.
        reset_mirror: table property of the control offsets at the last reset of the VTTS.
        tag: name of the tag that is moved with every commit.
        branch: the branch that is committed to.
        has_history: False for a connector that never completed a round: no snapshot of the table
            is its own.
    """

    summary: str
    mirror: str
    valid_through_mirror: str
    reset_mirror: str
    tag: str
    branch: str = MAIN_BRANCH
    has_history: bool = True


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table says about this connector.

    Attributes:
        head: the branch's snapshot, or the one a missing branch starts from; None without any.
        is_branch_missing: the branch is created by the first commit.
        floor: control partition -> next control offset.
        valid_through_texts: the last VTTS of this connector, as text: that of the newest snapshot
            with one, and that of the mirror, which remains when snapshots expire.
        reset_offsets: control offsets up to which the last reset of the VTTS withdrew claims; empty
            if there was no reset.
        replaced: the branch's snapshot, where ``head`` is an ancestor of it: the commit then takes
            the snapshots between them out of the branch. None where ``head`` is the branch's.
        required_refs: other references -> snapshots that they must have when the commit is applied.
    """

    head: Snapshot | None
    is_branch_missing: bool
    floor: Mapping[int, int]
    valid_through_texts: tuple[str, ...] = ()
    reset_offsets: Mapping[int, int] = field(default_factory=dict)
    replaced: Snapshot | None = None
    required_refs: Mapping[str, int] = field(default_factory=dict)


def may_claim(state: TableState, control_offsets: Mapping[int, int]) -> bool:
    """Whether a round may claim a VTTS: only if it read the control topic past the last reset.

    A coordinator that was frozen during the reset does not know of it, and its round may be older.

    Args:
        state: of the table.
        control_offsets: how far the round has read the control topic.
    """
    before = state.reset_offsets
    return not before or any(at > before.get(p, 0) for p, at in control_offsets.items())


def floor_keys(config: ConnectorConfig, table: str, *, has_history: bool = True) -> FloorKeys:
    """Return where the connector keeps its floor of a table."""
    return FloorKeys(
        summary=config.offsets_property,
        mirror=config.offsets_mirror_property,
        valid_through_mirror=config.valid_through_mirror_property,
        reset_mirror=config.valid_through_reset_property,
        tag=f"icefloe-{config.name}",
        branch=config.table(table).commit_branch or MAIN_BRANCH,
        has_history=has_history,
    )


def table_state(metadata: TableMetadata, keys: FloorKeys) -> TableState:
    """Read floor, head and VTTS.

    Raises:
        CommitRefused: ``floor_lost``, ``table_rolled_back``, ``branch_missing``,
            ``branch_is_tag``, ``floor_unreadable``.
    """
    ref = metadata.refs.get(keys.branch)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise CommitRefused(f"{keys.branch} is a tag, not a branch", code="branch_is_tag")
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    head_id = ref.snapshot_id if ref is not None else metadata.current_snapshot_id
    head = None if head_id is None else by_id.get(head_id)
    chain = tuple(_ancestry(head, by_id))
    own = next((s for s in chain if _summary(s).get(keys.summary)), None)
    own_text = _summary(own).get(keys.summary) if own else None
    tag = metadata.refs.get(keys.tag)
    tagged = None if tag is None else by_id.get(tag.snapshot_id)
    tag_text = _summary(tagged).get(keys.summary) if tagged else None
    mirror_text = metadata.properties.get(keys.mirror)
    # after a commit all three are the same text
    parsed = {text: parse_offsets(text) for text in {own_text, tag_text, mirror_text}}
    in_ancestry, in_tag = parsed[own_text], parsed[tag_text]
    remote = merged(in_tag, parsed[mirror_text])
    if ref is None and keys.branch != MAIN_BRANCH and not covers(in_ancestry, remote):
        raise CommitRefused(
            f"branch {keys.branch}, which holds this connector's commits, is missing",
            code="branch_missing",
        )
    if tagged is not None and in_tag:
        _refuse_rolled_back(chain, tagged, keys)
    if own is None and mirror_text is None and not in_tag and keys.has_history:
        _refuse_cut_off(chain, by_id, keys)
    vtts = valid_through_text(chain, keys)
    return TableState(
        head=head,
        is_branch_missing=ref is None,
        floor=merged(in_ancestry, remote),
        valid_through_texts=tuple(
            text for text in (vtts, metadata.properties.get(keys.valid_through_mirror)) if text
        ),
        reset_offsets=parse_offsets(metadata.properties.get(keys.reset_mirror)),
    )


def valid_through_text(chain: Iterable[Snapshot], keys: FloorKeys) -> str | None:
    """Return the last VTTS that these snapshots, newest first, hold of the connector."""
    since_reset = takewhile(lambda s: not _takes_back(s, keys), chain)
    return next((v for s in since_reset if (v := _own_valid_through(s, keys))), None)


def _ancestry(head: Snapshot | None, by_id: Mapping[int, Snapshot]) -> Iterator[Snapshot]:
    left = len(by_id)
    while head is not None:
        if left == 0:
            raise InvariantViolation("the table's snapshots form a circle")
        left -= 1
        yield head
        parent_id = head.parent_snapshot_id
        head = None if parent_id is None else by_id.get(parent_id)


def _refuse_rolled_back(chain: tuple[Snapshot, ...], tagged: Snapshot, keys: FloorKeys) -> None:
    if not chain:
        raise CommitRefused(
            f"branch {keys.branch} is empty, but tag {keys.tag} holds a commit of this connector",
            code="table_rolled_back",
        )
    if any(s.snapshot_id == tagged.snapshot_id for s in chain):
        return
    # Expiry cuts the ancestry below its oldest kept snapshot; only a younger one has been left.
    if (tagged.sequence_number or 0) >= (chain[-1].sequence_number or 0):
        raise CommitRefused(
            f"branch {keys.branch} no longer holds snapshot {tagged.snapshot_id}, which tag "
            f"{keys.tag} says was committed: the table was rolled back",
            code="table_rolled_back",
        )


def _refuse_cut_off(
    chain: tuple[Snapshot, ...], by_id: Mapping[int, Snapshot], keys: FloorKeys
) -> None:
    if not chain:
        return
    oldest = chain[-1]
    parent_id = oldest.parent_snapshot_id
    # PyIceberg's expiry forgets the parent; then the first sequence number tells.
    is_whole = parent_id is None and (oldest.sequence_number or 0) <= 1
    if not is_whole and (parent_id is None or parent_id not in by_id):
        raise CommitRefused(
            f"snapshots were expired and none that is kept, nor tag {keys.tag}, nor property "
            f"{keys.mirror} says what this connector has committed; set the property to {{}} if "
            "it has committed nothing",
            code="floor_lost",
        )


def _takes_back(snapshot: Snapshot, keys: FloorKeys) -> bool:
    """Whether an operator took back this connector's claims of the snapshots before."""
    summary = _summary(snapshot)
    return bool(summary.get(keys.summary)) and RESET_PROPERTY in summary


def _own_valid_through(snapshot: Snapshot, keys: FloorKeys) -> str | None:
    summary = _summary(snapshot)
    if not summary.get(keys.summary):
        return None
    old = summary.get(OLD_VALID_THROUGH_PROPERTY, "")
    if VALID_THROUGH_PROPERTY not in summary and old.isascii() and old.isdecimal():
        with contextlib.suppress(OverflowError):
            return (_EPOCH + timedelta(milliseconds=int(old))).isoformat()
    return summary.get(VALID_THROUGH_PROPERTY)


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
