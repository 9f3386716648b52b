"""Transformations in the pipeline: what is dropped, refused, and read for them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from connect.errors import RecordError
from connect.model.layout import TopicPartition
from connect.records.dead_letter import message
from tests.differential.support import config, plan, run_batches, source
from tests.support.pipeline_lines import SCHEMA, TP, ids, lines


def transforms(**keys: str) -> dict[str, str]:
    """Keys below transforms and predicates, ``__`` for dots, with Kafka's package for types."""
    found = {name.replace("__", "."): value for name, value in keys.items()}
    package = "org.apache.kafka.connect.transforms."
    return {k: package + v if k.endswith(".type") else v for k, v in found.items()}


def test_filtered_records_are_dropped(tmp_path: Path) -> None:
    """They count as read and dropped; the other records are written."""
    keys = transforms(
        transforms="r,f",
        transforms__r__type="RegexRouter",
        transforms__r__regex="u",
        transforms__r__replacement="t",
        transforms__f__type="Filter",
        transforms__f__predicate="other",
        transforms__f__negate="true",
        predicates="other",
        predicates__other__type="predicates.TopicNameMatches",
        predicates__other__pattern="t",
    )
    batches = [source(lines("a", "b")), source(lines("c"), topic="x"), source([None])]
    result = run_batches(config(**keys), [plan(tmp_path, SCHEMA)], batches)
    assert ids(result, "db.t1") == [1, 2]
    assert (result.progress[TP].written, result.progress[TP].dropped) == (2, 1)
    other = result.progress[TopicPartition("x", 0)]
    assert (other.read, other.dropped, other.written) == (1, 1, 0)


def test_headers_are_read_for_transformations(tmp_path: Path) -> None:
    """A predicate about headers sees them."""
    keys = transforms(
        transforms="f",
        transforms__f__type="Filter",
        transforms__f__predicate="h",
        predicates="h",
        predicates__h__type="predicates.HasHeaderKey",
        predicates__h__name="kind",
    )
    batch = source(lines("a", "b"))
    headers = pa.array([[{"key": "kind", "value": b"x"}], None], batch.schema.field("headers").type)
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    result = run_batches(config(**keys), [plan(tmp_path, SCHEMA)], [batch])
    assert ids(result, "db.t1") == [2]


def test_a_record_that_a_transformation_refuses_is_a_dead_letter(tmp_path: Path) -> None:
    """It is unchanged, with the stage and the class of the transformation."""
    keys = transforms(
        transforms="c", transforms__c__type="Cast$Value", transforms__c__spec="id:int8"
    )
    dead = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"}
    context = {"errors.deadletterqueue.context.headers.enable": "true"}
    connector = config(**keys, **dead, **context)
    batch = source([b'{"id":"7"}', b'{"id":"x"}'])
    result = run_batches(connector, [plan(tmp_path, SCHEMA)], [batch])
    assert ids(result, "db.t1") == [7]
    (letter,) = result.dead_letters
    assert (letter.error.stage, letter.record.value) == ("TRANSFORMATION", b'{"id":"x"}')
    sent = message(letter.record, letter.error, connector, task_id=0)
    assert sent is not None
    headers = dict(sent.headers)
    assert headers["__connect.errors.stage"] == b"TRANSFORMATION"
    assert (headers["__connect.errors.class.name"] or b"").endswith(b"Cast$Value")
    with pytest.raises(RecordError):
        raise run_batches(config(**keys), [plan(tmp_path, SCHEMA)], [batch]).error or KeyError


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_field_that_takes_the_name_of_another(compression: str, tmp_path: Path) -> None:
    """Its order in the record decides, also in a compressed value; both paths agree."""
    keys = transforms(
        transforms="r", transforms__r__type="ReplaceField$Value", transforms__r__renames="old:id"
    )
    values = [b'{"old":1,"id":2}', b'{"id":3,"old":4}', b'{"old":5}', b'{"id":6}', b"{"]
    if compression == "gzip":
        values = [gzip.compress(value) for value in values]
    options = {"value.converter.payload.compression": compression, "errors.tolerance": "all"}
    connector = config(**keys, **options)
    found = [
        ids(
            run_batches(connector, [plan(tmp_path, SCHEMA)], [source(values)], reference_only=only),
            "db.t1",
        )
        for only in (False, True)
    ]
    assert [sorted(each) for each in found] == [[2, 4, 5, 6]] * 2


@pytest.mark.parametrize(
    "keys",
    [
        {"iceberg.tables.topic-to-table-map": "t:db.t1,u:db.t2"},
        {"iceberg.tables.name-template": "db.${topic}"},
        {"iceberg.tables.name-template": "db.${kind}_${topic}"},
        {"iceberg.tables.name-template": "${kind}", "iceberg.tables.default-namespace": "db"},
    ],
)
def test_both_paths_route_by_topic_template_and_field(keys: dict[str, str], tmp_path: Path) -> None:
    """They find the same tables, and the same records without a table."""
    connector = config(**{"iceberg.tables": None, "errors.tolerance": "all", **keys})
    names = ["db.t1", "db.t2", "db.t", "db.u", "db.a_t", "db.a_u", "db.a"]
    plans = [plan(tmp_path, SCHEMA, name=name) for name in names]
    batches = [source(lines("a", "b", None, "A", 5)), source(lines("a"), topic="u")]
    absent = frozenset({"db.b", "db.b_t", "db.5", "db.5_t"})
    found = [
        run_batches(connector, plans, batches, absent=absent, reference_only=only)
        for only in (False, True)
    ]
    rows = [{name: sorted(ids(result, name)) for name in names} for result in found]
    assert rows[0] == rows[1]
    assert any(rows[0].values())
    assert found[0].progress == found[1].progress
