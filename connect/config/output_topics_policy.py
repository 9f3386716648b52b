"""Topics to which outputs of a connector may send rows.

Rules of this file:
- The operator grants topics with the node properties ``icefloe.output.topics.<connector>``:
  patterns of topic names.
- If the REST API has users, topics that no property lists are not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from connect.config.location_policy import OUTPUT_TOPICS_PREFIX, granted_entries
from connect.config.name_pattern import matches


@dataclass(frozen=True, slots=True)
class OutputTopicsPolicy:
    """The topics that a connector's outputs may use.

    Attributes:
        patterns: of topic names (``*`` matches any text); None for all topics.
    """

    patterns: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        node: Mapping[str, str],
        resolve: Callable[[str], str] | None = None,
    ) -> OutputTopicsPolicy:
        """Return the policy of a connector from the node's properties.

        Args:
            name: name of the connector.
            node: node properties.
            resolve: resolves placeholders; None if the properties have none.
        """
        return cls(granted_entries(name, OUTPUT_TOPICS_PREFIX, node, resolve))

    def refusal(self, topic: str) -> str | None:
        """Return the reason why a topic is not allowed, or None if it is allowed."""
        if self.patterns is None or any(matches(pattern, topic) for pattern in self.patterns):
            return None
        return (
            f"{topic} is not among the topics in the node's properties "
            f"{OUTPUT_TOPICS_PREFIX}<connector>"
        )
