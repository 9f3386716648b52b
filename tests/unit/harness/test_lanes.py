"""Lanes of the default suite: every test is in one, and a failure is printed last."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.lanes import (
    NOTHING_SELECTED,
    REST,
    SHARED,
    TESTS,
    Lane,
    halves,
    lanes,
    run,
    share,
)


def test_every_test_file_is_in_a_lane(tmp_path: Path) -> None:
    """A new folder needs no configuration to be run; only lanes that share have the same files."""
    made = lanes([], tmp_path)
    found = [file for lane in made for given in lane.folders for file in Path(given).glob("**/*")]
    assert {f for f in found if f.match("test_*.py")} == set(
        TESTS.relative_to(Path.cwd()).glob("*/**/test_*.py")
    )
    shared = [lane for lane in made if "--share" in lane.arguments]
    folders = Counter(folder for lane in made if lane not in shared for folder in lane.folders)
    assert set(folders.values()) == {1}
    by_name: defaultdict[str, list[Lane]] = defaultdict(list)
    for lane in shared:
        by_name[lane.name.partition("-")[0]].append(lane)
    assert by_name.keys() == {*SHARED, "rest"}
    for name, same in by_name.items():
        (common,) = {tuple(lane.folders) for lane in same}
        folders.update(common)
        # just one lane begins with the files of fixtures that take long to start
        first = [lane for lane in same if "--share-backwards" not in lane.arguments]
        assert first == (same[:1] if name in SHARED else same)
    assert set(folders.values()) == {1}
    assert not [name for name in REST if name.partition("-")[0] != "rest"]


def test_a_lane_reports_its_processor_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """With that of its child processes, and of no other lane."""
    _in_bare_folder(tmp_path, monkeypatch)
    code = "import time\nwhile time.process_time() < 1: pass"
    test = f"import subprocess, sys\ndef test_a(): subprocess.run([sys.executable, '-c', {code!r}])"
    (tmp_path / "test_busy.py").write_text(test)
    (tmp_path / "test_idle.py").write_text("def test_a(): pass\n")
    made = [Lane(name, [f"test_{name}.py"], []) for name in ("busy", "idle")]
    assert run(made) == 0
    busy, idle = made
    assert busy.used_s > 1
    assert busy.used_s > idle.used_s
    assert f"processor time {busy.used_s:.0f} s" in capfdbinary.readouterr().out.decode()


COSTLY = """
import pathlib
import time

import pytest

RAN = pathlib.Path(__file__).with_name("ran")


def ran(line):
    with RAN.open("a") as file:
        file.write(line + "\\n")


def wait_for_lines(count):  # the timeout of the lane bounds it
    while len(RAN.read_text().splitlines()) < count:
        time.sleep(0.01)


@pytest.fixture(scope="session")
def costly():
    ran("costly")
    yield
    ran("costly ends")


@pytest.fixture(scope="session")
def cheaper():
    ran("cheaper")
"""


def test_lanes_that_share_run_each_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane takes files while the other one waits; one lane starts the costly fixture."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    _in_bare_folder(tmp_path, monkeypatch)
    (tmp_path / "conftest.py").write_text(COSTLY)
    for name, first in {
        "a": "def test_a(): ran('a')",
        "b": "def test_b(costly): ran('b'); wait_for_lines(9)",  # until the other files have run
        "c": "def test_c(cheaper): ran('c')",
        "d": "def test_d(): ran('d')",
    }.items():
        lines = ["from conftest import ran, wait_for_lines", first]
        lines.append(f"def test_last(): ran('{name} ends')")
        (tmp_path / f"test_{name}.py").write_text("\n".join(lines))
    taken = tmp_path / "taken"
    taken.mkdir()
    first = "costly,cheaper"
    assert run([Lane(str(n), ["."], share(taken, first, is_first=n == 1)) for n in (1, 2)]) == 0
    lines = (tmp_path / "ran").read_text().splitlines()
    ends = [f"{name} ends" for name in "abcd"]
    assert sorted(lines) == sorted([*"abcd", *ends, "costly", "costly ends", "cheaper"])
    assert lines[-2:] == ["b ends", "costly ends"]
    assert lines.index("c ends") > max(lines.index("a ends"), lines.index("d ends"))


def test_one_lane_has_all_files_of_a_fixture_that_starts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other lane leaves them to it, also when it has nothing else to run."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    _in_bare_folder(tmp_path, monkeypatch)
    (tmp_path / "conftest.py").write_text(COSTLY)
    for name, first in {
        "a": "def test_a(costly): ran('a'); wait_for_lines(4)",  # until the second lane has run
        "b": "def test_b(costly, cheaper): ran('b')",
        "c": "def test_c(cheaper): ran('c')",
    }.items():
        lines = ["from conftest import ran, wait_for_lines", first]
        (tmp_path / f"test_{name}.py").write_text("\n".join(lines))
    taken = tmp_path / "taken"
    taken.mkdir()
    made = [
        Lane(str(n), ["."], [*share(taken, "costly,cheaper", is_first=n == 1), "--share-once"])
        for n in (1, 2)
    ]
    assert run(made) == 0
    lines = (tmp_path / "ran").read_text().splitlines()
    assert Counter(lines) == {**dict.fromkeys(("costly", *"abc", "costly ends"), 1), "cheaper": 2}
    assert lines.index("c") < lines.index("b")


def test_a_costly_fixture_ends_with_the_last_file_that_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first lane, and in the second one, which begins with the other files."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    _in_bare_folder(tmp_path, monkeypatch)
    (tmp_path / "conftest.py").write_text(COSTLY)
    for name, fixture in {"a": "cheaper", "b": "costly", "c": "costly", "d": ""}.items():
        lines = ["from conftest import ran", f"def test_{name}({fixture}): ran('{name}')"]
        (tmp_path / f"test_{name}.py").write_text("\n".join(lines))
    for is_first, expected in {
        True: ["costly", "b", "c", "costly ends", "cheaper", "a", "d"],
        False: ["d", "cheaper", "a", "costly", "c", "b", "costly ends"],
    }.items():
        taken = tmp_path / str(is_first)
        taken.mkdir()
        options = share(taken, "costly,cheaper", is_first=is_first)
        assert run([Lane(taken.name, ["."], options)]) == 0
        assert (tmp_path / "ran").read_text().split("\n")[:-1] == expected
        (tmp_path / "ran").unlink()


def test_a_lane_leaves_a_folder_whose_next_file_another_lane_has_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next own file is in another folder: fixtures of the folder that it left end first."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS.parent))
    _in_bare_folder(tmp_path, monkeypatch)
    for folder, names in {"one": "ab", "two": "c"}.items():
        (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / folder / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "-".join((tmp_path / "one" / "test_b.py").parts[1:])).touch()
    lane = Lane("1", ["one", "two"], [*share(taken, "", is_first=True), "-v"])
    assert run([lane]) == 0
    assert lane.report.read_text().count("PASSED") == 2


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
    """The other lanes wait, also after one of low priority; a failure of the last one counts."""
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
    good = [Counted(f"good-{n}", ["test_good.py"], []) for n in range(3)]
    low = Counted("low", ["test_good.py"], [], niceness=1)
    assert run([low, *good, Counted("wrong", ["test_wrong.py"], [])], at_once=2) == 1
    assert most == 2
    assert not running


def _in_bare_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is run there has no configuration and no plugins to load."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
