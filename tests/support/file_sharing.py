"""A plugin of pytest: several runs share the test files of a folder.

A run takes a file when it has ended the one before. So all of them end at about the same time,
though files take different times. ``tests/lanes.py`` starts such runs.

Rules of this file:
- A file belongs to the run that first creates the file's name in the folder of ``--share``.
- The order of the files is the same in all runs. Files whose tests use the fixtures of
  ``--share-first`` come first, in the order of the fixtures. Runs with ``--share-backwards`` begin
  at the end, so only one run starts these fixtures until the runs meet.
- With ``--share-once`` it stays so: all files with such a fixture belong to the run that takes one
  of them first. Of several fixtures of a file, the first one counts.
- A fixture of ``--share-first`` ends with the last file that uses it: a stack without work takes a
  tenth of a core.
- Tests of a file keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("sharing")
    group.addoption("--share", type=Path, help="folder in which runs note the files they take")
    group.addoption("--share-first", default="", help="session fixtures whose files come first")
    group.addoption("--share-backwards", action="store_true", help="begin with the last file")
    group.addoption("--share-once", action="store_true", help="one run has a fixture's files")


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
        self._fixtures: list[str] = config.getoption("--share-first").split(",")
        self._is_backwards: bool = config.getoption("--share-backwards")
        self._is_once: bool = config.getoption("--share-once")
        self._own_fixtures: set[str] = set()
        self._is_own: dict[Path, bool] = {}
        self._places: dict[Path, int] = {}
        self._definitions: dict[int, pytest.FixtureDef[object]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the files into the order of this run."""
        files = list(dict.fromkeys(item.path for item in items))
        places = self._places = dict.fromkeys(files, len(self._fixtures))
        for item in items:
            places[item.path] = min(places[item.path], *self._used(item))
        files.sort(key=places.__getitem__)
        if self._is_backwards:
            files.reverse()
        numbers = {file: number for number, file in enumerate(files)}
        items.sort(key=lambda item: numbers[item.path])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Leave out a test whose file another run has taken."""
        if item.path not in self._is_own:
            self._is_own[item.path] = self._may_take(item.path) and self._take(str(item.path))
            if self._is_own[item.path]:
                # pytest keeps the folder of the next test, which may have been left out
                item.session._setupstate.teardown_exact(item)
                self._end_fixtures(item)
        return None if self._is_own[item.path] else True

    def _used(self, item: pytest.Item) -> list[int]:
        """Return which of the fixtures a test uses; their number if it uses none."""
        known: Mapping[str, Sequence[pytest.FixtureDef[object]]] = getattr(
            getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}
        )
        used = [len(self._fixtures)]
        for place, name in enumerate(self._fixtures):
            definitions = known.get(name, ())
            # a module may have a fixture of the same name
            if definitions and definitions[-1].scope == "session":
                self._definitions[place] = definitions[-1]
                used.append(place)
        return used

    def _end_fixtures(self, item: pytest.Item) -> None:
        """End the fixtures of files before this one; one that is used again starts again."""
        own = self._places[item.path]
        for place, definition in self._definitions.items():
            if place > own if self._is_backwards else place < own:
                definition.finish(item._request)  # type: ignore[attr-defined]

    def _may_take(self, file: Path) -> bool:
        """Return whether no other run has the first fixture of a file; take the fixture."""
        place = self._places[file]
        if not self._is_once or place == len(self._fixtures):
            return True
        name = self._fixtures[place]
        if name not in self._own_fixtures and self._take(f"/fixture/{name}"):
            self._own_fixtures.add(name)
        return name in self._own_fixtures

    def _take(self, path: str) -> bool:
        try:
            (self._taken / "-".join(Path(path).parts[1:])).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True
