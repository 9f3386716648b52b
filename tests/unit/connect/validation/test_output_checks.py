"""Keys of outputs, alone and with the operator's grants."""

from __future__ import annotations

import pytest

from connect.config.invalid_config import InvalidConfigError
from connect.config.location_policy import OUTPUT_TOPICS_PREFIX
from connect.config.output_config import OutputConfig
from connect.config.output_topics_policy import OutputTopicsPolicy
from connect.validation.output_checks import OUTPUTS_MAX
from connect.validation.parse import parse
from connect.validation.providers import Providers, resolve
from tests.support.connector_json import changed, errors

OUT = "icefloe.output.alerts."
ALERTS = {"icefloe.outputs": "alerts", f"{OUT}topic": "alerts"}


def test_an_output_is_parsed() -> None:
    """With its defaults, and with every key; tables get the namespace."""
    (plain,) = parse(changed(ALERTS)).outputs
    assert plain == OutputConfig("alerts", "alerts")
    settings = {
        f"{OUT}where": "amount > `1`",
        f"{OUT}key": "customer.id",
        f"{OUT}columns": "id, amount",
        f"{OUT}tables": "orders",
        f"{OUT}topic.partitions": "3",
        f"{OUT}topic.replication.factor": "2",
        "iceberg.tables.default-namespace": "shop",
    }
    (whole,) = parse(changed({**ALERTS, **settings})).outputs
    assert whole == OutputConfig(
        "alerts",
        "alerts",
        "amount > `1`",
        ("customer", "id"),
        ("id", "amount"),
        ("shop.orders",),
        3,
        2,
    )
    assert parse(changed({})).outputs == ()


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"icefloe.outputs": "alerts"}, f"{OUT}topic", "Missing required configuration"),
        ({f"{OUT}topic": "a"}, f"{OUT}topic", "belongs to no output; add alerts to"),
        ({**ALERTS, f"{OUT}topic": "a b"}, f"{OUT}topic", "1 to 249 letters"),
        ({**ALERTS, f"{OUT}topic": "${env:X}"}, f"{OUT}topic", "cannot contain a placeholder"),
        ({**ALERTS, f"{OUT}where": "a >"}, f"{OUT}where", "invalid JMESPath"),
        ({**ALERTS, f"{OUT}where": "${env:X}"}, f"{OUT}where", "cannot contain a placeholder"),
        ({**ALERTS, f"{OUT}key": "a..b"}, f"{OUT}key", "a name of the path is empty"),
        ({**ALERTS, f"{OUT}columns": "a,,b"}, f"{OUT}columns", "a name is empty"),
        ({**ALERTS, f"{OUT}topic.partitions": "0"}, f"{OUT}topic.partitions", "at least 1"),
        ({**ALERTS, f"{OUT}topic.partitions": "x"}, f"{OUT}topic.partitions", "Not a number"),
        (
            {**ALERTS, f"{OUT}topic.replication.factor": "0"},
            f"{OUT}topic.replication.factor",
            "at least 1, or -1",
        ),
        ({**ALERTS, f"{OUT}column": "a"}, f"{OUT}column", "Did you mean columns?"),
        ({**ALERTS, "icefloe.outputs": "alerts,alerts"}, "icefloe.outputs", "named twice"),
        ({**ALERTS, "icefloe.outputs": "alerts,a.b"}, "icefloe.outputs", "1 to 64 letters"),
        (
            {"icefloe.outputs": ",".join(map(str, range(OUTPUTS_MAX + 1)))},
            "icefloe.outputs",
            f"at most {OUTPUTS_MAX}",
        ),
    ],
)
def test_wrong_keys_are_refused(change: dict[str, str], key: str, message: str) -> None:
    """In validation, and when a stored configuration is parsed."""
    found = errors(change)
    assert list(found) == [key]
    assert message in found[key][0]
    with pytest.raises(InvalidConfigError) as e:
        parse(changed(change))
    assert list(e.value.errors) == [key]


@pytest.mark.parametrize(
    ("properties", "allowed"),
    [
        ({}, True),
        ({"icefloe.rest.users.file": "/users"}, False),
        ({"icefloe.rest.users.file": "/users", f"{OUTPUT_TOPICS_PREFIX}orders": "a,al*"}, True),
        ({f"{OUTPUT_TOPICS_PREFIX}ord*": "other"}, False),
        ({f"{OUTPUT_TOPICS_PREFIX}default": ""}, False),
        ({f"{OUTPUT_TOPICS_PREFIX}refunds": ""}, True),
    ],
)
def test_the_operator_grants_topics(properties: dict[str, str], allowed: bool) -> None:
    """By the connector's name, a pattern or the default; with users none without a grant."""
    policy = OutputTopicsPolicy.of("orders", properties)
    assert (policy.refusal("alerts") is None) is allowed
    node = {"icefloe.hosts.allowed": "127.0.0.1", **properties}
    if allowed:
        config = parse(changed(ALERTS), node=node)
        assert config.outputs
        assert resolve(config, Providers(node, {}), node=node).outputs == config.outputs
        return
    with pytest.raises(InvalidConfigError) as e:
        parse(changed(ALERTS), node=node)
    assert "is not among the topics" in e.value.errors[f"{OUT}topic"][0]
