"""Regular expressions of a tenant that would freeze a node."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.support.attacked_stack import BOB, AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
GENEROUS_S = 10.0  # of the node's processor time: what else the machine does does not count
SLOW = {
    "ambiguous": "((a|a|b-s|o|u|r|c|e|[a-z-])+)+[0-9]x",
    "look-ahead": r"(?!q)(?:(?:[a-z0-9_-]{1,1000}){1,1000}){1,1000}!",
    "back-reference": r"([a-z0-9_-]+)+\1\1!",
    "large": r"\p{L}" * 20_000,
    "nested": "(" * 50_000,
}
TOPICS = 40


def while_others_are_served(attacked: AttackedStack, act: Callable[[], httpx.Response]) -> int:
    """The attack's status; meanwhile health and another tenant get their answers."""
    with ThreadPoolExecutor(1) as pool:
        started_s = attacked.node_cpu_s()
        attack = pool.submit(act)
        while True:
            asked_s = attacked.node_cpu_s()
            assert attacked.anonymous.call("GET", "/health").status_code == 200
            assert attacked.bob.call("GET", f"/connectors/{BOB}/status").status_code == 200
            assert attacked.node_cpu_s() - asked_s < GENEROUS_S
            if attack.done():
                break
            time.sleep(0.05)
        assert attacked.node_cpu_s() - started_s < 2 * GENEROUS_S
        return attack.result().status_code


@pytest.mark.parametrize("name", SLOW)
def test_validating_a_slow_topics_regex_delays_no_other_caller(
    attacked: AttackedStack, name: str
) -> None:
    """It is answered, over all topics of the cluster."""
    for number in range(TOPICS if name == "ambiguous" else 0):
        attacked.topic(f"alice-{'a' * 60}-{number}")
    config = attacked.connector(iceberg__tables="alice.t", topics__regex=SLOW[name])
    config |= {
        "name": "alice-regex",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "a" * 200,
    }
    assert while_others_are_served(attacked, lambda: attacked.alice.validate(config)) == 200


@pytest.mark.parametrize("name", ["ambiguous", "look-ahead"])
def test_a_slow_regex_of_a_running_connector_delays_no_other(
    attacked: AttackedStack, name: str
) -> None:
    """The herder matches it repeatedly; connectors of other tenants continue."""
    connector = f"alice-{name}"
    config = attacked.connector(iceberg__tables="alice.t", topics__regex=SLOW[name])
    assert while_others_are_served(attacked, lambda: attacked.alice.create(connector, config)) in {
        201,
        400,
    }
    topic = attacked.topic("bob-flow")
    flow = attacked.connector(topics=topic, iceberg__tables="bob.flow")
    flow |= {"iceberg.tables.auto-create-enabled": "true"}
    assert attacked.bob.create(f"bob-meanwhile-{name}", flow).status_code == 201
    attacked.wait_until(
        lambda: attacked.status(f"bob-meanwhile-{name}")["connector"]["state"] == "RUNNING",
        lambda: "bob's connector",
    )
    assert attacked.bob.call("DELETE", f"/connectors/bob-meanwhile-{name}").status_code == 204
    attacked.alice.call("DELETE", f"/connectors/{connector}")


@pytest.mark.parametrize("name", ["look-ahead", "large"])
def test_slow_regexes_of_transformations_are_checked_in_time(
    attacked: AttackedStack, name: str
) -> None:
    """``RegexRouter`` and ``TopicNameMatches``."""
    config = attacked.connector(topics="alice-none", iceberg__tables="alice.t")
    config |= {
        "name": "alice-steps",
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": SLOW[name],
        "transforms.r.replacement": "x",
        "transforms.r.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        "predicates.p.pattern": SLOW[name],
        "iceberg.table.alice.t.route-regex": SLOW[name],
    }
    assert while_others_are_served(attacked, lambda: attacked.alice.validate(config)) == 200
