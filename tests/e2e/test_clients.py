"""Programs of others for Kafka Connect drive a node: its answers are what they expect."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from connect.gateways.public_trust import public_trust
from connect.processes.child_process import free_port
from tests.support.patient_client import PatientProxy
from tests.support.running_stack import RunningStack
from tests.support.stack import unique_name

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

ROOT = Path(__file__).parents[2]
CLIENTS = Path(os.environ.get("CLIENTS") or ROOT / ".venv-clients") / "bin"
PROGRAMS = ROOT / "tests" / "clients"
TIMEOUT_S = 300
TASKS = 2
# the program ``kc`` in processes that are forked after its imports; a line has arguments
FORKED_KC = """
import json, os, sys
from kafka_connect.cli import cli

for line in sys.stdin:
    output, printing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(printing, 1)
        try:
            cli(json.loads(line))
        finally:
            sys.stdout.flush()
    os.close(printing)
    with open(output) as printed:
        text = printed.read()
    _, status = os.waitpid(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), text]), flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def clients() -> None:
    """They have an environment of their own."""
    if not (CLIENTS / "kc").exists():
        pytest.fail("the clients are not installed: make clients")


def get(url: str) -> httpx.Response:
    """Send a GET request to a server of this machine."""
    return httpx.get(url, timeout=60, verify=public_trust())


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def url(running: RunningStack) -> Iterator[str]:
    """Address of the node for programs that fail when it has no leader for a moment."""
    with closing(PatientProxy(running.stack.rest_url)) as proxy:
        yield proxy.uri


@pytest.fixture
def config(running: RunningStack) -> dict[str, str]:
    """A connector to a table of its own."""
    table = f"clients.{unique_name('t').replace('-', '_')}"
    running.table(table)
    topic = running.topic("clients")
    more = {"tasks.max": str(TASKS)}
    return {**running.connector(topics=topic, iceberg__tables=table), **more}


@pytest.fixture
def kc(url: str) -> Iterator[Callable[..., Any]]:
    """The program ``kc``: its arguments in, what it prints out."""
    with subprocess.Popen(
        [CLIENTS / "python", "-c", FORKED_KC],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:

        def run(*arguments: str) -> Any:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(["--url", url, *arguments]) + "\n")
            server.stdin.flush()
            status, printed = json.loads(server.stdout.readline())
            assert status == 0, printed
            return json.loads(printed) if printed.strip() else None

        yield run
        server.kill()


def test_kafka_connect_py_works(
    running: RunningStack, kc: Callable[..., Any], config: dict[str, str]
) -> None:
    """From the command line: create, status, pause, restart, change, delete."""
    name = unique_name("kc")

    def wait_until(state: str) -> None:
        running.wait_until(lambda: _states(running, name) == {state}, lambda: f"{name} {state}")

    assert kc("info")["version"].startswith("4.3.")
    given = json.dumps({"name": name, "config": config})
    assert kc("create", "--config-data", given)["name"] == name
    running.wait_until(lambda: running.status(name)["tasks"], lambda: name)
    wait_until("RUNNING")
    running.produce(config["topics"], {"id": 1, "name": "a"}, {"id": 2, "name": "b"})
    assert len(running.rows(config["iceberg.tables"], 2, name)) == 2
    # the table has the rows before the node receives the round's report
    running.wait_until(
        lambda: running.api.get(f"/connectors/{name}/topics").json()[name]["topics"],
        lambda: "the topics that it reads",
    )
    assert kc("list-topics", name) == {name: {"topics": [config["topics"]]}}
    assert kc("list", "--expand", "status", "--state", "running", "--pattern", name)
    kc("pause", name)
    assert kc("status", name)["tasks"][0]["state"] == "PAUSED"
    kc("resume", name)
    wait_until("RUNNING")
    kc("restart", name, "--include-tasks")
    wait_until("RUNNING")
    kc("restart-task", name, str(TASKS - 1))
    # a restart is answered before the task is seen to restart
    running.wait_until(
        lambda: kc("task-status", name, str(TASKS - 1))["state"] == "RUNNING",
        lambda: f"{name}'s task",
    )
    assert len(kc("list-tasks", name)) == TASKS
    changed = {**config, "iceberg.control.commit.interval-ms": "1500"}
    assert kc("update", name, "--config-data", json.dumps(changed))["config"]["name"] == name
    assert kc("config", name) == {**changed, "name": name}
    assert config["connector.class"] in json.dumps(kc("list-plugins"))
    kc("reset-topics", name)
    kc("delete", name)
    assert name not in kc("list")


def _states(running: RunningStack, name: str) -> set[str]:
    status = running.status(name)
    return {status["connector"]["state"], *(task["state"] for task in status["tasks"])}


def test_kafka_connect_api_works(url: str, config: dict[str, str]) -> None:
    """The objects of the library follow a connector from create to delete."""
    name = unique_name("api")
    program = PROGRAMS / "kafka_connect_api_life.py"
    arguments = (url, name, json.dumps(config))
    seen = json.loads(_run(CLIENTS / "python", program, *arguments).splitlines()[-1])
    assert seen.pop("config") == {**config, "name": name}
    assert seen.pop("version").startswith("4.3.")
    assert seen.pop("cluster")
    assert seen.pop("tasks") == TASKS
    assert not seen.pop("existed")
    assert all(seen.values()), seen


def test_kpops_works(url: str, config: dict[str, str]) -> None:
    """Its strict models accept every answer, from a paused creation to the reset of offsets."""
    name, update = unique_name("kpops"), {"iceberg.control.commit.interval-ms": "1500"}
    arguments = (url, name, json.dumps(config), json.dumps(update))
    seen = json.loads(
        _run(CLIENTS / "python", PROGRAMS / "kpops_life.py", *arguments).splitlines()[-1]
    )
    assert seen["created"] == name
    assert seen["running_tasks"] == TASKS
    assert seen["config"] == {**config, **update, "name": name}
    assert seen["valid"] == []
    assert "tasks.max" in json.dumps(seen["wrong"])
    assert seen["deleted"]


def test_kafka_connect_healthcheck_works(running: RunningStack, config: dict[str, str]) -> None:
    """Healthy with running connectors; it names the connector that has failed."""
    well, ill = unique_name("well"), unique_name("ill")
    running.create(well, config)
    running.wait_until(lambda: running.status(well)["tasks"], lambda: well)
    with _healthcheck(running) as health:
        seen = running.wait_until(
            lambda: (r := get(health)).status_code == 200 and r,
            lambda: "health",
        )
        assert seen.json()["healthy"]
        missing = {**config, "iceberg.tables": "clients.not_there"}
        running.create(ill, missing)
        running.produce(config["topics"], {"id": 3, "name": "c"})
        running.trace(ill)
        answer = running.wait_until(
            lambda: (r := get(health)).status_code == 503 and r,
            lambda: "unhealthy",
        )
        assert {failure["connector"] for failure in answer.json()["failures"]} == {ill}
    running.delete(well, ill)


@contextmanager
def _healthcheck(running: RunningStack) -> Iterator[str]:
    port = free_port()
    worker_id = running.stack.rest_url.removeprefix("http://")
    process = subprocess.Popen(
        [
            *(CLIENTS / "kafka-connect-healthcheck", "--port", str(port)),
            *("--connect-url", running.stack.rest_url, "--connect-worker-id", worker_id),
            *("--failure-threshold-percentage", "0", "--log-level", "ERROR"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()
