"""Plans of a task's tables, and reasons why a table has none."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError, IcefloeError, InvariantViolation
from connect.gateways.storage.guarded_io import table_storage
from connect.records.conversion.row_converter import NAME_MAPPING_PROPERTY
from connect.records.row_operations import Keyless, key_columns
from connect.records.tables.delete_specs import delete_spec
from worker.batch.pipeline_spec import ChangePlan, TablePlan, UnusableTable
from worker.write.table_writer import TableWriter

UNUSABLE: Final = "table_unusable"
_MESSAGE_CHARACTERS_MAX: Final = 500


def plan_of(
    table: Table, name: str, config: ConnectorConfig, others: Iterable[TablePlan] = ()
) -> TablePlan:
    """Return the plan of a loaded table.

    Args:
        table: as it was loaded.
        name: the name that routing returns.
        config: of the connector.
        others: plans of other tables; the first may lend its properties of the store.

    Raises:
        ConfigError: as ``table_storage``.
    """
    storage: Mapping[str, str] = table_storage(table, config.write_properties)
    for other in itertools.islice(others, 1):
        if storage == other.io_properties:
            storage = other.io_properties  # one object is sent to executors once
    return TablePlan.of(
        table,
        name=name,
        catalog=config.catalog_name,
        io_properties=storage,
        write_properties=config.write_properties,
        changes=_change_plan(table, name, config) if config.is_row_level else None,
        sorts=config.table(name).sort_enabled,
    )


def _change_plan(table: Table, name: str, config: ConnectorConfig) -> ChangePlan:
    keys = key_columns(table.schema(), config.table(name).id_columns, table=name)
    key_ids = tuple(column.field_id for column in keys)
    spec = delete_spec(table, key_ids)
    if spec is None:
        raise InvariantViolation(
            "a table for row-level changes has no partition spec for deletes", table=name
        )
    keyless = Keyless.REFUSE if key_ids else Keyless.of(config.table(name))
    return ChangePlan(key_ids, spec.model_dump_json(), keyless)


def without_credentials(plan: TablePlan | None) -> TablePlan | None:
    """Return what a batch depends on; credentials of the store may differ at each load."""
    return None if plan is None else replace(plan, io_properties={})


def check_usable(plan: TablePlan) -> None:
    """Do what an executor does with a table before its first record.

    Raises:
        ConfigError: ``table_property``: the table's name mapping cannot be parsed.
        Exception: one of ``UNSUITABLE``.
    """
    TableWriter(plan, lambda: "")
    mapping = plan.properties.get(NAME_MAPPING_PROPERTY)
    try:
        parse_mapping_from_json(mapping) if mapping else None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"table property {NAME_MAPPING_PROPERTY} is not a name mapping", code="table_property"
        ) from error


def refusal_of(error: Exception) -> UnusableTable:
    """Return code and message with which records of an unusable table are refused."""
    if isinstance(error, IcefloeError):
        return UnusableTable(error.code, error.message)
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
    return UnusableTable(UNUSABLE, f"{type(error).__name__}: {text}")
