"""A tenant sends configurations that are large, deep or repetitive."""

from __future__ import annotations

import pytest

from tests.support.attacked_stack import AttackedStack

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
ANSWER_BYTES_MAX = 5_000_000
ANSWER_S_MAX = 10  # of the node's processor time; what this replaces took minutes, or never ended


def test_no_configuration_delays_the_node(attacked: AttackedStack) -> None:
    """Each answer is quick and of bounded size, and a health check is answered meanwhile."""
    good = attacked.connector(topics=attacked.topic("alice-source"), iceberg__tables="alice.t")
    jmespath = {"transforms": "j", "transforms.j.type": "icefloe.transforms.Jmespath$Value"}
    changes = [
        {"iceberg.control.topic": "${" * 30_000},
        {"iceberg.control.topic": "${" * 100_000},
        {"iceberg.catalog.token": "${env:X" * 30_000},
        {"iceberg.catalog.uri": "a." * 100_000},
        {"iceberg.tables.default-partition-by": "a," * 100_000},
        {"iceberg.tables.default-id-columns": "," * 200_000},
        {"transforms": ",".join(f"a{n}" for n in range(40_000))},
        {"predicates": ",".join(f"a{n}" for n in range(40_000))},
        {**jmespath, "transforms.j.where": "[" * 100_000},
        {**jmespath, "transforms.j.where": "[" * 9_000},
        {f"iceberg.table.t{n}.id-columns": "a" for n in range(10_000)},
        {f"consumer.override.k{n}": "a" for n in range(4_000)},
    ]
    for change in changes:
        config = {**good, **change, "name": "alice-large"}
        start_s = attacked.node_cpu_s()
        answer = attacked.alice.validate(config, **{"icefloe.remote": "false"})
        assert attacked.node_cpu_s() - start_s < ANSWER_S_MAX, next(iter(change))
        assert answer.status_code in {200, 400}
        assert len(answer.content) < ANSWER_BYTES_MAX
        assert attacked.alice.create("alice-large", config).status_code in {201, 400}
        attacked.alice.call("DELETE", "/connectors/alice-large")
