"""Processes of Spark tasks have the node's access policy: a tenant names what they call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connect.gateways.access_policy import AccessPolicy, install
from tests.differential.support import config, plan, source
from tests.support.fakes.schema_registry import SchemaRegistryServer
from tests.support.pipeline_lines import SCHEMA
from tests.support.spark_marks import SPARK_MARKS
from worker.batch.descriptors import BatchResult, collect
from worker.batch.pipeline_spec import PipelineSpec
from worker.pipeline.pipeline import run
from worker.spark.session import Session

pytestmark = [*SPARK_MARKS]
AVRO = "io.confluent.connect.avro.AvroConverter"
OF_SCHEMA_1 = b"\x00\x00\x00\x00\x01\x02"


@pytest.fixture
def registry() -> Iterator[SchemaRegistryServer]:
    """A registry at a loopback address, without schemas."""
    with SchemaRegistryServer() as server:
        yield server


def result_of(session: Session, spec: PipelineSpec, policy: AccessPolicy) -> BatchResult:
    """Process a record in a Spark task of a node with a policy."""
    install(policy)
    try:
        function = run(spec)
    finally:
        install(AccessPolicy())
    records: Any = pa.Table.from_batches([source([OF_SCHEMA_1]).select(list(spec.columns()))])
    rows = session.spark.createDataFrame(records).mapInArrow(function, spec.descriptor_ddl)
    return collect(rows.toArrow())


def test_a_registry_at_an_internal_address_is_not_called(
    spark_session: Session, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    """Its name may have had another address when the configuration was checked."""
    keys = {"value.converter": AVRO, "value.converter.schema.registry.url": registry.url}
    spec = PipelineSpec(config(**keys), (plan(tmp_path, SCHEMA),))
    guarded = result_of(spark_session, spec, AccessPolicy(is_guarded=True))
    assert guarded.error is not None
    assert guarded.error.code == "host_refused"
    assert not registry.requests
    open_node = result_of(spark_session, spec, AccessPolicy())
    assert open_node.error is not None
    assert open_node.error.code == "unknown_schema"
    assert registry.requests


def test_texts_of_a_registry_stay_in_the_process(
    spark_session: Session, registry: SchemaRegistryServer, tmp_path: Path
) -> None:
    """An allowed registry is named by a tenant as well; dead letters go to the tenant."""
    keys = {"value.converter": AVRO, "value.converter.schema.registry.url": registry.url}
    spec = PipelineSpec(config(**keys), (plan(tmp_path, SCHEMA),))
    policy = AccessPolicy(is_guarded=True, names=frozenset({"127.0.0.1"}))
    result = result_of(spark_session, spec, policy)
    assert result.error is not None
    assert "40403" in str(result.error)
    assert "not found" not in str(result.error).lower()
