"""What must change so that a node runs what the files say: plain comparison, no client.

Rules of this file:
- A connector that ``apply`` made or changed carries its owner in ``icefloe.owner``. Only what
  carries the owner is pruned, and what carries another's is not touched.
- Values of keys that may hold secrets are masked wherever a plan is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from connect.cli.gitops.connector_files import Desired
from connect.config.masking import may_be_secret, without_logins
from connect.errors import ConfigError, ExitStatus
from connect.redaction.secret_values import MASK

OWNER = "icefloe.owner"
Kind = Literal["create", "update", "unchanged", "prune"]
_REFERENCE = re.compile(r"(?:\$\{[^}]*\})+")


class OwnedError(ConfigError):
    """A connector that another owner applies."""

    default_code = "owned"
    exit_status = ExitStatus.NO


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key with its values before and after; None where it is not there."""

    key: str
    before: str | None
    after: str | None

    def to_json(self) -> dict[str, Any]:
        """With masked values."""
        return {
            "key": self.key,
            "before": displayed(self.key, self.before),
            "after": displayed(self.key, self.after),
        }


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to one connector."""

    kind: Kind
    name: str
    changes: tuple[KeyChange, ...] = ()
    desired: Desired | None = None

    def to_json(self) -> dict[str, Any]:
        """For scripts, with masked values."""
        return {
            "action": self.kind,
            "connector": self.name,
            "source": self.desired.source if self.desired else None,
            "changes": [change.to_json() for change in self.changes],
        }


@dataclass(frozen=True, slots=True)
class ApplyPlan:
    """Actions in the order in which they are done: names, then what is pruned."""

    actions: tuple[Action, ...]

    @property
    def pending(self) -> tuple[Action, ...]:
        """Those that change something."""
        return tuple(action for action in self.actions if action.kind != "unchanged")


def make_plan(
    desired: Iterable[Desired], actual: Mapping[str, Mapping[str, str]], *, owner: str, prune: bool
) -> ApplyPlan:
    """Compare.

    Args:
        desired: from files.
        actual: configurations by name, as the node has them.
        owner: written into what is applied.
        prune: whether to delete what the owner applied and no file has.

    Raises:
        OwnedError: a connector of another owner.
    """
    actions = []
    names = set()
    for item in desired:
        names.add(item.name)
        wanted = {**item.config, OWNER: owner}
        there = actual.get(item.name)
        if there is None:
            changes = tuple(KeyChange(k, None, v) for k, v in sorted(wanted.items()))
            actions.append(Action("create", item.name, changes, item))
            continue
        other = there.get(OWNER, owner)
        if other != owner:
            raise OwnedError(
                f"{item.name!r} in {item.source} is applied by {other!r}, not by {owner!r}: "
                f"remove it from the files of one of them, or use --owner {other}",
            )
        changes = tuple(
            KeyChange(key, there.get(key), wanted.get(key))
            for key in sorted({*there, *wanted})
            if there.get(key) != wanted.get(key)
        )
        actions.append(Action("update" if changes else "unchanged", item.name, changes, item))
    if prune:
        gone = sorted(n for n, c in actual.items() if c.get(OWNER) == owner and n not in names)
        actions.extend(Action("prune", name) for name in gone)
    return ApplyPlan(tuple(actions))


def config_to_send(action: Action, owner: str) -> dict[str, str]:
    """The configuration that an action creates or updates."""
    assert action.desired is not None, "what is pruned has no configuration"
    return {**action.desired.config, OWNER: owner}


def displayed(key: str, value: str | None) -> str | None:
    """A value as people may see it: references stay, what may be a secret does not."""
    if value is None or _REFERENCE.fullmatch(value):
        return value
    return MASK if may_be_secret(key) else without_logins(value)
