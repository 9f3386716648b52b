"""Transformations as operations on columns.

Rules of this package:
- A step returns exactly the values of the record path's transformation, or marks the row as
  ambiguous. If a transformation has no step, all records of the chain go one by one.
- Steps never receive tombstones. In objects without schema the columns do not separate null from
  missing fields. So a step exists only where the record path treats them alike, too. Where a field
  of a name would decide, rows whose text holds that name are ambiguous.
- In records with a schema each of its fields is a column, and there are no other fields.
- An ambiguous row stays ambiguous if a later step drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from connect.config.connector import ConnectorConfig
from connect.records.transforms import transform_classes
from connect.records.transforms.column_function import ColumnApply
from connect.records.transforms.transform import typed_options
from connect.records.transforms.transform_chain import ChainedTransform, link_of
from worker.convert.table_columns import nulls
from worker.decode.json_types import extra_rows
from worker.decode.scanned_json import ScannedJson
from worker.transforms.cast import cast
from worker.transforms.change_events import debezium, dms
from worker.transforms.copy_value import CopyFieldStep
from worker.transforms.custom_transforms import OwnColumns
from worker.transforms.explode import explode
from worker.transforms.extract_field import Extract, ExtractKey
from worker.transforms.extract_new_record_state import Tombstones, record_state
from worker.transforms.filter import Filter
from worker.transforms.flatten import flatten
from worker.transforms.header_from import NoColumnStep, ToHeaders
from worker.transforms.hoist_field import Hoist
from worker.transforms.insert_field import insert_field
from worker.transforms.jmespath_transform import jmespath_fields
from worker.transforms.kafka_metadata_transform import kafka_metadata
from worker.transforms.mask_field import mask
from worker.transforms.message_keys import MessageKeyStep
from worker.transforms.parse_json import ParseJson
from worker.transforms.parse_timestamp import parse_timestamp
from worker.transforms.predicates import Conditional, HeaderTest
from worker.transforms.regex_router import TopicSteps
from worker.transforms.replace_field import Replace
from worker.transforms.rows import ChainPlan, ColumnStep, Fields, Mask, Rows
from worker.transforms.set_schema_metadata import Metadata
from worker.transforms.timestamp_converter import timestamp_converter
from worker.transforms.timestamp_router import timestamp_topics
from worker.transforms.value_to_key import ToKey

_STEPS: Final[Mapping[str, Callable[[Mapping[str, Any]], ColumnStep | None]]] = {
    "Cast": cast,
    "CopyValue": CopyFieldStep,
    "DebeziumTransform": debezium,
    "DmsTransform": dms,
    "DropHeaders": lambda _: NoColumnStep(),
    "Explode": explode,
    "ExtractField": Extract,
    "Flatten": flatten,
    "HeaderFrom": ToHeaders,
    "HoistField": Hoist,
    "InsertField": insert_field,
    "InsertHeader": lambda _: NoColumnStep(),
    "Jmespath": jmespath_fields,
    "KafkaMetadataTransform": kafka_metadata,
    "MaskField": mask,
    "ParseJson": ParseJson,
    "ParseTimestamp": parse_timestamp,
    "ReplaceField": Replace,
    "SetSchemaMetadata": lambda _: Metadata(),
    "TimestampConverter": timestamp_converter,
    "ValueToKey": ToKey,
}
_OF_LINKS: Final[
    Mapping[str, Callable[[ChainedTransform, Mapping[str, Any]], ColumnStep | None]]
] = {
    "Filter": lambda link, _: Filter(link.applies),
    "RegexRouter": lambda link, _: TopicSteps(link),
    "TimestampRouter": timestamp_topics,
}
_STATE: Final = "ExtractNewRecordState"
_OF_HEADERS: Final = frozenset({"DropHeaders", "HeaderFrom", "InsertHeader", _STATE})
COLUMN_STEPS: Final = frozenset({*_STEPS, *_OF_LINKS, _STATE})


def steps_for(config: ConnectorConfig) -> tuple[ColumnStep, ...] | None:
    """Return a connector's transformations as steps; None when one of them has no step."""
    steps: list[ColumnStep] = []
    has_own_headers = True  # those that the record came with
    for each in config.transforms:
        link = link_of(each)
        if each.predicate is not None and each.predicate.class_name.endswith("HasHeaderKey"):
            step = _header_step(link, each.options, each.predicate.options["name"])
            if step is None or not has_own_headers:
                return None
            steps.append(step)
            continue
        if link.declared.name == _STATE:
            is_last = each is config.transforms[-1]
            is_first = keep_schemas(tuple(steps))
            step = _state(link, each.options, config, is_last=is_last) if is_first else None
        else:
            step = _step(link, each.options)
        if step is None:
            return None
        has_own_headers &= link.declared.name not in _OF_HEADERS
        if link.side == "key":
            step = MessageKeyStep(step, link)
        if link.applies is not None and not isinstance(step, Filter):
            step = Conditional(step, link.applies)
        steps.append(step)
    return tuple(steps)


