"""``/connectors/<name>/offsets`` and ``/connectors/<name>/topics``."""

from __future__ import annotations

import re
from typing import Any

from connect.config.iceberg_keys import topic_name
from connect.rest.bodies import NumberText, as_object
from connect.rest.errors import ApiError, not_found
from connect.rest.herder_api import HerderApi
from connect.rest.routes import Answer, Call

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_LARGEST = {"partition": 2**31 - 1, "offset": 2**63 - 1}
_EXTERNAL = (
    "The Connect framework-managed offsets for this connector have been {done} successfully. "
    "However, if this connector manages offsets externally, they will need to be manually {done} "
    "in the system that the connector uses."
)


class Offsets:
    """Endpoints of source offsets and active topics.

    Args:
        herder: what they act on.
        is_tracking: whether active topics are kept.
        is_reset_allowed: whether they may be emptied.
    """

    def __init__(
        self, herder: HerderApi, *, is_tracking: bool = True, is_reset_allowed: bool = True
    ) -> None:
        self._herder = herder
        self._is_tracking = is_tracking
        self._is_reset_allowed = is_reset_allowed

    def read(self, call: Call) -> Answer:
        """``GET /connectors/<name>/offsets``."""
        name = call.path["name"]
        with not_found(name):
            offsets = self._herder.offsets(name)
        body = [
            {
                "partition": {"kafka_partition": partition, "kafka_topic": topic},
                "offset": {"kafka_offset": offset},
            }
            for (topic, partition), offset in sorted(offsets.items())
        ]
        return Answer(200, {"offsets": body})

    def alter(self, call: Call) -> Answer:
        """``PATCH /connectors/<name>/offsets``."""
        name = call.path["name"]
        body = as_object(call.json(), "the request", ("offsets",))
        entries = body.get("offsets")
        if not entries:
            raise ApiError(
                400, "Partitions / offsets need to be provided for an alter offsets request"
            )
        if not isinstance(entries, list):
            raise ApiError(400, '"offsets" must be a list')
        with not_found(name):
            self._herder.connector(name)
            self._herder.alter_offsets(name, dict(_entry(entry) for entry in entries))
        return Answer(200, {"message": _EXTERNAL.format(done="altered")})

    def reset(self, call: Call) -> Answer:
        """``DELETE /connectors/<name>/offsets``."""
        name = call.path["name"]
        with not_found(name):
            self._herder.reset_offsets(name)
        return Answer(200, {"message": _EXTERNAL.format(done="reset")})

    def topics(self, call: Call) -> Answer:
        """``GET /connectors/<name>/topics``."""
        name = call.path["name"]
        if not self._is_tracking:
            raise ApiError(403, "Topic tracking is disabled.")
        return Answer(200, {name: {"topics": [*self._herder.active_topics(name)]}})

    def reset_topics(self, call: Call) -> Answer:
        """``PUT /connectors/<name>/topics/reset``."""
        if not self._is_tracking:
            raise ApiError(403, "Topic tracking is disabled.")
        if not self._is_reset_allowed:
            raise ApiError(403, "Topic tracking reset is disabled.")
        self._herder.reset_active_topics(call.path["name"])
        return Answer(202)


def _entry(value: Any) -> tuple[tuple[str, int], int | None]:
    entry = as_object(value, "an entry of offsets", ("partition", "offset"))
    partition = entry.get("partition")
    if partition is None:
        raise ApiError(400, "The partition for a sink connector offset cannot be null or missing")
    fields = as_object(partition, '"partition"')
    if "kafka_topic" not in fields or "kafka_partition" not in fields:
        raise ApiError(
            400,
            "The partition for a sink connector offset must contain the keys 'kafka_topic' and "
            "'kafka_partition'",
        )
    topic, number = fields["kafka_topic"], fields["kafka_partition"]
    if not isinstance(topic, str) or isinstance(topic, NumberText):
        raise ApiError(400, "Kafka topic names must be valid strings and may not be null")
    why = topic_name(topic)
    if why is not None:
        raise ApiError(400, f"{topic!r} is no Kafka topic: {why}")
    if number is None:
        raise ApiError(400, "Kafka partitions must be valid numbers and may not be null")
    at = (topic, _integer(number, "partition", "Partition"))
    offset = entry.get("offset")
    if offset is None:
        return at, None
    found = as_object(offset, '"offset"')
    if "kafka_offset" not in found:
        raise ApiError(
            400,
            "The offset for a sink connector should either be null or contain the key "
            "'kafka_offset'",
        )
    return at, _integer(found["kafka_offset"], "offset", "Offset")


def _integer(value: Any, what: str, title: str) -> int:
    if not isinstance(value, str) or not _INTEGER.fullmatch(value):
        shown = "null" if value is None else value
        raise ApiError(
            400,
            f"Failed to parse the following Kafka {what} value in the provided offsets: "
            f"'{shown}'. {title} values for sink connectors need to be integers.",
        )
    largest = _LARGEST[what]
    if not 0 <= int(value) <= largest:
        raise ApiError(400, f"A Kafka {what} is a number from 0 to {largest}, not {value}")
    return int(value)
