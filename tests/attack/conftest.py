"""One stack for all attacks from outside."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.attacked_stack import AttackedStack, attacked_stack


@pytest.fixture(scope="session")
def _stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedStack]:
    with attacked_stack(tmp_path_factory.mktemp("attack")) as attacked:
        yield attacked


@pytest.fixture
def attacked(_stack: AttackedStack) -> AttackedStack:
    """A broker and a node with users; see ``tests/support/attacked_stack.py``."""
    _stack.begin()
    return _stack
