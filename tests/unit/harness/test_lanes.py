"""Lanes of the default suite: every test is in one, and a failure is printed last."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lanes import LANES_MAX, NOTHING_SELECTED, TESTS, Lane, halves, lanes, run


def test_every_test_file_is_in_one_lane() -> None:
    """A new folder needs no configuration to be run."""
    found = [
        file
        for lane in lanes([])
        for given in map(Path, lane.folders)
        for file in (given.glob("**/test_*.py") if given.is_dir() else [given])
    ]
    assert sorted(found) == sorted(TESTS.relative_to(Path.cwd()).glob("*/**/test_*.py"))


def test_every_unit_test_is_in_one_half() -> None:
    """The halves together are the folder."""
    found = [file for lane in halves("unit", []) for file in lane.folders]
    assert sorted(found) == sorted(
        f"tests/{f.relative_to(TESTS).as_posix()}" for f in TESTS.glob("unit/**/test_*.py")
    )


@pytest.mark.parametrize("is_first_wrong", [True, False])
def test_a_failure_is_reported_last(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
    is_first_wrong: bool,
) -> None:
    """The output ends with the summary of the failed run."""
    _in_bare_folder(tmp_path, monkeypatch)
    (tmp_path / "test_good.py").write_text("def test_a(): pass\n")
    (tmp_path / "test_wrong.py").write_text("def test_a(): assert not 'a fault'\n")
    names = (
        ["test_wrong.py", "test_good.py"] if is_first_wrong else ["test_good.py", "test_wrong.py"]
    )
    assert run([Lane(name, [name], []) for name in names]) == 1
    displayed = capfdbinary.readouterr().out.decode()
    assert displayed.index("1 passed in") < displayed.index("FAILED test_wrong.py")
    assert "1 failed in" in displayed.splitlines()[-1]


def test_a_lane_without_selected_tests_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A selection by name may leave one lane empty, but not all lanes."""
    _in_bare_folder(tmp_path, monkeypatch)
    (tmp_path / "test_good.py").write_text("def test_a(): pass\ndef test_b(): pass\n")
    chosen = [Lane(name, ["test_good.py"], ["-k", name]) for name in ("test_a", "nothing")]
    assert run(chosen) == 0
    assert run(chosen[1:]) == NOTHING_SELECTED


def test_the_number_of_lanes_that_run_at_once_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lanes wait; each one runs, and a failure of the last one counts."""
    _in_bare_folder(tmp_path, monkeypatch)
    running: set[str] = set()
    most = 0

    class Counted(Lane):
        def start(self) -> None:
            nonlocal most
            super().start()
            running.add(self.name)
            most = max(most, len(running))

        def show(self) -> None:
            super().show()
            running.discard(self.name)

    (tmp_path / "test_good.py").write_text("def test_a(): pass\n")
    (tmp_path / "test_wrong.py").write_text("def test_a(): assert not 'a fault'\n")
    good = [Counted(f"good-{n}", ["test_good.py"], []) for n in range(LANES_MAX + 1)]
    assert run([*good, Counted("wrong", ["test_wrong.py"], [])]) == 1
    assert most == LANES_MAX
    assert not running


def _in_bare_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run there has no configuration and no plugins to load."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
