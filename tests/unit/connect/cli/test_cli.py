import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

HEAVY = ("pyspark", "pyarrow", "confluent_kafka", "fastapi", "pyiceberg", "fastavro", "httpx")


def icefloe(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "connect.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd,
    )


def test_version_prints_the_installed_version() -> None:
    """``icefloe version`` prints nothing else."""
    assert icefloe("version").stdout == version("icefloe") + "\n"


def test_help_names_every_command() -> None:
    """Also lazily loaded commands."""
    displayed = icefloe("--help").stdout
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
        assert command in displayed


@pytest.mark.parametrize(
    ("arguments", "needed"), [((), ()), (("status",), ("httpx",)), (("apply",), ("httpx",))]
)
def test_help_loads_no_clients(arguments: tuple[str, ...], needed: tuple[str, ...]) -> None:
    """The command line answers without the clients of other systems.

    Commands that ask a node need its HTTP client and no more.
    """
    code = (
        "import sys, connect.cli.main as cli\n"
        f"sys.argv = ['icefloe', *{arguments!r}, '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == str(list(needed))


def test_control_help_lists_its_own_commands() -> None:
    """``icefloe control --help`` shows the tool's own commands."""
    assert "decode" in icefloe("control", "--help").stdout


def test_an_error_is_one_line(tmp_path: Path) -> None:
    """A wrong properties file: one clear line, status 2, no traceback."""
    needed = "bootstrap.servers=127.0.0.1:1\ngroup.id=g\nconfig.storage.topic=c\n"
    wrong = {
        "missing": (None, "cannot read node properties"),
        "short": ("group.id=g\n", "bootstrap.servers"),
        "open": (f"{needed}status.storage.topic=s\nlisteners=http://0.0.0.0:0\n", "users.file"),
    }
    for name, (content, _) in wrong.items():
        if content is not None:
            (tmp_path / name).write_text(content)
    code = (  # a node's modules are loaded once for all
        "import sys, connect.cli.main as cli\n"
        f"for name in {list(wrong)!r}:\n"
        "    sys.argv = ['icefloe', 'node', '--properties', name]\n"
        "    try: cli.main()\n"
        "    except SystemExit as e: print('status', int(e.code), file=sys.stderr)\n"
        "cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 2  # the last one, as the command itself ends
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    output = dict(zip(wrong, zip(lines[::2], lines[1::2], strict=False), strict=True))
    for name, (_, text) in wrong.items():
        assert text in output[name][0]
        assert output[name][1] == "status 2"
    assert lines[6:] == lines[4:5]
    assert "Traceback" not in done.stderr
