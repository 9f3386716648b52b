import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HEAVY = ("pyspark", "pyarrow", "confluent_kafka", "fastapi", "pyiceberg", "fastavro", "httpx")


def icefloe(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "connect.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )


def test_version_is_the_installed_one() -> None:
    """``icefloe version`` prints nothing else."""
    assert icefloe("version").stdout == version("icefloe") + "\n"


def test_help_names_every_command() -> None:
    """All commands are listed, the lazily loaded ones too."""
    shown = icefloe("--help").stdout
    for command in (
        "catalog",
        "node",
        "up",
        "demo",
        "control",
        "dlq",
        "migrate",
        "audit",
        "version",
    ):
        assert command in shown


@pytest.mark.parametrize(
    ("arguments", "needed"), [((), ()), (("status",), ("httpx",)), (("apply",), ("httpx",))]
)
def test_help_loads_nothing_heavy(arguments: tuple[str, ...], needed: tuple[str, ...]) -> None:
    """The command line answers without the clients it would need to work.

    Commands that ask a node need its HTTP client and no more.
    """
    code = (
        "import sys, connect.cli as cli\n"
        f"sys.argv = ['icefloe', *{arguments!r}, '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == str(list(needed))


def test_control_commands_are_there_when_asked_for() -> None:
    """``icefloe control --help`` shows the tool's own commands."""
    assert "decode" in icefloe("control", "--help").stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read node properties"),
        ("group.id=g\n", "bootstrap.servers"),
        (
            (
                "bootstrap.servers=127.0.0.1:1\ngroup.id=g\nconfig.storage.topic=c\n"
                "status.storage.topic=s\nlisteners=http://0.0.0.0:0\n"
            ),
            "users.file",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, content: str | None, words: str) -> None:
    """A wrong properties file: one clear line, status 1, no traceback."""
    file = tmp_path / "node.properties"
    if content is not None:
        file.write_text(content)
    done = icefloe("node", "--properties", str(file), cwd=tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1
    assert words in lines[0]
    assert "Traceback" not in done.stderr
