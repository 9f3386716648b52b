"""Bodies of requests and answers; the OpenAPI document (``/icefloe/v1/openapi.json``) lists them.

Rules of this file:
- Bodies outside ``/icefloe/v1`` are Kafka Connect's, without additional fields.
- A configuration is a map of strings: numbers and booleans of a request become the text that was
  sent.
- Messages about invalid bodies are those of Kafka Connect (``broken``).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    RootModel,
    StrictBool,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from connect.config.keys.iceberg_keys import topic_name
from connect.config.size_limits import KEYS_MAX

State: TypeAlias = Literal[
    "UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING", "COMPLETED"
]
Role: TypeAlias = Literal["read", "operate", "admin"]
ConnectorType: TypeAlias = Literal["sink", "source", "unknown"]
Level: TypeAlias = Literal["ALL", "TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"]


REASON_CHARACTERS_MAX: Final = 500
RULE_BROKEN: Final = "rule_broken"
"""Type of errors with a text that is the whole message of the answer."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST: Final = {"partition": 2**31 - 1, "offset": 2**63 - 1}


class NumberText(str):
    """A number of a JSON text, as it was sent."""

    __slots__ = ()


def broken(message: str) -> PydanticCustomError:
    """Return an error with a text that is the whole message of the answer."""
    return PydanticCustomError(RULE_BROKEN, "{message}", {"message": message})


def _text(value: Any) -> Any:
    """Return a scalar as text; any other value unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str) else value


def _no_number(value: Any) -> Any:
    if isinstance(value, NumberText):
        raise PydanticCustomError("string_type", "not a string")
    return value


_SCALAR: Final = {"type": ["string", "number", "boolean", "null"]}
Text: TypeAlias = Annotated[str | None, BeforeValidator(_text), WithJsonSchema(_SCALAR)]
"""A string, or a number or boolean that is converted to text."""
JsonString: TypeAlias = Annotated[str, BeforeValidator(_no_number)]


class Body(BaseModel):
    """A JSON object with no other fields."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class ExtensibleModel(BaseModel):
    """An object of ``/icefloe/v1`` that may get more fields: clients ignore unknown ones."""

    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


class Error(Body):
    """The body of every error; ``error_code`` is the HTTP status."""

    error_code: int
    message: str


class ServerInfo(Body):
    """``GET /``: Kafka's version, which clients check."""

    version: str
    commit: str
    kafka_cluster_id: str


class HealthStatus(Body):
    """``GET /health``."""

    status: Literal["healthy", "starting", "unhealthy"]
    message: str


class ProbeStatus(Body):
    """``GET /livez`` and ``GET /readyz``; ``reasons`` says why the status is ``failed``."""

    status: Literal["ok", "failed"]
    reasons: list[str]


class TaskId(Body):
    """Connector and number of a task."""

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


InitialState: TypeAlias = Literal["RUNNING", "PAUSED", "STOPPED"]


def _bounded(value: Any) -> Any:
    """Refuse too many keys before each of them can be wrong."""
    if isinstance(value, dict) and len(value) > KEYS_MAX:
        raise broken(
            f"The configuration is too large: it has {len(value)} keys, more than {KEYS_MAX}"
        )
    return value


Keys: TypeAlias = Annotated[dict[str, Text], BeforeValidator(_bounded)]


