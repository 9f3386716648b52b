"""Compares the connectors of files with those of a node, without a client.

Rules of this file:
- A connector that ``apply`` has created or updated has its owner in ``icefloe.owner``. Only
  connectors of the same owner are pruned; those of another owner are never changed.
- A displayed plan masks the values of keys that may contain secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from connect.cli.gitops.connector_files import DesiredConnector
from connect.config.masking import displayed_value
from connect.errors import ConfigError, ExitStatus

OWNER = "icefloe.owner"
Kind = Literal["create", "update", "unchanged", "prune"]


class OtherOwnerError(ConfigError):
    """A connector of the files belongs to another owner."""

    default_code = "owned"
    exit_status = ExitStatus.NO


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key with its values before and after; None if the key is absent."""

    key: str
    before: str | None
    after: str | None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; secrets are masked."""
        return {
            "key": self.key,
            "before": displayed(self.key, self.before),
            "after": displayed(self.key, self.after),
        }


@dataclass(frozen=True, slots=True)
class Action:
    """The change of one connector."""

    kind: Kind
    name: str
    changes: tuple[KeyChange, ...] = ()
    desired: DesiredConnector | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object; secrets are masked."""
        return {
            "action": self.kind,
            "connector": self.name,
            "source": self.desired.source if self.desired else None,
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Actions in the order of their execution: by name, pruned connectors last."""

    actions: tuple[Action, ...]

    @property
    def pending(self) -> tuple[Action, ...]:
        """Return the actions that change the node."""
        return tuple(action for action in self.actions if action.kind != "unchanged")


def make_plan(
    desired: Iterable[DesiredConnector],
    actual: Mapping[str, Mapping[str, str]],
    *,
    owner: str,
    prune: bool,
) -> ApplyPlan:
    """Compare the connectors of files with those of a node.

    Args:
        desired: connectors of files.
        actual: configurations of the node by name.
        owner: value of ``icefloe.owner`` in each applied configuration.
        prune: whether to delete connectors of this owner that are in no file.

    Raises:
        OtherOwnerError: a connector belongs to another owner.
    """
    actions = []
    names = set()
    for item in desired:
        names.add(item.name)
        desired_config = {**item.config, OWNER: owner}
        present = actual.get(item.name)
        if present is None:
            changes = tuple(KeyChange(k, None, v) for k, v in sorted(desired_config.items()))
            actions.append(Action("create", item.name, changes, item))
            continue
        other = present.get(OWNER, owner)
        if other != owner:
            raise OtherOwnerError(
                f"the connector {item.name!r} in {item.source} belongs to the owner {other!r}, "
                f"not {owner!r}: remove it from the files, or use --owner {other}",
            )
        changes = tuple(
            KeyChange(key, present.get(key), desired_config.get(key))
            for key in sorted({*present, *desired_config})
            if present.get(key) != desired_config.get(key)
        )
        actions.append(Action("update" if changes else "unchanged", item.name, changes, item))
    if prune:
        gone = sorted(n for n, c in actual.items() if c.get(OWNER) == owner and n not in names)
        actions.extend(Action("prune", name) for name in gone)
    return ApplyPlan(tuple(actions))


def config_to_send(action: Action, owner: str) -> dict[str, str]:
    """Return the configuration that an action creates or updates."""
    assert action.desired is not None, "an action that prunes has no configuration"
    return {**action.desired.config, OWNER: owner}


def displayed(key: str, value: str | None) -> str | None:
    """Return a value for display: possible secrets are masked, references are not."""
    return None if value is None else displayed_value(key, value)
