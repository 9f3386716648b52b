"""Whether rows can be written to a table, judged on the driver before any record goes there.

Rules of this file:
- Only records of an unusable table are refused; ``errors.tolerance`` decides about them. The
  connector's other tables are written as before.
- A judgement opens no file: whether a store lets files be written, only the attempt shows.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.name_mapping import parse_mapping_from_json

from connect.errors import CommitRefused, ConfigError, IcefloeError
from worker.batch.pipeline_spec import TablePlan, UnusableTable
from worker.pipeline.record_fallback import NAME_MAPPING
from worker.write.table_writer import TableWriter

UNUSABLE: Final = "table_unusable"
UNSUITABLE: Final = (
    CommitRefused,
    ConfigError,
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
)
"""What a table's metadata and properties raise in the libraries that plan its files."""
_MESSAGE_CHARACTERS_MAX: Final = 500


def judge(plan: TablePlan) -> None:
    """Do what an executor does with a table before its first record.

    Raises:
        ConfigError: ``table_property``: the table's name mapping cannot be read.
        Exception: one of ``UNSUITABLE``.
    """
    TableWriter(plan, lambda: "")
    mapping = plan.properties.get(NAME_MAPPING)
    try:
        parse_mapping_from_json(mapping) if mapping else None
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"table property {NAME_MAPPING} is no name mapping", code="table_property"
        ) from error


def unusable(error: Exception) -> UnusableTable:
    """Why a table cannot be written, as its records are refused."""
    if isinstance(error, IcefloeError):
        return UnusableTable(error.code, error.message)
    text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
    return UnusableTable(UNUSABLE, f"{type(error).__name__}: {text}")
