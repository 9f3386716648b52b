"""``Sql``: a query of Spark's over the records, joined with static tables.

Spark runs it in the worker, over each micro-batch (``worker.sql.sql_batches``). Here is what can be
said of it without Spark: its options, and where it may stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pyiceberg.schema import Schema

from connect.config.key import REQUIRED, Key, at_least
from connect.config.static_tables_policy import is_location
from connect.errors import ConfigError, InvariantViolation
from connect.model.records import SinkRecord
from connect.records.transforms.sql.sql_columns import columns_schema
from connect.records.transforms.sql.sql_functions import functions_text
from connect.records.transforms.sql.sql_query import Query, parse_query
from connect.records.transforms.sql.sql_tokens import CHARACTERS_MAX, NESTING_MAX
from connect.records.transforms.transform import OWN, Apply, Declaration, Example, Options, Side

STATIC_TABLE: Final = "table."


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """A ``Sql`` transformation's configuration, understood.

    Attributes:
        query: taken apart.
        columns: of the view ``records``.
        tables: where each static table of the query is: an Iceberg table's name, or the path of
            Parquet files.
        refresh_ms: for how long a static table is taken to be as it was read.
        bytes_max: how large each static table may be, as Arrow bytes.
    """

    query: Query
    columns: Schema
    tables: Mapping[str, str]
    refresh_ms: int
    bytes_max: int

    @classmethod
    def of(cls, options: Options) -> SqlPlan:
        """Understand typed options.

        Raises:
            ConfigError: ``sql_query``: the query or a column is none; a static table is not named.
        """
        query = parse_query(options["query"])
        tables: Mapping[str, str] = options[STATIC_TABLE]
        used = {join.table for join in query.joins}
        for name in sorted(used - set(tables)):
            raise ConfigError(
                f"the query joins {name}, but {STATIC_TABLE}{name} does not say what that is",
                code="sql_query",
            )
        for name in sorted(set(tables) - used):
            raise ConfigError(f"{STATIC_TABLE}{name} is not in the query", code="sql_query")
        for name, place in tables.items():
            if not is_location(place) and "." not in place:
                raise ConfigError(
                    f"{STATIC_TABLE}{name} is neither <namespace>.<table> nor a path: {place}",
                    code="sql_query",
                )
        return cls(
            query,
            columns_schema(options["columns"]),
            {name: place.strip() for name, place in tables.items()},
            options["tables.refresh.ms"],
            options["tables.max.bytes"],
        )


def misplaced(names: Sequence[str], *, has_predicate: bool, is_row_level: bool) -> str | None:
    """What is wrong with where a ``Sql`` stands; None: nothing.

    Args:
        names: classes of all transformations of the connector, in order.
        has_predicate: whether one of those that are ``Sql`` depends on a predicate.
        is_row_level: whether the connector replaces and deletes rows.
    """
    found = [is_sql(name) for name in names]
    if not any(found):
        return None
    if sum(found) > 1:
        return "A connector can have one Sql transformation"
    if not found[-1]:
        return "Sql must be the last transformation"
    if has_predicate:
        return "Sql cannot depend on a predicate: its WHERE drops records"
    if is_row_level:
        return "Sql serves connectors that only add rows, without cdc-field and upsert-mode"
    return None


def is_sql(class_name: str) -> bool:
    """Whether a configuration's class name means this transformation."""
    return class_name.strip() in (OWN + DECLARATION.name, DECLARATION.name)


def make(options: Options, side: Side) -> Apply:
    """Judge the options; records do not go through this function."""
    del side
    SqlPlan.of(options)

    def apply(record: SinkRecord) -> NoReturn:
        raise InvariantViolation(
            "a record came to Sql one by one", topic=record.topic, offset=record.offset
        )

    return apply


