"""A commit process without a catalog, for tests of the coordinator's side.

It answers each commit with the number of the commit as snapshot id. Its argument is a mode:
``answer`` does only that, others misbehave at tables whose name starts with ``bad``, or at the
start or the end.
"""

import os
import pickle
import sys
import threading

from connect.processes.ipc import Channel

mode = sys.argv[1]
channel = Channel.inherited(int(os.environ["ICEFLOE_IPC_FD"]))
COMMITTED = {
    "event": "outcome",
    "kind": "committed",
    "files": 1,
    "records": 10,
    "duration_ms": 5,
    "size_bytes": 1000,
}


def sign_of_life() -> None:
    """Send metrics until the end of the pipe."""
    while channel.send({"event": "metrics", "samples": []}):
        threading.Event().wait(0.02)


def misbehave(number: int) -> None:
    """Do what the mode says."""
    answer = {**COMMITTED, "number": number, "snapshot_id": number}
    sent = {
        "unknown event": [{"event": "committed"}],
        "unknown number": [{**answer, "number": number + 1000}],
        "no kind": [{"event": "outcome", "number": number}],
        "text for a count": [{**answer, "files": "1"}],
        "twice": [answer, answer],
    }
    written = {
        "no json": b"Traceback (most recent call last)\n",
        "no object": b"[1]\n",
        "half a line": b'{"event":"outcome","number":',
    }
    for message in sent.get(mode, ()):
        channel.send(message)
    channel._socket.sendall(written.get(mode, b""))
    if mode in {"dies", "half a line"}:
        os._exit(3)


if mode == "does not read":
    threading.Event().wait()

for message in channel.receive():
    match message["op"]:
        case "open":
            channel.payload_of(message)
            if mode == "not opened":
                channel.send({"event": "not_opened", "code": "library_missing", "message": "none"})
                sys.exit(1)
            channel.send({"event": "opened"})
            if mode != "silent":
                threading.Thread(target=sign_of_life, daemon=True).start()
        case "commit":
            commit = pickle.loads(channel.payload_of(message))
            if mode != "answer" and commit.table.name.startswith("bad"):
                misbehave(message["number"])
            else:
                pid = {"pid": os.getpid(), "table": str(commit.table)}
                channel.send({"event": "report", "kind": "taken", "where": pid})
                own = {"number": message["number"], "snapshot_id": message["number"]}
                channel.send({**COMMITTED, **own})
        case "finish":
            if mode == "does not end":
                threading.Event().wait()
            break
