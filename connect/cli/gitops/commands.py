"""``icefloe diff``, ``apply`` and ``validate`` for connectors defined in files."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich import progress as rich_progress
from rich.console import Console

from connect.cli.gitops.apply import (
    Findings,
    Progress,
    apply_plan,
    compare,
    distinct,
    findings,
    wait_until_running,
)
from connect.cli.gitops.connector_files import DesiredConnector, read
from connect.cli.gitops.output import Output, confirm, emit
from connect.cli.gitops.plan import Action, ApplyPlan, KeyChange, displayed
from connect.cli.rest_client import DEFAULT_URL, NodeClient, Server, Url
from connect.cli.terminal import echo, lines
from connect.clock import SystemClock
from connect.errors import ExitStatus, IcefloeError

_MARKS = {"create": ("+", "green"), "update": ("~", "yellow"), "prune": ("-", "red")}
_DONE = {"create": "created", "update": "updated", "prune": "deleted", "unchanged": "unchanged"}

Files = Annotated[
    list[Path],
    typer.Option("--file", "-f", help="File or folder with connectors; may be repeated."),
]
Owner = Annotated[
    str | None,
    typer.Option(
        help="Owner of the applied connectors; --prune deletes only this owner's. Default: apply."
    ),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete connectors of this owner that are in no file.")
]
_SYSTEMS = ("brokers", "catalog", "object store", "schema registries")
"""Systems that only a node asks."""
DEFAULT_OWNER = "apply"
"""Owner of connectors that are applied without ``--owner``, from any folder."""


@contextlib.contextmanager
def node(server: str) -> Iterator[NodeClient]:
    """Open a client of a node; it is closed at the end of the block."""
    client = NodeClient(Server.named(server))
    try:
        yield client
    finally:
        client.close()


def diff(
    files: Files,
    server: Url = DEFAULT_URL,
    owner: Owner = None,
    prune: Prune = False,
    output: Output = "table",
) -> None:
    """Show what apply would change. Exit status: 0 no change, 1 changes, 2 a file is invalid."""
    with node(server) as client:
        plan = _checked(client, read(files), owner or DEFAULT_OWNER, output, prune=prune)
        _show(plan, output)
    raise typer.Exit(ExitStatus.NO if plan.pending else ExitStatus.DONE)


def apply(  # noqa: PLR0917 - the options of a command
    files: Files,
    server: Url = DEFAULT_URL,
    owner: Owner = None,
    prune: Prune = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, as diff does.")
    ] = False,
    wait_s: Annotated[
        int,
        typer.Option(
            "--wait",
            min=0,
            help="Seconds to wait until all connectors run and have read; 0: do not wait.",
        ),
    ] = 0,
    output: Output = "table",
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Prune without a question; not needed with --owner."),
    ] = False,
) -> None:
    """Create, update and prune connectors so that the node matches the files.

    All files are validated first. If one is invalid, nothing changes and the exit status is 2.
    With --wait, brokers, catalogs and schema registries are asked too, as validate does.
    Without --owner, deletions need a confirmation: connectors of other folders may be among them.
    """
    desired = read(files)
    owner_name = owner or DEFAULT_OWNER
    with node(server) as client:
        plan = _checked(client, desired, owner_name, output, prune=prune, is_remote=bool(wait_s))
        if dry_run:
            _show(plan, output)
            raise typer.Exit(ExitStatus.NO if plan.pending else ExitStatus.DONE)
        if owner is None:
            _confirm_deletions(plan, output, yes=yes)
        outcome = _Outcome(plan)
        try:
            _carry_out(client, outcome, owner_name, output, wait_s)
        finally:
            _show_outcome(outcome, output)


@dataclass(slots=True)
class _Outcome:
    """What apply has done.

    Attributes:
        applied_count: of the pending actions, from the first.
        progress: of each connector in the files; empty without a wait.
    """

    plan: ApplyPlan
    applied_count: int = 0
    progress: Mapping[str, Progress] = field(default_factory=dict)

    def actions(self) -> Iterator[tuple[Action, bool, str | None]]:
        """Yield each action, whether it was applied, and the state of its connector if known."""
        applied = {action.name for action in self.plan.pending[: self.applied_count]}
        for action in self.plan.actions:
            progress = self.progress.get(action.name)
            yield action, action.name in applied, None if progress is None else progress.state


def _carry_out(client: NodeClient, outcome: _Outcome, owner: str, output: str, wait_s: int) -> None:
    plan, clock = outcome.plan, SystemClock()
    with _progress("applied", len(plan.pending), output) as step:

        def on_applied(count: int) -> None:
            outcome.applied_count = count
            step(count)

        apply_plan(client, plan, clock, owner=owner, on_progress=on_applied)
    desired = [action.desired for action in plan.actions if action.desired is not None]
    if not wait_s:
        return
    with _progress("running", len(desired), output) as step:

        def on_progress(progress: Mapping[str, Progress]) -> None:
            outcome.progress = progress
            step(sum(each.reason is None for each in progress.values()))

        wait_until_running(
            client,
            {item.name: item.initial_state for item in desired},
            clock,
            timeout_ms=wait_s * 1000,
            on_progress=on_progress,
        )


def _show_outcome(outcome: _Outcome, output: str) -> None:
    def as_table() -> None:
        for action, is_applied, state in outcome.actions():
            if is_applied or action.kind == "unchanged":
                _, color = _MARKS.get(action.kind, (" ", "dim"))
                end = "" if state is None else f", {state}"
                lines([(f"{_DONE[action.kind]} {action.name}{end}", color)])
                lines(change_lines(action.changes) if action.kind == "update" else ())

    emit(
        output,
        {
            "actions": [
                {**action.to_json(), "applied": is_applied, "state": state}
                for action, is_applied, state in outcome.actions()
            ]
        },
        names=[action.name for action, is_applied, _ in outcome.actions() if is_applied],
        as_table=as_table,
    )


def validate(
    files: Files,
    server: Annotated[
        str | None,
        typer.Option(
            envvar="ICEFLOE_SERVER", help="Node that validates; without it, validation is offline."
        ),
    ] = None,
    remote: Annotated[
        bool,
        typer.Option(help="The node also checks brokers, catalogs and schema registries."),
    ] = True,
    strict: Annotated[
        bool, typer.Option("--strict", help="Warnings count: status 1 if there is one.")
    ] = False,
    output: Output = "table",
) -> None:
    """Validate connectors in files. Exit status: 0 all are valid, 1 some are invalid."""
    desired = read(files)
    result = Findings()
    if server is None:
        for item in desired:
            _check_offline(item, result)
    else:
        with node(server) as client:
            result = findings(client, desired, is_remote=remote)
    is_valid = not (result.errors or (strict and result.warnings))
    not_asked = () if server is not None and remote else _SYSTEMS
    emit(
        output,
        {
            "valid": is_valid,
            "connectors": [item.name for item in desired],
            "errors": result.errors,
            "warnings": result.warnings,
            "not_asked": not_asked,
        },
        names=[item.name for item in desired],
        as_table=lambda: echo(f"{len(desired)} connector(s) are valid") if is_valid else None,
    )
    _print_warnings(result)
    if result.errors:
        _print_errors(result.errors)
    if not_asked:
        way = "use --server URL" if server is None else "omit --no-remote"
        echo(f"not asked: {', '.join(not_asked)}; {way}", err=True)
    if not is_valid:
        raise typer.Exit(ExitStatus.NO)


def _check_offline(item: DesiredConnector, result: Findings) -> None:
    # imports all converters and transformations: commands that use a node do not need them
    from connect.config.invalid_config import InvalidConfigError  # noqa: PLC0415 - on use
    from connect.validation.cross_key_rules import check_sink  # noqa: PLC0415 - on use
    from connect.validation.parse import parse  # noqa: PLC0415 - on use

    errors: Mapping[str, Iterable[str]] = {}
    try:
        parse(item.config)
    except InvalidConfigError as e:
        errors = e.errors
    except IcefloeError as e:
        result.errors.append(f"{item.source}: {item.name}: {e}")
        return
    checked = check_sink(item.config)
    errors = {**_converter_errors(item.config), **errors}
    result.warnings.extend(f"{item.source}: {item.name}: {text}" for text in checked.warnings)
    result.errors.extend(
        f"{item.source}: {item.name}: {key}: {sentence}"
        for key, sentences in {**checked.errors, **errors}.items()
        for sentence in distinct(key, sentences)
    )


def _converter_errors(config: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the errors of converters by key. Values with placeholders are known to a node only."""
    from connect.config.keys.topic_keys import TOPIC_PREFIX  # noqa: PLC0415 - on use
    from connect.config.placeholders import has_placeholder  # noqa: PLC0415 - on use
    from connect.validation.plugins import BUILT_IN  # noqa: PLC0415 - on use
    from connect.validation.validate import CONVERTERS  # noqa: PLC0415 - on use
    from connect.validation.validate import validate as validated  # noqa: PLC0415 - on use

    plugin = BUILT_IN.find(config["connector.class"], "sink")
    if plugin is None:
        return {}
    starts = (TOPIC_PREFIX, *(f"{side}.converter" for side, _ in CONVERTERS))
    readable = {key: value for key, value in config.items() if not has_placeholder(value)}
    return {
        info.name: info.errors
        for info in validated(plugin, readable, BUILT_IN).configs
        if info.errors and info.name.startswith(starts)
    }