_QUERY_DOC: Final = (
    "Runs a query of Spark SQL over the records, which may join them with static tables. "
    "The records are the view `records`, with the `columns` given: fields of the value, "
    "converted as for columns of a table. Beside them stands the struct `kafka` with `topic`, "
    "`partition`, `offset` and `timestamp`.\n\n"
    "The query is `SELECT <items> FROM records [[AS] r] [[INNER | LEFT [OUTER]] JOIN <name> "
    "[[AS] a] ON <equalities joined by AND>]* [WHERE <condition>]`. A record that it leaves out is "
    "counted as dropped. A record for which an expression fails (Spark's ANSI mode: a cast of a "
    "text that is no number, an overflow) is refused. One that it makes into several goes to its "
    "tables with all of its rows or none; among matches of one record there is no order.\n\n"
    "It is the last transformation, the only one of its kind, has no predicate, and serves "
    "connectors that only add rows. A row depends on its record, the query and static tables "
    "alone: subqueries, aggregates, window functions, generators such as `explode` (see "
    "[Explode](Explode.md)) and functions of time, chance, user, files or addresses are refused. "
    "Variables such as `${env:HOME}` are plain text. Both sides of an equality of a join must have "
    "one type; write a `CAST` where they do not.\n\n"
)

_FUNCTIONS_DOC: Final = (
    "These functions may be called, by their bare names and without options: "
    f"{functions_text()}. "
    "Other functions are refused with their name when the connector is validated; what only Spark "
    "knows is refused when its task starts (`sql_query`), with the condition of Spark's error.\n\n"
    f"Bounds: a text of {CHARACTERS_MAX:,} characters, brackets {NESTING_MAX} deep. The numbers "
    "that set the size of `repeat`, `lpad`, `rpad`, `space`, `array_repeat`, `round` and "
    "`format_number`, what replaces and joins texts, and schemas of `from_json` are written in the "
    "query. A value that can become more than 64 times its record, or 1 MiB of constants, is "
    "refused. A lambda of `transform` and its kind uses only texts, lists, maps and structs of its "
    "own arguments.\n\n"
)

_TABLES_DOC: Final = (
    "A static table is an Iceberg table of the connector's catalog, as it is now, or Parquet "
    "files, where the node's operator allows it (`icefloe.static.tables.<connector>`). It is "
    "read whole, kept in the memory of the worker and sent to every core; columns of types "
    "that Spark has none of (`time`, `uuid`, `fixed`) are left out. It is looked at again "
    "after `tables.refresh.ms`, between batches: all records of a batch meet one state of it, "
    "those read again after a failure perhaps a newer one.\n\n"
    "What the query computes with is handed from Python to Spark and back, row by row, which costs "
    "CPU: see [performance](../../evidence/performance.md). Columns that it selects as they are go "
    "past Spark and cost next to nothing. Prefer [Jmespath](Jmespath.md) where no table is joined "
    "and no SQL needed. Tombstones are dropped."
)

DECLARATION: Final = Declaration(
    "Sql",
    OWN,
    f"{_QUERY_DOC}{_FUNCTIONS_DOC}{_TABLES_DOC}",
    make,
    Example(
        {
            "columns": "device STRING, camera STRING, fps INT",
            "query": "SELECT r.device, r.camera, l.city, r.fps * 60 AS per_minute "
            "FROM records r LEFT JOIN locations l ON l.device = r.device WHERE r.fps > 10",
            "table.locations": "geo.locations",
        },
        {"value": {"device": "d1", "camera": "front", "fps": 30}},
        {"value": {"device": "d1", "camera": "front", "city": "Oslo", "per_minute": 1800}},
        says="With the row `d1, Oslo` in the table `geo.locations` (`device`, `city`) it",
    ),
    keys=(
        Key("query", "STRING", "The query, Spark SQL.", REQUIRED, "HIGH"),
        Key(
            "columns",
            "STRING",
            "Columns of the view `records` as in CREATE TABLE: `device STRING, fps INT`.",
            REQUIRED,
            "HIGH",
        ),
        Key(
            "tables.refresh.ms",
            "LONG",
            "After how long static tables are looked at again.",
            "60000",
            unit="ms",
            check=at_least(0),
        ),
        Key(
            "tables.max.bytes",
            "LONG",
            "How large each static table may be, read into memory; one of more than 256 MB may "
            "also want a larger `spark.driver.maxResultSize`.",
            "67108864",
            "LOW",
            unit="bytes",
            check=at_least(1),
        ),
    ),
    families={
        STATIC_TABLE: "what the query's name of a static table means: `<namespace>.<table>` in the "
        "connector's catalog, or the path of a Parquet file or folder."
    },
    is_query=True,
)
