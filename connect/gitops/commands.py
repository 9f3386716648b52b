"""``icefloe diff``, ``apply`` and ``validate``: connectors kept in files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from connect.clock import SystemClock
from connect.errors import IcefloeError
from connect.gitops.apply import (
    carry_out,
    compare,
    problems,
    wait_until_running,
)
from connect.gitops.files import Desired, read
from connect.gitops.plan import Action, Plan, shown
from connect.rest_client import DEFAULT_URL, NodeClient, Server, Url
from connect.terminal import echo, lines

PENDING = 2
WRONG = 1
_MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "prune": ("-", "red")}

Files = Annotated[
    list[Path],
    typer.Option("--file", "-f", help="File or folder of connectors; more than once if need be."),
]
Owner = Annotated[
    str, typer.Option(help="Who applies; told in the connectors, so that --prune knows its own.")
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete connectors of this owner that no file has.")
]
Output = Annotated[
    Literal["text", "json"], typer.Option("--output", "-o", help="For people or for scripts.")
]
DEFAULT_OWNER = "apply"


@contextlib.contextmanager
def node(server: str) -> Iterator[NodeClient]:
    """A client, closed at the end."""
    client = NodeClient(Server.named(server))
    try:
        yield client
    finally:
        client.close()


def diff(
    files: Files,
    server: Url = DEFAULT_URL,
    owner: Owner = DEFAULT_OWNER,
    prune: Prune = False,
    output: Output = "text",
) -> None:
    """Show what apply would change: status 0 nothing, 2 something, 1 an error."""
    with node(server) as client:
        plan = _checked(client, read(files), owner, output, prune=prune)
        _show(plan, output)
    raise typer.Exit(PENDING if plan.pending else 0)


def apply(  # noqa: PLR0917 - the options of a command
    files: Files,
    server: Url = DEFAULT_URL,
    owner: Owner = DEFAULT_OWNER,
    prune: Prune = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, as diff does.")
    ] = False,
    wait_s: Annotated[
        int,
        typer.Option("--wait", min=0, help="Seconds to wait until all of them run; 0: do not."),
    ] = 0,
    output: Output = "text",
) -> None:
    """Make a node run what the files say; all of them are validated first."""
    desired = read(files)
    with node(server) as client:
        plan = _checked(client, desired, owner, output, prune=prune)
        _show(plan, output)
        if dry_run:
            raise typer.Exit(PENDING if plan.pending else 0)
        clock = SystemClock()
        with _progress("applied", len(plan.pending), output) as step:
            carry_out(client, plan, clock, owner=owner, told=step)
        if wait_s:
            with _progress("running", len(desired), output) as step:
                wait_until_running(
                    client,
                    {item.name: item.initial_state for item in desired},
                    clock,
                    timeout_ms=wait_s * 1000,
                    told=step,
                )


def validate(
    files: Files,
    server: Annotated[
        str | None,
        typer.Option(envvar="ICEFLOE_SERVER", help="Let this node judge; without one: no network."),
    ] = None,
    remote: Annotated[
        bool,
        typer.Option(help="Let the node ask brokers, catalog and registries, within seconds."),
    ] = True,
) -> None:
    """Check connectors in files: status 0 all are right, 1 something is wrong."""
    desired = read(files)
    if server is None:
        found = [sentence for item in desired for sentence in _offline(item)]
    else:
        with node(server) as client:
            found = problems(client, desired, is_remote=remote)
    _refuse(found)
    echo(f"{len(desired)} connector(s) are right")


def _offline(item: Desired) -> list[str]:
    # with every converter and transformation: the commands that ask a node need none of it
    from connect.config.invalid_config import InvalidConfigError  # noqa: PLC0415 - on use
    from connect.config.parse import parse  # noqa: PLC0415 - on use
    from connect.config.together import check_sink  # noqa: PLC0415 - on use

    found: Mapping[str, Iterable[str]] = {}
    try:
        parse(item.config)
    except InvalidConfigError as e:
        found = e.errors
    except IcefloeError as e:
        return [f"{item.source}: {item.name}: {e}"]
    checked = check_sink(item.config)
    for warning in checked.warnings:
        echo(f"warning: {item.source}: {item.name}: {warning}", err=True)
    return [
        f"{item.source}: {item.name}: {key}: {sentence}"
        for key, sentences in {**checked.errors, **found}.items()
        for sentence in sentences
    ]


def _checked(
    client: NodeClient, desired: Sequence[Desired], owner: str, output: str, *, prune: bool
) -> Plan:
    _refuse(problems(client, desired, is_remote=False), output)
    return compare(client, desired, owner=owner, prune=prune)


def _refuse(found: Sequence[str], output: str = "text") -> None:
    """End with status 1 when something is wrong."""
    if not found:
        return
    for sentence in found:
        echo(sentence, err=True)
    echo(f"{len(found)} error(s); nothing was changed", err=True)
    if output == "json":
        echo(json.dumps({"errors": list(found)}))
    raise typer.Exit(WRONG)


def _show(plan: Plan, output: str) -> None:
    if output == "json":
        echo(json.dumps({"actions": [action.to_json() for action in plan.actions]}, indent=2))
        return
    lines(line for action in plan.actions for line in _lines(action))
    counts = dict.fromkeys(("create", "update", "prune", "unchanged"), 0)
    for action in plan.actions:
        counts[action.kind] += 1
    echo(", ".join(f"{count} to {kind}" for kind, count in list(counts.items())[:3])
         + f", {counts['unchanged']} unchanged")  # fmt: skip


def _lines(action: Action) -> Iterator[tuple[str, str]]:
    mark, color = _MARKS.get(action.kind, (" ", "dim"))
    yield f"{mark} {action.name}", color
    for change in action.changes if action.kind == "update" else ():
        before, after = shown(change.key, change.before), shown(change.key, change.after)
        if change.before is None:
            yield f"    + {change.key}: {after}", "green"
        elif change.after is None:
            yield f"    - {change.key}: {before}", "red"
        else:
            hidden = " (changed)" if before == after else ""
            yield f"    ~ {change.key}: {before} -> {after}{hidden}", "yellow"


@contextlib.contextmanager
def _progress(what: str, total: int, output: str) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, nothing elsewhere; gives what takes the count so far."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), console=console,
        disable=output == "json" or not console.is_terminal or not total,
    )  # fmt: skip
    with bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, completed=count)