def _checked(
    client: NodeClient,
    desired: Sequence[DesiredConnector],
    owner: str,
    output: str,
    *,
    prune: bool,
    is_remote: bool = False,
) -> ApplyPlan:
    """The plan, after every file was found right; else the command ends with status 2."""
    result = findings(client, desired, is_remote=is_remote)
    _print_warnings(result)
    if result.errors:
        if output in {"json", "yaml"}:
            emit(output, {"errors": result.errors}, names=(), as_table=lambda: None)
        _print_errors(result.errors)
        echo("nothing was changed", err=True)
        raise typer.Exit(ExitStatus.USAGE)
    return compare(client, desired, owner=owner, prune=prune)


def _confirm_deletions(plan: ApplyPlan, output: str, *, yes: bool) -> None:
    names = [action.name for action in plan.actions if action.kind == "prune"]
    if not names:
        return
    if not yes:
        _show(plan, output)
        echo(
            f"--prune deletes connectors that no file of this command has, and that were applied "
            f"without --owner from any folder: {', '.join(names)}. Apply each folder with an "
            f"--owner of its own, or name the common one: --owner {DEFAULT_OWNER}",
            err=True,
        )
    confirm(f"delete {len(names)} connector(s)?", yes=yes)


def _print_warnings(result: Findings) -> None:
    for sentence in result.warnings:
        echo(f"warning: {sentence}", err=True)


