"""Bodies of operations: dead letters, maintenance, preview, checks, offset plans, rewind."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import FailFast, Field, StrictBool, model_validator

from connect.node.rest.models import Body, ExtensibleModel, JsonString, Keys, View, broken
from connect.protocol.offset_plan import TargetKind

FILTERS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 10_000
PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
RACES_MAX: Final = 100
PREVIEW_RECORDS_MAX: Final = 1_000

Filters = Annotated[list[JsonString], FailFast(), Field(max_length=FILTERS_MAX)]


class DeadLetterSource(ExtensibleModel):
    """Place of the record that became a dead letter; ``offset`` is null if it is not known."""

    topic: str
    partition: int
    offset: int | None


class DeadLetterPlace(ExtensibleModel):
    """Place of a dead letter in the dead letter topic; ``time`` is its timestamp."""

    partition: int
    offset: int
    time: str | None
    source: DeadLetterSource | None


class DeadLetterKind(ExtensibleModel):
    """Number of dead letters with one stage, exception, table and source topic."""

    stage: str | None
    exception: str | None
    table: str | None
    source_topic: str | None
    records: int
    replayed: int = Field(description="of them, those that a replay has put back or skipped")
    first: DeadLetterPlace
    last: DeadLetterPlace


class DeadLetterKinds(View):
    """Dead letters of the connector by kind, the most frequent kind first."""

    topic: str
    records: int
    offsets_not_read: int = Field(description="older offsets, above the limit of one request")
    kinds: list[DeadLetterKind]


class RecordPart(ExtensibleModel):
    """Size of a key, value or header; null if it is null."""

    bytes: int | None


class StoredDeadLetter(View):
    """One dead letter: its error headers, and the sizes of key, value and other headers."""

    topic: str
    partition: int
    offset: int
    time: str | None
    errors: list[dict[str, str | None]]
    headers: list[dict[str, Any]]
    key: RecordPart
    value: RecordPart


class RecordPartContent(RecordPart):
    """A key or value as text; bytes that are not UTF-8 are escaped, and long texts are cut."""

    text: str | None


class DeadLetterContent(StoredDeadLetter):
    """One dead letter with key, value and other headers as text."""

    key: RecordPartContent
    value: RecordPartContent


class ReplayEnd(Body):
    """The offset of one partition of the dead letter topic at which a replay ends."""

    partition: Annotated[int, Field(ge=0, le=PARTITION_MAX)]
    offset: Annotated[int, Field(ge=0, le=OFFSET_MAX)]


class ReplayRequest(Body):
    """Which dead letters to replay; ``apply`` false, or absent, only plans."""

    apply: StrictBool = False
    codes: Filters = Field(default_factory=list, description="only these error codes")
    tables: Filters = Field(default_factory=list, description="only dead letters of these tables")
    topic: JsonString | None = Field(
        None,
        description="a topic of the connector, for dead letters without headers about the error",
    )
    ends: Annotated[list[ReplayEnd], FailFast(), Field(max_length=PARTITIONS_MAX)] = Field(
        default_factory=list, description="as the plan had them; absent: the current ends"
    )


class ReplayRange(ExtensibleModel):
    """Offsets of one partition of the dead letter topic."""

    partition: int
    from_offset: int
    to_offset: int


class Replayed(View):
    """What a replay does, or did; repeat it while ``offsets_left`` is not zero."""

    topic: str
    applied: bool
    ranges: list[ReplayRange]
    gone: list[ReplayRange] = Field(description="offsets that retention deleted since the last")
    ends: list[ReplayEnd]
    offsets_left: int = Field(description="above the limit of one request")
    targets: dict[str, int] = Field(description="records by source topic")
    skipped: dict[str, int] = Field(description="records by reason")


class Finding(ExtensibleModel):
    """One finding; ``unsafe``: the connector must not start in this state."""

    code: str
    unsafe: bool
    text: str


class MigrationChecked(View):
    """State that another sink left of a connector, and whether a start is safe."""

    group: str
    safe: bool
    groups: list[dict[str, Any]] = Field(description="consumer groups with offsets or members")
    control_topic: dict[str, list[int]] = Field(description="first and end offset by partition")
    tables: list[dict[str, Any]]
    starts: dict[str, dict[str, int | str]] = Field(description="first offset to read, and why")
    findings: list[Finding]


class CatalogCheckRequest(Body):
    """A configuration, and how to race commits on its catalog."""

    config: Keys
    races: Annotated[int, Field(ge=1, le=RACES_MAX)] = 40
    namespace: JsonString | None = Field(
        None, description="existing namespace for the scratch tables; absent: one is created"
    )


class CatalogChecked(View):
    """Whether commits are atomic; null: not known, or not offered for several tables."""

    catalog: str
    kind: str
    scratch_table: str
    one_table_atomic: bool | None
    several_tables_atomic: bool | None
    several_tables_offered: bool
    refusal: str | None
    not_removed: list[str] = Field(description="scratch tables and namespaces that still exist")
    checks: list[dict[str, Any]]


class Maintenance(View):
    """Maintenance of the connector's tables, as the node of its coordinator last saw it.

    ``state``: ``DISABLED`` (by the configuration, or the connector does not run), ``NOT_ALLOWED``
    (by the node), ``IDLE``, ``WAITING`` (due work begins soon), ``RUNNING`` or ``STOPPED`` (by an
    operator).
    """

    state: str
    due: list[dict[str, Any]] = Field(description="work that is due, by table, with its cause")
    results: list[dict[str, Any]] = Field(description="the last run of each work of each table")
    bytes_last_hour: int
    bytes_per_hour: int | None


class PreviewRequest(Body):
    """A configuration, and which records of its topics to read."""

    config: Keys
    records: Annotated[int, Field(ge=1, le=PREVIEW_RECORDS_MAX)] = 20
    start: Literal["earliest", "latest"] = Field(
        "earliest", description="the oldest records, or the newest"
    )


class PreviewedTable(ExtensibleModel):
    """A table as the records would leave it, and the rows that they give."""

    table: str
    exists: bool
    location: str | None
    columns: list[dict[str, Any]]
    partitioned_by: list[str]
    rows: list[dict[str, Any]]


class Previewed(View):
    """What a connector would make of records."""

    complete: bool = Field(description="false when time or size ended the reading early")
    outcomes: dict[str, int]
    tables: list[PreviewedTable]
    not_written: list[dict[str, Any]]


class AskOffsetPlan(Body):
    """Where source offsets are to be moved: ``to``, and its ``value`` if it takes one."""

    to: TargetKind
    value: str | None = Field(
        None,
        max_length=100,
        description="timestamp: ISO-8601 with a zone, or milliseconds since 1970; duration: "
        "ISO-8601, such as PT1H; offset, shift: a number",
    )
    topic: str | None = Field(None, max_length=249, description="only this topic")
    partition: int | None = Field(None, ge=0, le=PARTITION_MAX, description="only this partition")


class OffsetMove(ExtensibleModel):
    """The move of one partition; ``reread`` and ``skipped`` are offsets: records at most."""

    topic: str
    partition: int
    from_offset: int | None = Field(description="committed source offset")
    to_offset: int
    reread: int
    skipped: int
    bounded_at: Literal["start", "end"] | None = Field(
        description="the target was outside of the log"
    )


class PlannedOffsets(View):
    """A plan; ``PATCH /connectors/<name>/offsets`` makes the change."""

    stopped: bool
    offsets: list[OffsetMove]
    warnings: list[str]


class SourcePosition(Body):
    """A source offset of one partition."""

    topic: JsonString
    partition: Annotated[int, Field(ge=0, le=PARTITION_MAX)]
    offset: Annotated[int, Field(ge=0, le=OFFSET_MAX)]


class AskRewind(Body):
    """Where a connector goes back to; without a place, a rewind that was begun is meant.

    ``apply`` false, or absent, only shows the plan.
    """

    apply: StrictBool = False
    cancel: StrictBool = Field(
        default=False, description="cancel a rewind that was begun and has taken no table back"
    )
    replace: StrictBool = Field(
        default=False, description="begin this rewind in place of one that was begun"
    )
    timestamp_ms: Annotated[int, Field(ge=0, le=OFFSET_MAX)] | None = Field(
        None, description="the last commit at or before this time, milliseconds since 1970"
    )
    snapshot_id: Annotated[int, Field(ge=0, le=OFFSET_MAX)] | None = Field(
        None, description="the commit that made this snapshot, of any table of the connector"
    )
    offsets: Annotated[list[SourcePosition], FailFast(), Field(max_length=PARTITIONS_MAX)] = Field(
        default_factory=list, description="the last commit that is above none of these offsets"
    )
    beginning: StrictBool = Field(default=False, description="before the first commit: load again")
    tables: Filters = Field(
        default_factory=list, description="in addition to those of configuration and announcements"
    )
    only: Filters = Field(
        default_factory=list,
        description="the only tables to change, with the topics that feed no other table",
    )
    accept: Filters = Field(default_factory=list, description="codes of accepted problems")

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        places = (
            self.timestamp_ms is not None,
            self.snapshot_id is not None,
            bool(self.offsets),
            self.beginning,
        )
        if sum(places) > 1:
            raise broken('give one of "timestamp_ms", "snapshot_id", "offsets" and "beginning"')
        if not any(places) and (self.tables or self.only or self.accept or self.replace):
            raise broken('"tables", "only", "accept" and "replace" need a place to go back to')
        if any(places) and self.cancel:
            raise broken('"cancel" needs no place to go back to')
        return self


class RewindProblem(ExtensibleModel):
    """What forbids a rewind; ``accepted`` when the request accepts it."""

    code: str
    message: str
    table: str | None
    acceptable: bool
    accepted: bool


class Rewound(View):
    """The plan of a rewind, and what was done.

    ``begun``: recorded and not finished; the same request without a place finishes it.
    """

    applied: bool
    cancelled: bool
    begun: bool
    commit: dict[str, Any] | None = Field(description="null: the beginning")
    tables: list[dict[str, Any]]
    source_offsets: list[list[str | int | None]] = Field(
        description="topic, partition, present offset, offset after the rewind"
    )
    problems: list[RewindProblem]
    says: list[str]
    results: list[dict[str, Any]] = Field(description="of each table, when it was applied")
