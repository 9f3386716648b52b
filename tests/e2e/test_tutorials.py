"""Every tutorial, as a reader runs it: its commands in one folder, its output compared.

The pages use the shared stack. A page finds no connector of another one. Where two pages, or a page
and an example, use the same name for their data, the page gets another name. The default suite has
``FIRST``, ``make matrix`` the others.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from connect.errors import RetriableError
from connect.jvm import jars
from connect.processes.child_process import free_port
from tests.support.documented_commands import CommandBlock, missing_lines, run_step, steps
from tests.support.forked_commands import ForkedCommands
from tests.support.running_stack import RunningStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
FIRST = "first-connector"
PAGES = [
    pytest.param(page, marks=() if page.stem == FIRST else pytest.mark.matrix)
    for page in sorted(TUTORIALS.glob("*.md"))
]
OWN = {"shop": "mart", "orders": "trades"}  # of the same length: printed tables have columns
RENAMED = {FIRST: {"orders": "sales"}}


@pytest.fixture
def background_processes(running: RunningStack, tmp_path: Path) -> Iterator[None]:
    """End what a page starts in the background and a failed step leaves running."""
    yield
    for file in tmp_path.rglob("worker.pid"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text("utf-8")), signal.SIGKILL)
    running.delete(*running.api.get("/connectors").json())


@pytest.mark.usefixtures("background_processes")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_print_what_it_shows(
    page: Path, running: RunningStack, commands: ForkedCommands, tmp_path: Path
) -> None:
    """Each command succeeds and prints what the page shows, at the latest after a while."""
    stack = running.stack
    text = page.read_text("utf-8")
    for group in re.findall(r"jars resolve (.*)", text):
        try:
            for name in group.split():
                jars.resolve(name)
        except RetriableError as error:
            pytest.skip(f"the jars of this page cannot be downloaded: {error}")
    environ = {
        **os.environ,
        "PATH": f"{commands.path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ICEFLOE_SERVER": stack.rest_url,
        **{f"GIT_{role}_NAME": "reader" for role in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{role}_EMAIL": "reader@example.com" for role in ("AUTHOR", "COMMITTER")},
    }
    (tmp_path / "icefloe-state").symlink_to(stack.state_dir)
    replaced = {
        "127.0.0.1:9092": stack.bootstrap_servers,
        "127.0.0.1:8084": f"127.0.0.1:{free_port()}",  # the Java sink
        **OWN,
        **RENAMED.get(page.stem, {}),
    }
    for step in steps(page):
        script, output = step.commands, step.output
        for documented, own in replaced.items():
            script = script.replace(documented, own)
            output = output and output.replace(documented, own)
        run_step(CommandBlock(script, output), tmp_path, environ, missing_lines)
