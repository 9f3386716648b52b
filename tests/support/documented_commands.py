"""Commands of a page, run as its reader runs them, and compared with the output that it shows."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

OUTPUT_TIMEOUT_S = 150
COMMAND_TIMEOUT_S = 300
PAUSE_S = 3  # a repetition takes seconds of processor time, a pause none
_BLOCK = re.compile(r"^```(bash|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class CommandBlock:
    """One block of commands.

    Attributes:
        commands: a script for bash.
        output: what it must print, or None where the page shows nothing.
    """

    commands: str
    output: str | None


def steps(page: Path) -> list[CommandBlock]:
    """Return the blocks of commands of a page, in order, each with the output shown after it."""
    blocks: list[CommandBlock] = []
    for kind, text in _BLOCK.findall(page.read_text("utf-8")):
        if kind == "bash":
            blocks.append(CommandBlock(text, None))
        else:
            blocks[-1] = CommandBlock(blocks[-1].commands, text)
    return blocks


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the lines of a page that were not printed; other lines may be printed."""
    return [line for line in shown.splitlines() if line not in printed]


def different_lines(shown: str, printed: str) -> list[str]:
    """Return the printed lines if they are not exactly those that the page shows."""
    return [] if printed == shown else printed.splitlines() or ["nothing"]


def run_step(
    step: CommandBlock,
    folder: Path,
    environ: Mapping[str, str],
    compare: Callable[[str, str], list[str]],
    *,
    timeout_s: float = OUTPUT_TIMEOUT_S,
) -> None:
    """Run a block; one with output is repeated until it prints what the page shows.

    Args:
        step: commands and output.
        folder: where they run.
        environ: their environment.
        compare: takes what the page shows and what was printed; returns the differences.
        timeout_s: after which a block that prints something else has failed.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", step.commands],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        differences = compare(step.output, done.stdout) if step.output else []
        is_good = done.returncode == 0 and not differences
        if is_good or not step.output or time.monotonic() > deadline_s:
            break
        time.sleep(PAUSE_S)
    assert done.returncode == 0, f"{step.commands}\n{done.stdout}\n{done.stderr}"
    assert not differences, f"{step.commands}\nprinted\n{done.stdout}\ndifferences\n{differences}"