class CreateConnector(Body):
    """``POST /connectors``; numbers and booleans are converted to text."""

    name: Text = None
    config: Keys
    initial_state: InitialState | None = None

    @field_validator("initial_state", mode="before")
    @classmethod
    def _in_any_case(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value.upper() not in {"RUNNING", "PAUSED", "STOPPED"}:
            raise broken(f"{value!r} is no initial state; known: RUNNING, PAUSED, STOPPED")
        return value.upper()


class Configuration(RootModel[Keys]):
    """A configuration, or a part of one; in a patch, null removes a key."""


class StoredConfiguration(RootModel[dict[str, str]]):
    """A configuration as it was sent."""


class TaskConfiguration(Body):
    """Configuration of a task."""

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
    """Next offset of the connector in one partition; null resets it."""

    partition: OffsetPartition
    offset: OffsetValue | None = None


class ConnectorOffsets(Body):
    """Committed source offsets."""

    offsets: list[ConnectorOffset]


class ChangeOfOffsets(Body):
    """``PATCH /connectors/<name>/offsets``."""

    offsets: list[ConnectorOffset]

    @model_validator(mode="before")
    @classmethod
    def _judged(cls, value: Any) -> Any:
        entries = value.get("offsets")
        if not entries:
            raise broken("Partitions / offsets need to be provided for an alter offsets request")
        if not isinstance(entries, list):
            raise broken('"offsets" must be a list')
        return {**value, "offsets": [_entry(entry) for entry in entries]}


def _entry(entry: Any) -> Any:
    """Return an entry with checked numbers; raise Kafka Connect's message for an invalid one."""
    if not isinstance(entry, dict):
        raise broken("An entry of offsets must be a JSON object")
    for field in entry:
        if field not in {"partition", "offset"}:
            raise broken(
                f'Unrecognized field "{field}" in an entry of offsets; known: partition, offset'
            )
    return {
        "partition": _partition(entry.get("partition")),
        "offset": _offset(entry.get("offset")),
    }


def _partition(value: Any) -> dict[str, Any]:
    if value is None:
        raise broken("The partition for a sink connector offset cannot be null or missing")
    if not isinstance(value, dict):
        raise broken('"partition" must be a JSON object')
    if "kafka_topic" not in value or "kafka_partition" not in value:
        raise broken(
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            "'kafka_partition'"
        )
    topic, number = value["kafka_topic"], value["kafka_partition"]
    if not isinstance(topic, str) or isinstance(topic, NumberText):
        raise broken("Kafka topic names must be valid strings and may not be null")
    why = topic_name(topic)
    if why is not None:
        raise broken(f"{topic!r} is no Kafka topic: {why}")
    if number is None:
        raise broken("Kafka partitions must be valid numbers and may not be null")
    return {"kafka_topic": topic, "kafka_partition": _integer(number, "partition", "Partition")}


def _offset(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise broken('"offset" must be a JSON object')
    if "kafka_offset" not in value:
        raise broken(
            "The offset for a sink connector should either be null or contain the key "
            "'kafka_offset'"
        )
    return {"kafka_offset": _integer(value["kafka_offset"], "offset", "Offset")}


def _integer(value: Any, quantity: str, title: str) -> int:
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        displayed = "null" if value is None else value
        raise broken(
            f"Failed to parse the following Kafka {quantity} value in the provided offsets: "
            f"'{displayed}'. {title} values for sink connectors need to be integers."
        )
    largest = _LARGEST[quantity]
    if not 0 <= int(value) <= largest:
        raise broken(f"A Kafka {quantity} is a number from 0 to {largest}, not {value}")
    return int(value)


class Message(Body):
    """The result of a request, as text."""

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
    """Definition of a configuration key, with both ``order`` and ``order_in_group``."""

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
    """The value of a key, and its errors."""

    name: str
    value: str | None
    recommended_values: list[str]
    errors: list[str]
    visible: bool


class KeyInfo(Body):
    """A key in a validation; ``definition`` is null for an unknown key."""

    definition: KeyDefinition | None
    value: KeyValue


class ValidationResult(Body):
    """Every key of a configuration, validated."""

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
    """The requested level, in upper or lower case."""

    level: Text = None


class ChangedLoggers(RootModel[list[str]]):
    """Loggers whose level has changed."""


class View(ExtensibleModel):
    """A view of one connector."""

    connector: str


class OverviewCaller(BaseModel):
    """The caller; ``node_role`` is the role for the whole node, null for none."""

    name: str
    node_role: Role | None


class OverviewMissing(BaseModel):
    """A node that did not return its metrics."""

    worker_id: str
    reason: str


class OverviewConnector(BaseModel):
    """Summary of a connector; a metric is null when it, or a part of it, was not received.

    ``role`` is the caller's; ``tasks`` counts by state; ``reason`` is the first line of a trace.
    ``coordinator_process`` is the process of the node ``worker_id`` that runs the coordinator.
    """

    name: str
    role: Role
    state: State
    worker_id: str
    coordinator_process: str | None
    tasks: dict[State, int]
    reason: str | None
    not_in_files: int | None
    records_read: int | None
    record_path: int | None = Field(description="records that took the record path, one by one")
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
    answered: bool | None = Field(
        description="every task has answered a round with the present configuration; null for "
        "aggregates, which have no rounds"
    )


class Lag(View):
    """Number of records not in files, and of records in files but in no table."""

    not_in_files: int
    in_files_not_committed: int = Field(description="as its coordinator last reported")
    valid_through_ms: int | None
    partitions: list[dict[str, Any]]


class DeadLetters(View):
    """Number since the tasks started, null as in the overview; the newest, without content."""

    topic: str | None
    records: int | None
    last: list[dict[str, Any]]


class OrphanAge(View):
    """Younger files that no table references must not be deleted."""

    oldest_announcement_ms: int | None = Field(
        description="time of the oldest waiting announcement; null when none waits"
    )
    safe_age_ms: int | None = Field(description="null when that announcement has no date")


class Audit(View):
    """Sums of sources and tables, and their differences, the first one first."""

    sound: bool
    changed_by_others: bool
    rows: dict[str, int]
    sources: list[dict[str, Any]]
    tables: list[dict[str, Any]]
    mismatches: list[dict[str, Any]]
    notes: list[str]


class ClusterNode(ExtensibleModel):
    """A node, as it last reported."""

    worker_id: str
    url: str
    ready: list[str] = Field(description="child processes that take work")
    draining: bool
    version: str


class Placement(ExtensibleModel):
    """Nodes of a connector's coordinator and of each of its tasks."""

    coordinator: str
    tasks: list[str]


class Cluster(ExtensibleModel):
    """Nodes of the cluster, leader, and placements."""

    group_id: str
    leader: str | None
    nodes: list[ClusterNode]
    placements: dict[str, Placement]


class TableDecisionResult(ExtensibleModel):
    """Result of a retry or skip of a failed table."""


class RebaseRequest(Body):
    """``apply`` false, or missing, only shows the changes."""

    apply: StrictBool = False
    tables: Annotated[list[JsonString], FailFast()] = Field(
        default_factory=list, description="in addition to the configured ones"
    )


class ResetRequest(RebaseRequest):
    """``apply`` false, or missing, only shows the claims of the tables."""

    reason: JsonString = Field(
        description="one line, stored in the snapshots that withdraw a claim",
        max_length=REASON_CHARACTERS_MAX,
    )

    @field_validator("reason", mode="after")
    @classmethod
    def _is_one_line(cls, value: str) -> str:
        if not value.isprintable() or not value.strip():
            raise broken(f'"reason" must be one line of at most {REASON_CHARACTERS_MAX} characters')
        return value


class Reset(View):
    """The valid-through time that tables claim, and the snapshots that withdraw it."""

    applied: bool
    reason: str
    error: str | None
    tables: list[dict[str, Any]]


class Rebased(View):
    """The changes of a rebase, and what it gives up."""

    applied: bool
    says: list[str]
    control_offsets: list[list[str | int]]
    tables: list[dict[str, Any]]
