"""Every directory of ``examples``, as a user runs it: its commands, and exactly its results.

The selected examples run at the same time on one stack. Each directory is a test of its own.
The default suite has ``FIRST``, ``make matrix`` the others.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.documented_commands import different_lines, run_step, steps
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.forked_commands import ForkedCommands
from tests.support.running_stack import RunningStack
from tests.support.secure_broker import CertificateFiles, SecureBroker

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples"
# test_debezium_examples.py has those with a database
NAMES = sorted(
    page.parent.name
    for page in EXAMPLES.glob("*/README.md")
    if not page.with_name("compose.yaml").exists()
)
# Debezium, JSON with schemas and upserts. Other tests have what only other examples have, such as
# Avro of a registry, Explode, or Sql with a join
FIRST = {"debezium-orders"}
CASES = [pytest.param(name, marks=() if name in FIRST else pytest.mark.matrix) for name in NAMES]
AT_ONCE = 4
REGISTRY = "127.0.0.1:8081"
BROKER = "127.0.0.1:9092"
SERVICE = "cell-1.streaming.eu-frankfurt-1.oci.oraclecloud.com:9092"
SERVICE_USER = "acme/icefloe/ocid1.streampool.oc1.eu-frankfurt-1.amaaaaaaexample"
SERVICE_TOKEN = "canary>45;c#d(e)"


@dataclass
class Gallery:
    """A copy of the examples, in which the addresses are those of this run.

    Attributes:
        folder: the copy.
        running: the stack.
        environ: of the commands.
        closing: ends what examples need in addition to the stack.
    """

    folder: Path
    running: RunningStack
    environ: dict[str, str]
    closing: ExitStack

    def replace(self, folder: Path, addresses: dict[str, str]) -> None:
        """Replace addresses in the files of a folder."""
        for file in folder.rglob("*"):
            if file.is_file():
                text = file.read_text("utf-8")
                for documented, address in addresses.items():
                    text = text.replace(documented, address)
                file.write_text(text, "utf-8")

    def run(self, name: str) -> None:
        """Run the commands of an example."""
        example = self.folder / name
        if (example / "node.properties").exists():
            self.log_in(example)
        for step in steps(example / "README.md"):
            run_step(step, example, self.environ, different_lines)
        created = set(self.running.api.get("/connectors").json())
        contents = [json.loads(file.read_text()) for file in example.glob("*.json")]
        self.running.delete(*created.intersection(each.get("name") for each in contents))

    def log_in(self, example: Path) -> None:
        """Start a broker that knows the documented login, and let the example trust it."""
        state = self.folder / "service"
        state.mkdir()
        keys = CertificateFiles(state / "keys")
        broker = SecureBroker(state / "broker", keys, users={SERVICE_USER: SERVICE_TOKEN})
        self.closing.enter_context(broker)
        file = example / "node.properties"
        trust = broker.client("PLAIN") | {"spark.master": "local[2]", "spark.driver.memory": "1g"}
        assert SERVICE in file.read_text("utf-8")
        assert SERVICE_USER in file.read_text("utf-8")
        with file.open("a", encoding="utf-8") as properties:
            properties.writelines(f"{key}={value}\n" for key, value in trust.items())


@pytest.fixture(scope="module")
def results(
    running: RunningStack,
    commands: ForkedCommands,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[dict[str, Future[None]]]:
    """The results of the selected examples, by name; they run at the same time."""
    selected = [
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.path == request.path
    ]
    folder = tmp_path_factory.mktemp("gallery") / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("icefloe-state"))
    (folder / "icefloe-state").symlink_to(running.stack.state_dir)
    environ = {
        **os.environ,
        "PATH": f"{commands.path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ICEFLOE_SERVER": running.stack.rest_url,
        "KAFKA_BROKERS": running.stack.bootstrap_servers,
        "OCI_AUTH_TOKEN": SERVICE_TOKEN,
        "CONNECT_SPARK_MASTER": "local[2]",
        "CONNECT_SPARK_DRIVER_MEMORY": "1g",
    }
    with ExitStack() as closing, SchemaRegistryServer() as registry:
        gallery = Gallery(folder, running, environ, closing)
        addresses = {
            REGISTRY: registry.url.removeprefix("http://"),
            BROKER: running.stack.bootstrap_servers,
        }
        for name in NAMES:
            gallery.replace(folder / name, addresses)
        producer = folder / "produce.py"
        producer.write_text(producer.read_text().replace(BROKER, addresses[BROKER]))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            selected.sort(key=starts_processes, reverse=True)  # the longest first
            yield {name: pool.submit(gallery.run, name) for name in selected}
            pool.shutdown(cancel_futures=True)


def starts_processes(name: str) -> bool:
    """Whether an example starts workers of its own, which takes longer than a connector."""
    page = (EXAMPLES / name / "README.md").read_text("utf-8")
    return re.search(r"^icefloe (ingest|standalone)", page, re.MULTILINE) is not None


@pytest.mark.parametrize("name", CASES)
def test_an_example_prints_what_its_readme_shows(
    name: str, results: dict[str, Future[None]]
) -> None:
    """Every command succeeds, and a query prints exactly the documented rows."""
    results[name].result()
