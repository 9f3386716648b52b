"""Node processes forked from one that has loaded the node already, which takes 2 s of a core.

``python -m tests.support.node_starter`` is that process. It takes a JSON object a line and answers
each with one: ``{"start": SCRIPT, "arguments", "folder", "environ", "log"}`` with a pid, ``{"poll":
PID}`` with an exit status or null. When its input ends it kills what still runs.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class NodeProcess:
    """A node that was forked, with the verbs of ``subprocess.Popen``.

    Args:
        starter: whose child it is.
        pid: its process id.
    """

    def __init__(self, starter: NodeStarter, pid: int) -> None:
        self._starter = starter
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Exit status, negative signal number, or None while it runs."""
        if self.returncode is None:
            self.returncode = self._starter.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout_s: float = 60) -> int:
        """Wait for its end; return the exit status."""
        deadline_s = time.monotonic() + timeout_s
        while (status := self.poll()) is None:
            if time.monotonic() > deadline_s:
                raise subprocess.TimeoutExpired("node", timeout_s)
            time.sleep(0.02)
        return status

    def terminate(self) -> None:
        """SIGTERM."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class NodeStarter:
    """A process that forks nodes; started on first use, and ended with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def start(
        self, script: str, arguments: Sequence[str], folder: Path, environ: dict[str, str]
    ) -> NodeProcess:
        """Fork a node; its output is appended to ``node.log`` in its folder.

        Args:
            script: ``stub_node`` or ``recorded_node``.
            arguments: of the script.
            folder: its working folder.
            environ: its whole environment.
        """
        more = {"folder": str(folder), "environ": environ, "log": str(folder / "node.log")}
        return NodeProcess(self, self.ask({"start": script, "arguments": [*arguments], **more}))

    def ask(self, question: dict[str, Any]) -> Any:
        """Send a request line; return the answer line."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.node_starter"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self.close)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it and every node that still runs."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


STARTER = NodeStarter()


def serve() -> None:
    """Serve requests until the input ends."""
    from tests.support import recorded_node, stub_node

    mains = {"stub_node": stub_node.main, "recorded_node": recorded_node.main}
    running: set[int] = set()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        answer: int | None = None
        if "poll" in request:
            ended, status = os.waitpid(request["poll"], os.WNOHANG)
            running.discard(ended)
            answer = os.waitstatus_to_exitcode(status) if ended else None
        elif answer := os.fork():
            running.add(answer)
        else:
            _run(mains[request["start"]], request)
        print(json.dumps(answer), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _run(main: Any, request: dict[str, Any]) -> None:
    """Run the script in this process; never return."""
    try:
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environ"])
        sys.argv = [request["start"], *request["arguments"]]
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for ours, standard in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(ours, standard)
        os.close(nothing)
        os.close(log)
        main()
    except BaseException:  # the trace goes to the node's log
        traceback.print_exc()
    finally:
        os._exit(1)


if __name__ == "__main__":
    serve()
