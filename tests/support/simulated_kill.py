"""Ends code at a failpoint as a kill of its process would, without a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from connect import failpoints


class Killed(BaseException):
    """The process is gone: no handler of errors may continue."""


@contextmanager
def killed_at(point: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Expect that the block reaches a failpoint, and end it there."""

    def hit(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "hit", hit)
        patch.setattr(failpoints, "hit_in_flight", hit)
        with pytest.raises(Killed):
            yield
