"""A plugin of pytest: several runs share the test files of a folder.

A run takes a file when it has ended the one before. So all of them end at about the same time,
though files take different times. ``tests/lanes.py`` starts such runs.

Rules of this file:
- A file belongs to the run that first creates the file's name in the folder of ``--share``.
- The order of the files is the same in all runs. Files whose tests use the fixture of
  ``--share-first`` come first. Runs with ``--share-backwards`` begin at the end, so only one run
  starts that fixture until the runs meet.
- Tests of a file keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("sharing")
    group.addoption("--share", type=Path, help="folder in which runs note the files they take")
    group.addoption("--share-first", default="", help="session fixture whose files come first")
    group.addoption("--share-backwards", action="store_true", help="begin with the last file")


def pytest_configure(config: pytest.Config) -> None:
    """Share files if a folder is named."""
    if config.getoption("--share"):
        config.pluginmanager.register(SharedFiles(config), "shared-files")


class SharedFiles:
    """The files of one run.

    Args:
        config: with the options.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._taken: Path = config.getoption("--share")
        self._fixture: str = config.getoption("--share-first")
        self._is_backwards: bool = config.getoption("--share-backwards")
        self._is_own: dict[Path, bool] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the files into the order of this run."""
        files = list(dict.fromkeys(item.path for item in items))
        first = {item.path for item in items if self._uses_fixture(item)}
        files.sort(key=lambda file: file not in first)
        if self._is_backwards:
            files.reverse()
        numbers = {file: number for number, file in enumerate(files)}
        items.sort(key=lambda item: numbers[item.path])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave out a test whose file another run has taken."""
        if item.path not in self._is_own:
            self._is_own[item.path] = self._take(item.path)
        return None if self._is_own[item.path] else True

    def _uses_fixture(self, item: pytest.Item) -> bool:
        # a module may have a fixture of the same name
        info = getattr(item, "_fixtureinfo", None)
        definitions: Sequence[pytest.FixtureDef[object]] = (
            () if info is None else info.name2fixturedefs.get(self._fixture, ())
        )
        return bool(definitions) and definitions[-1].scope == "session"

    def _take(self, file: Path) -> bool:
        try:
            (self._taken / "-".join(file.parts[1:])).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
