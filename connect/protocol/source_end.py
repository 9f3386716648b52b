"""The end of a bounded run (``icefloe.end``), as the config topic keeps it.

Rules of this file:
- The leader fixes the end offsets once, before the first task starts. A run that was killed ends at
  the same offsets.
- A completed run belongs to the configuration that it ran with. With another configuration the
  connector starts a new run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from connect.model.layout import TopicPartition

END_KEY = "icefloe.end"
_SELECTION = (END_KEY, "topics", "topics.regex")


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The end of a bounded run.

    Attributes:
        selection: the keys of the configuration for which the offsets were fixed.
        offsets: partition -> first source offset that the run does not read.
        completed: digest of the configuration whose run is complete; None while it is not.
    """

    selection: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    completed: str | None = None

    def is_of(self, config: Mapping[str, str]) -> bool:
        """Return whether the offsets were fixed for the same topics and the same end."""
        return dict(self.selection) == selection_of(config)

    def is_completed(self, config: Mapping[str, str]) -> bool:
        """Return whether the run of this configuration is complete."""
        return self.completed is not None and self.completed == config_digest(config)

    def completed_with(self, config: Mapping[str, str]) -> SourceEnd:
        """Return the end of a run that this configuration has completed."""
        return replace(self, completed=config_digest(config))

    def to_json(self) -> dict[str, Any]:
        """Return the form in which the config topic keeps it."""
        value: dict[str, Any] = {
            "selection": dict(self.selection),
            "offsets": end_lists(self.offsets),
        }
        return value if self.completed is None else {**value, "completed": self.completed}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SourceEnd:
        """Return the end from which ``to_json`` made this form.

        Raises:
            KeyError, TypeError, ValueError: it has another form.
        """
        completed = value.get("completed")
        selection = {str(key): str(text) for key, text in dict(value["selection"]).items()}
        return cls(
            selection, end_offsets(value["offsets"]), None if completed is None else str(completed)
        )


def selection_of(config: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a configuration that the end offsets depend on."""
    return {key: config[key] for key in _SELECTION if key in config}


def config_digest(config: Mapping[str, str]) -> str:
    """Return a digest of a configuration; placeholders are not resolved."""
    text = json.dumps(dict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def end_lists(offsets: Mapping[TopicPartition, int]) -> list[list[Any]]:
    """Return offsets as JSON: topic, partition and offset."""
    return [[tp.topic, tp.partition, offset] for tp, offset in sorted(offsets.items())]


def end_offsets(listed: Any) -> dict[TopicPartition, int]:
    """Return the offsets from which ``end_lists`` made this form."""
    return {TopicPartition(str(t), int(p)): int(offset) for t, p, offset in listed}
