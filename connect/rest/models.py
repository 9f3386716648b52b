"""Bodies of requests and answers, for the API's own description (``/icefloe/v1/openapi.json``).

Answers are made where they are answered; that they have these shapes and no other field is tested.
Kafka Connect's bodies are its own; ``/icefloe/v1`` is ours.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, RootModel

State: TypeAlias = Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"]
Role: TypeAlias = Literal["read", "operate", "admin"]
ConnectorType: TypeAlias = Literal["sink", "source", "unknown"]
Scalar: TypeAlias = str | int | float | bool
Level: TypeAlias = Literal["ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"]


class Body(BaseModel):
    """A JSON object with no other fields."""

    model_config = ConfigDict(extra="forbid")


class Error(Body):
    """Every answer that is not a success; ``error_code`` is the HTTP status."""

    error_code: int
    message: str


class ServerInfo(Body):
    """``GET /``: Kafka's version, which clients gate on."""

    version: str
    commit: str
    kafka_cluster_id: str


class HealthStatus(Body):
    """``GET /health``."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class TaskId(Body):
    """Where a task belongs."""

    connector: str
    task: int


class ConnectorInfo(Body):
    """A connector as created, its configuration as sent."""

    name: str
    config: dict[str, str]
    tasks: list[TaskId]
    type: ConnectorType


class ConnectorState(Body):
    """State of the connector itself; ``trace`` begins with the cause."""

    state: State
    worker_id: str
    version: str | None = None
    trace: str | None = None


class TaskState(ConnectorState):
    """State of a task."""

    id: int


class ConnectorStatus(Body):
    """State of a connector and its tasks, in order of their id."""

    name: str
    connector: ConnectorState
    tasks: list[TaskState]
    type: ConnectorType


class Expanded(Body):
    """A connector in a list with ``expand``."""

    info: ConnectorInfo | None = None
    status: ConnectorStatus | None = None


class Connectors(RootModel[list[str] | dict[str, Expanded]]):
    """Names, or with ``expand`` an object per name."""


class CreateConnector(Body):
    """``POST /connectors``; numbers and booleans count as their text."""

    name: str | None = None
    config: dict[str, Scalar | None]
    initial_state: Literal["RUNNING", "PAUSED", "STOPPED"] | None = None


class Configuration(RootModel[dict[str, Scalar | None]]):
    """A configuration, or a part of one; in a patch, null removes a key."""


class StoredConfiguration(RootModel[dict[str, str]]):
    """A configuration as it was sent."""


class TaskConfiguration(Body):
    """What a task runs with."""

    id: TaskId
    config: dict[str, str]


class TaskConfigurations(RootModel[list[TaskConfiguration]]):
    """All tasks, in order."""


class TopicList(Body):
    """Topics the connector has read from."""

    topics: list[str]


class ActiveTopics(RootModel[dict[str, TopicList]]):
    """Active topics, by the connector's name."""


class OffsetPartition(BaseModel):
    """A partition of a source topic."""

    kafka_topic: str
    kafka_partition: int


class OffsetValue(BaseModel):
    """The next offset to be read."""

    kafka_offset: int = Field(ge=0)


class ConnectorOffset(Body):
    """Where the connector goes on in one partition; null is forgotten."""

    partition: OffsetPartition
    offset: OffsetValue | None = None


class ConnectorOffsets(Body):
    """Committed source offsets."""

    offsets: list[ConnectorOffset]


class Message(Body):
    """What was done."""

    message: str