def _header_step(
    link: ChainedTransform, options: Mapping[str, str], name: str
) -> ColumnStep | None:
    """Return a step for records with a header, or without it."""
    assert link.applies is not None
    test = HeaderTest(name, link.applies)
    if link.declared.name == "Filter":
        return Filter(test)
    is_plain = link.side == "value" and link.declared.name not in {*_OF_LINKS, *_OF_HEADERS}
    step = _step(link, options) if is_plain else None
    return None if step is None else Conditional(step, test)


def keep_schemas(steps: tuple[ColumnStep, ...]) -> bool:
    """Return whether values leave the steps with the schema that they had."""
    return all(
        isinstance(step, NoColumnStep | Filter | TopicSteps | MessageKeyStep | ToKey)
        for step in steps
    )


def take_whole(steps: tuple[ColumnStep, ...]) -> bool:
    """Return whether a step puts values without fields into a field before a step reads them."""
    for step in steps:
        if not isinstance(step, NoColumnStep | Filter | TopicSteps | MessageKeyStep):
            return isinstance(step, Hoist)
    return False


def _step(link: ChainedTransform, options: Mapping[str, str]) -> ColumnStep | None:
    declared = link.declared
    if isinstance(link.apply, ColumnApply):
        return OwnColumns(link.apply)
    if transform_classes.find(declared.class_names[-1]) is None:
        return None  # a user's transformation may have any name
    of_link, make = _OF_LINKS.get(declared.name), _STEPS.get(declared.name)
    if of_link is None and make is None:
        return None
    typed = typed_options(declared.keys, options, families=declared.families)
    if declared.name == "ExtractField" and link.side == "key":
        return ExtractKey(typed)
    if of_link is not None:
        return of_link(link, typed)
    return None if make is None else make(typed)


def _state(
    link: ChainedTransform, options: Mapping[str, str], config: ConnectorConfig, *, is_last: bool
) -> ColumnStep | None:
    typed = typed_options(link.declared.keys, options)
    tombstones: Tombstones = "rows" if is_last else "ambiguous"
    return record_state(typed, tombstones if config.is_row_level else "dropped")


def planned(
    steps: tuple[ColumnStep, ...], fields: Fields, *, evolves: bool = False, is_text: bool = True
) -> ChainPlan | None:
    """Return what must be decoded so that the fields leave the steps.

    Args:
        steps: the chain.
        fields: of all tables.
        evolves: whether tables get columns for fields they lack.
        is_text: whether the records are texts without a schema.

    Returns:
        the plan; None when a name decides that an earlier step may have made: texts do not show it.
    """
    plan = ChainPlan(dict(fields), evolves=evolves)
    for index in reversed(range(len(steps))):
        before, plan.reads_text = len(plan.shadowed), False
        steps[index].plan(plan)
        makes_names = not keep_schemas(steps[:index])
        if is_text and (len(plan.shadowed) > before or plan.reads_text) and makes_names:
            return None
    if is_text:
        plan.embedded = _read_before(steps)
    return None if plan.is_hopeless else plan


def _read_before(steps: tuple[ColumnStep, ...]) -> dict[str, ScannedJson]:
    """Return fields whose texts the first steps parse, and what decodes them."""
    decoders: dict[str, ScannedJson] = {}
    touched: set[str] = set()
    for step in steps:
        if isinstance(step, ParseJson):
            name = step.names[0]
            if name not in touched and (decoder := step.read_before()) is not None:
                decoders[name] = decoder
            touched.update(step.names)
        elif not isinstance(step, NoColumnStep | Filter | TopicSteps | MessageKeyStep):
            break
    return decoders


def applied(steps: tuple[ColumnStep, ...], rows: Rows, fields: Fields) -> pa.Table:
    """Run the steps; the rows keep what is ambiguous or dropped, and the topics.

    Returns:
        the fields that the steps leave; the others as nulls.
    """
    for step in steps:
        step.apply(rows)
    if rows.whole is not None:
        rows.suspect_all()  # it is no record of a table
    for name, kind in fields.items():
        if name not in rows.columns:
            rows.columns[name] = nulls(rows.count, kind)
    return pa.Table.from_arrays(list(rows.columns.values()), names=list(rows.columns))


def unknown_rows(table: pa.Table, fields: Fields) -> Mask:
    """Return rows with a value in a field that no table has, at any depth."""
    names = [
        name
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
        if name not in fields or (pa.types.is_nested(kind) and kind != fields[name])
    ]
    return extra_rows(table.select(names), pa.schema(list(fields.items())))