def _print_errors(errors: Sequence[str]) -> None:
    for sentence in errors:
        echo(sentence, err=True)
    echo(f"{len(errors)} error(s)", err=True)


def _show(plan: ApplyPlan, output: str) -> None:
    def as_table() -> None:
        lines(line for action in plan.actions for line in _lines(action))
        counts = Counter(action.kind for action in plan.actions)
        pending = ", ".join(f"{counts[kind]} to {kind}" for kind in ("create", "update", "prune"))
        echo(f"{pending}, {counts['unchanged']} unchanged")

    emit(
        output,
        {"actions": [action.to_json() for action in plan.actions]},
        names=[action.name for action in plan.pending],
        as_table=as_table,
    )


def _lines(action: Action) -> Iterator[tuple[str, str]]:
    mark, color = _MARKS.get(action.kind, (" ", "dim"))
    yield f"{mark} {action.name}", color
    if action.kind == "update":
        yield from change_lines(action.changes)


def change_lines(changes: Iterable[KeyChange]) -> Iterator[tuple[str, str]]:
    """Yield a styled line for each changed key; possible secrets are masked."""
    for change in changes:
        before, after = displayed(change.key, change.before), displayed(change.key, change.after)
        if change.before is None:
            yield f"    + {change.key}: {after}", "green"
        elif change.after is None:
            yield f"    - {change.key}: {before}", "red"
        else:
            hidden = " (changed)" if before == after else ""
            yield f"    ~ {change.key}: {before} -> {after}{hidden}", "yellow"


@contextlib.contextmanager
def _progress(label: str, total: int, output: str) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yields a function that sets the completed count."""
    console = Console(stderr=True)
    bar = rich_progress.Progress(
        rich_progress.TextColumn(label),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        console=console,
        disable=output != "table" or not console.is_terminal or not total,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.update(task, completed=count)
