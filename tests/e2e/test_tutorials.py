"""Every tutorial, as a reader runs it: its commands in one folder, its output compared."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from connect.embedded.stack import Stack
from connect.errors import RetriableError
from connect.jvm import jars
from connect.processes.child_process import free_port
from tests.support.documented_commands import CommandBlock, missing_lines, run_step, steps

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """What ``icefloe up`` starts, in the folder where the reader starts it, on free ports."""
    with Stack(tmp_path / "icefloe-state", broker_port=0, rest_port=0) as running:
        yield running


@pytest.fixture
def background_processes(stack: Stack, tmp_path: Path) -> Iterator[None]:
    """End what a page starts in the background and a failed step leaves running."""
    del stack  # the broker outlives its clients
    yield
    for file in tmp_path.rglob("worker.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text("utf-8")), signal.SIGKILL)


@pytest.mark.usefixtures("background_processes")
@pytest.mark.parametrize("page", sorted(TUTORIALS.glob("*.md")), ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_print_what_it_shows(
    page: Path, stack: Stack, tmp_path: Path
) -> None:
    """Each command succeeds and prints what the page shows, at the latest after a while."""
    text = page.read_text("utf-8")
    for group in re.findall(r"jars resolve (.*)", text):
        try:
            for name in group.split():
                jars.resolve(name)
        except RetriableError as error:
            pytest.skip(f"the jars of this page cannot be downloaded: {error}")
    environ = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ICEFLOE_SERVER": stack.rest_url,
        **{f"GIT_{role}_NAME": "reader" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "reader@example.com" for role in ("AUTHOR", "COMMITTER")},
    }
    java_sink = f"127.0.0.1:{free_port()}"
    for step in steps(page):
        script = step.commands.replace("127.0.0.1:9092", stack.bootstrap_servers)
        script = script.replace("127.0.0.1:8084", java_sink)
        run_step(CommandBlock(script, step.output), tmp_path, environ, missing_lines)