class PluginInfo(BaseModel):
    """An installed plugin."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    class_name: str = Field(alias="class")
    type: str
    version: str | None = None


class PluginInfos(RootModel[list[PluginInfo]]):
    """Installed plugins."""


class KeyDefinition(Body):
    """What a configuration key is; both ``order`` and ``order_in_group`` are given."""

    name: str
    type: str
    required: bool
    default_value: str | None
    importance: str
    documentation: str | None
    group: str | None
    order: int
    order_in_group: int
    width: str
    display_name: str
    dependents: list[str]


class KeyDefinitions(RootModel[list[KeyDefinition]]):
    """Every key of a plugin."""


class KeyValue(Body):
    """What was given for a key, and what is wrong with it."""

    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class KeyInfo(Body):
    """A key in a validation; ``definition`` is null for a name nobody declares."""

    definition: KeyDefinition | None
    value: KeyValue


class ValidationResult(Body):
    """Every key of a configuration, judged."""

    name: str
    error_count: int
    groups: list[str]
    configs: list[KeyInfo]


class LoggerLevel(Body):
    """Level of a logger and when it was last set, in ms since 1970."""

    level: Level
    last_modified: int | None


class LoggerLevels(RootModel[dict[str, LoggerLevel]]):
    """Levels by logger."""


class SetLevel(BaseModel):
    """The level wanted, in any case."""

    level: str


class ChangedLoggers(RootModel[list[str]]):
    """Loggers whose level has changed."""


class View(BaseModel):
    """An object of ``/icefloe/v1`` that grows: clients pass over fields they do not know."""

    connector: str


class OverviewCaller(BaseModel):
    """Who asks; ``node_role`` is their role for the whole node, null for none."""

    name: str
    node_role: Role | None


class OverviewMissing(BaseModel):
    """A node that runs something and whose figures are not there."""

    worker_id: str
    reason: str


class OverviewConnector(BaseModel):
    """A connector in short; figures are null where they, or a part of them, are not heard of.

    ``role`` is the caller's; ``tasks`` counts by state; ``reason`` is the first line of a trace.
    """

    name: str
    role: Role
    state: State
    worker_id: str
    tasks: dict[State, int]
    reason: str | None
    not_in_files: int | None
    in_files_not_committed: int | None
    dead_letters: int | None
    tables_failed: int | None
    valid_through_ms: int | None
    valid_through_age_ms: int | None


class Overview(BaseModel):
    """Every connector that the caller may read."""

    caller: OverviewCaller
    missing: list[OverviewMissing]
    connectors: list[OverviewConnector]


class Tables(View):
    """Last outcome of each table: ``COMMITTED`` with its snapshot, or ``FAILED`` with a code."""

    tables: list[dict[str, Any]]


class Rounds(View):
    """The last ended rounds, oldest first."""

    rounds: list[dict[str, Any]]


class Lag(View):
    """Records not yet in files, and those in files but in no table yet."""

    not_in_files: int
    in_files_not_committed: int = Field(description="as its coordinator said last, a second ago")
    valid_through_ms: int | None
    partitions: list[dict[str, Any]]


class DeadLetters(View):
    """Count since the tasks began, null like the overview's; the newest without their content."""

    topic: str | None
    records: int | None
    last: list[dict[str, Any]]


class OrphanAge(View):
    """Files that no table knows and that are younger must not be removed."""

    oldest_announcement_ms: int | None = Field(
        description="when the oldest announcement that waits was made; null when none waits"
    )
    safe_age_ms: int | None = Field(description="null when that announcement has no date")


class Audit(View):
    """Sums of sources and tables, and the places that do not add up, the first one first."""

    sound: bool
    changed_by_others: bool
    rows: dict[str, int]
    sources: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    mismatches: list[dict[str, Any]]
    notes: list[str]


class ClusterNode(BaseModel):
    """A node, by its own word."""

    worker_id: str
    url: str
    ready: list[str] = Field(description="child processes that take work")
    draining: bool
    version: str


class Placement(BaseModel):
    """Nodes of a connector's coordinator and of each of its tasks."""

    coordinator: str
    tasks: list[str]


class Cluster(BaseModel):
    """Nodes of the cluster, who leads, and what runs where."""

    group_id: str
    leader: str | None
    nodes: list[ClusterNode]
    placements: dict[str, Placement]


class Decided(BaseModel):
    """What the operator's word on a failed table came to."""


class AskRebase(Body):
    """``apply`` false, or nothing, only says what would be done."""

    apply: bool = False
    tables: list[str] = Field(default_factory=list, description="besides those configured")


class AskReset(Body):
    """``apply`` false, or nothing, only shows what the tables claim."""

    apply: bool = False
    reason: str = Field(description="one line, kept in the snapshots that take a claim back")
    tables: list[str] = Field(default_factory=list, description="besides those configured")


class Reset(View):
    """What tables claim of the valid-through time, and what takes it back."""

    applied: bool
    reason: str
    error: str | None
    tables: list[dict[str, Any]]


class Rebased(View):
    """What a rebase gives up and does."""

    applied: bool
    says: list[str]
    control_offsets: list[list[str | int]]
    tables: list[dict[str, Any]]
