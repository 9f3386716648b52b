"""A child process without Spark or catalog: takes commands and sends prepared answers.

For tests of the node alone. In the folder ``STUB_DIR`` it appends every command to
``<process>.jsonl``; a file ``fail-<connector>-<task>`` (task ``c`` for the coordinator) makes that
unit fail once with the JSON in it (code, retriable, trace), and is removed then. While a file
``hold`` exists, a started unit stays STARTING. The stub reports the content of
``failed-tables.json`` as the coordinators' failed tables. ``decided.json`` is the answer to every
decision. ``events-<process>.json`` has events that follow the start of a unit, or of maintenance. A
rewind finds no commit. Maintenance works until it is ended, and ends with the command ``ended`` a
second later.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from connect.processes.ipc import VERSION, Channel

process = sys.argv[1]
folder = Path(os.environ["STUB_DIR"])
channel = Channel.inherited(int(os.environ["ICEFLOE_IPC_FD"]))
version = os.environ.get("STUB_VERSION", VERSION)
running: dict[tuple[str, int | None], tuple[int, int]] = {}
sequence = itertools.count(1)


def state(connector: str, task: int | None, name: str, **more: Any) -> None:
    """Report the state to the node."""
    generation, layout = running.get((connector, task), (0, 0))
    reported = {"code": None, "trace": None, "retriable": True, **more}
    channel.send(
        {
            "event": "state",
            "connector": connector,
            "task": task,
            "generation": generation,
            "sequence": next(sequence),
            "layout": layout,
            "state": name,
            "ended": name in {"FAILED", "STOPPED"},
            **reported,
        }
    )


def start(message: dict[str, Any]) -> None:
    """Run, or fail if a file says so."""
    connector, task = message["connector"], message.get("task")
    running[connector, task] = message["generation"], message["layout"]["layout"]
    state(connector, task, "STARTING")
    failure = folder / f"fail-{connector}-{'c' if task is None else task}"
    if failure.exists():
        reported = json.loads(failure.read_text())
        failure.unlink()
        trace = {"trace": f"Stub: {reported['code']}\n\nstack"}
        state(connector, task, "FAILED", **{**trace, **reported})
        return
    while (folder / "hold").exists():
        time.sleep(0.02)
    state(connector, task, "RUNNING")
    failed = folder / "failed-tables.json"
    if task is None and failed.exists():
        tables = json.loads(failed.read_text())
        channel.send({"event": "failed_tables", "connector": connector, "tables": tables})
    report(connector)


def report(connector: str) -> None:
    """Send the events of a file."""
    events = folder / f"events-{process}.json"
    for event in json.loads(events.read_text()) if events.exists() else []:
        channel.send({"connector": connector, **event})


def received(message: dict[str, Any]) -> None:
    """Write a command down."""
    own = {"pid": os.getpid(), "at_ns": time.time_ns()}
    commands.write(json.dumps({**message, **own}) + "\n")
    commands.flush()


with (folder / f"{process}.jsonl").open("a") as commands:
    for message in channel.receive():
        received(message)
        match message["op"]:
            case "configure":
                channel.send({"event": "ready", "pid": os.getpid(), "version": version})
            case "start":
                start(message)
            case "decide":
                answer = json.loads((folder / "decided.json").read_text())
                channel.send({"event": "answer", "request": message["request"], **answer})
            case "rewind":
                refusal = {"code": "no_such_commit", "error": "nothing was committed"}
                channel.send({"event": "answer", "request": message["request"], **refusal})
            case "stop":
                state(message["connector"], message.get("task"), "STOPPED")
            case "maintain":
                for job in message["jobs"]:
                    job_status = {"table": job["table"], "work": job["work"][0], "state": "RUNNING"}
                    event = {"event": "maintenance", **job_status}
                    channel.send({"connector": message["connector"], **event})
                report(message["connector"])
            case "shutdown":
                if process == "maintenance":
                    time.sleep(1)
                    received({"op": "ended"})
                break
