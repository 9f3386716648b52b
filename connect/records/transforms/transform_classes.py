"""Transformations by class name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.records.transforms import (
    by_logical_table_router,
    cast,
    copy_value,
    custom_transforms,
    debezium_transform,
    dms_transform,
    drop_headers,
    event_router,
    explode,
    extract_field,
    extract_new_document_state,
    extract_new_record_state,
    filter,  # noqa: A004 - Kafka's name
    flatten,
    header_from,
    header_to_value,
    hoist_field,
    insert_field,
    insert_header,
    jmespath_transform,
    json_to_map_transform,
    kafka_metadata_transform,
    mask_field,
    mongo_debezium_transform,
    parse_json,
    parse_timestamp,
    regex_router,
    replace_field,
    set_schema_metadata,
    timestamp_converter,
    timestamp_router,
    unwrap_union,
    value_to_key,
)
from connect.records.transforms.sql import sql_transform
from connect.records.transforms.transform import Declaration, Side

DECLARATIONS: Final[tuple[Declaration, ...]] = (
    cast.DECLARATION,
    drop_headers.DECLARATION,
    extract_field.DECLARATION,
    filter.DECLARATION,
    flatten.DECLARATION,
    header_from.DECLARATION,
    hoist_field.DECLARATION,
    insert_field.DECLARATION,
    insert_header.DECLARATION,
    mask_field.DECLARATION,
    regex_router.DECLARATION,
    replace_field.DECLARATION,
    set_schema_metadata.DECLARATION,
    timestamp_converter.DECLARATION,
    timestamp_router.DECLARATION,
    value_to_key.DECLARATION,
    copy_value.DECLARATION,
    debezium_transform.DECLARATION,
    dms_transform.DECLARATION,
    by_logical_table_router.DECLARATION,
    event_router.DECLARATION,
    extract_new_document_state.DECLARATION,
    extract_new_record_state.DECLARATION,
    json_to_map_transform.DECLARATION,
    kafka_metadata_transform.DECLARATION,
    mongo_debezium_transform.DECLARATION,
    explode.DECLARATION,
    header_to_value.DECLARATION,
    jmespath_transform.DECLARATION,
    parse_json.DECLARATION,
    parse_timestamp.DECLARATION,
    sql_transform.DECLARATION,
    unwrap_union.DECLARATION,
)


def names_of(declared: Declaration) -> Mapping[str, Side]:
    """Return all class names of a transformation, and the record side of each name."""
    bases = [package + declared.name for package in (declared.package, *declared.also)]
    if not declared.has_sides:
        return dict.fromkeys((*bases, declared.name), "value")
    sides: dict[str, Side] = {}
    for base in bases:  # as in Kafka, the simple name with a side is not valid
        sides[f"{base}$Key"] = "key"
        sides[f"{base}$Value"] = "value"
    return sides


def find(name: str) -> tuple[Declaration, Side] | None:
    """Return the transformation with a class name and its side, or None if it is unknown.

    Custom transformations are found by the names of their entry points.
    """
    declared_class = _BY_NAME.get(name)
    if declared_class is not None:
        return declared_class
    own = next(
        (declared for declared in custom_transforms.installed() if declared.name == name), None
    )
    return None if own is None else (own, "value")


_BY_NAME: Final[Mapping[str, tuple[Declaration, Side]]] = {
    name: (declared, side) for declared in DECLARATIONS for name, side in names_of(declared).items()
}
