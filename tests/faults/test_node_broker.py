"""A node whose broker is stopped or restarted."""

import threading
from collections.abc import Iterator

import httpx
import pytest

from connect.embedded.broker import Broker
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from tests.support.running_node import TIMEOUT_S, RunningNode

pytestmark = [pytest.mark.kafka, pytest.mark.faults]


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory, own_broker: Broker) -> Iterator[RunningNode]:
    """A node on that broker, not yet started."""
    node = RunningNode(tmp_path_factory.mktemp("node"), own_broker.bootstrap_servers)
    yield node
    node.close()


def test_a_node_reports_that_it_waits_for_its_broker(own_broker: Broker, node: RunningNode) -> None:
    """503 with a JSON body while starting; healthy once the broker runs."""
    own_broker.stop()
    node.launch()
    (starting,) = node.wait_until(lambda: (answer := node.health()) is not None and [answer])
    assert starting.status_code == 503
    assert starting.json()["status"] == "starting"
    assert node.call("GET", "/connectors").status_code == 503
    own_broker.start()
    node.wait_until(lambda: node.health().status_code == 200)
    assert node.call("GET", "/connectors").json() == []


def test_a_node_that_waits_for_its_broker_ends_on_sigterm(
    own_broker: Broker, node: RunningNode
) -> None:
    """It ends with status 0 within the grace period."""
    own_broker.stop()
    node.launch()
    node.wait_until(lambda: (answer := node.health()) is not None and [answer])
    assert node.end() == 0


def test_changes_and_connectors_survive_a_broker_restart(
    own_broker: Broker, node: RunningNode
) -> None:
    """A change sent while the broker is down is answered after its start; tasks keep running."""
    admin = KafkaAdmin(node.kafka)
    admin.ensure_topic("t", 1)
    node.start()
    node.put("before", "t")
    node.running("before", tasks=1)
    own_broker.stop()
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(node.put("during", "t")))
    asking.start()
    assert node.status("before") == ("RUNNING", ["RUNNING"])
    own_broker.start()
    asking.join(TIMEOUT_S)
    assert answers[0].status_code == 201
    node.running("during", tasks=1)
    assert len(node.commands("worker", "before")) == 1
    assert node.end() == 0
    node.start()
    node.running("before", tasks=1)
    node.running("during", tasks=1)
    admin.close()
