"""Membership of a node that is alone: it leads at once and joins no group."""

from __future__ import annotations

from collections.abc import Callable


class SoleMember:
    """Takes the place of ``GroupMember`` in a node with its state in files.

    Args:
        on_membership: called once, with True.
    """

    def __init__(self, on_membership: Callable[[bool], None]) -> None:
        self._on_membership = on_membership

    def start(self) -> None:
        """Lead. The lock of the state folder keeps a second node away."""
        self._on_membership(True)  # noqa: FBT003 - as the group calls it

    def leave(self) -> None:
        """Do nothing: there is no group."""
