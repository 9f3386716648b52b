"""A MariaDB server in a child process, with the binary log that Debezium reads."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connect.processes.child_process import ChildProcess, free_port

USER = "debezium"
PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb")
_START_MS, _STOP_MS = 120_000, 30_000
_FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"


class MariaDb:
    """One server; skips the test where its programs are not installed.

    Args:
        folder: of its files.
    """

    def __init__(self, folder: Path) -> None:
        programs = [shutil.which(program, path=_FOLDERS) for program in PROGRAMS]
        if None in programs:
            pytest.skip("MariaDB is not installed: apt-get install mariadb-server-core")
        self._server, self._install, self._client = map(str, programs)
        self._folder = folder
        self._socket = folder / "server.sock"
        self._child: ChildProcess | None = None
        self.port = free_port()

    def start(self) -> None:
        """Start it, and create a user who may read the binary log."""
        data, user = self._folder / "data", getpass.getuser()
        install = [self._install, "--no-defaults", f"--datadir={data}", f"--user={user}"]
        method = "--auth-root-authentication-method=normal"
        subprocess.run([*install, method], check=True, capture_output=True, timeout=120)
        command: list[str | Path] = [
            *(self._server, "--no-defaults", f"--datadir={data}", f"--user={user}"),
            *(f"--socket={self._socket}", f"--port={self.port}", "--bind-address=127.0.0.1"),
            *("--log-bin", "--binlog-format=ROW", "--binlog-row-image=FULL", "--server-id=7"),
            *("--default-time-zone=+00:00", "--character-set-server=utf8mb4"),
        ]
        self._child = ChildProcess("MariaDB", command, log_file=self._folder / "mariadb.log")
        self._child.wait_until(self._answers, timeout_ms=_START_MS)
        for host in ("localhost", "127.0.0.1"):  # the server may resolve the address
            self.execute(
                f"create user {USER}@'{host}' identified by '{USER}'",
                f"grant all on *.* to {USER}@'{host}'",
            )

    def stop(self) -> None:
        """Stop it."""
        if self._child is not None:
            self._child.stop(timeout_ms=_STOP_MS)

    def execute(self, *statements: str) -> str:
        """Execute statements; return their output."""
        command = [self._client, "--no-defaults", f"--socket={self._socket}", "--user=root"]
        done = subprocess.run(
            [
                *command,
                "--default-character-set=utf8mb4",
                "--batch",
                "--raw",
                "--skip-column-names",
            ],
            input=";\n".join(statements),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self, query: str) -> list[list[Any]]:
        """Return the rows of a query with one column, a JSON array."""
        lines = self.execute(query).splitlines()
        return [json.loads(line, parse_float=Decimal) for line in lines]

    def _answers(self) -> bool:
        try:
            self.execute("select 1")
        except AssertionError:
            return False
        return True
