"""``Sql``: a Spark SQL query over the records, which may join static tables.

The worker runs the query with Spark over each micro-batch (``worker.sql.sql_batches``). This module
checks the options and the position in the chain without Spark.
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
    """The parsed configuration of a ``Sql`` transformation.

    Attributes:
        query: the parsed query.
        columns: columns of the view ``records``.
        tables: the source of each static table: the name of an Iceberg table, or the path of
            Parquet files.
        refresh_ms: interval after which a static table is read again.
        bytes_max: maximum size of each static table in Arrow bytes.
    """

    query: Query
    columns: Schema
    tables: Mapping[str, str]
    refresh_ms: int
    bytes_max: int

    @classmethod
    def of(cls, options: Options) -> SqlPlan:
        """Parse typed options.

        Raises:
            ConfigError: ``sql_query``; the query or a column is invalid, or the source of a static
                table is missing.
        """
        query = parse_query(options["query"])
        tables: Mapping[str, str] = options[STATIC_TABLE]
        used = {join.table for join in query.joins}
        for name in sorted(used - set(tables)):
            raise ConfigError(
                f"the query joins {name}: set {STATIC_TABLE}{name} to its source",
                code="sql_query",
            )
        for name in sorted(set(tables) - used):
            raise ConfigError(
                f"{STATIC_TABLE}{name} is set, but the query does not join {name}", code="sql_query"
            )
        for name, source in tables.items():
            if not is_location(source) and "." not in source:
                raise ConfigError(
                    f"{STATIC_TABLE}{name} must be <namespace>.<table> or a path, not {source}",
                    code="sql_query",
                )
        return cls(
            query,
            columns_schema(options["columns"]),
            {name: source.strip() for name, source in tables.items()},
            options["tables.refresh.ms"],
            options["tables.max.bytes"],
        )


def misplaced(names: Sequence[str], *, has_predicate: bool, is_row_level: bool) -> str | None:
    """Return the error of the position of ``Sql`` in the chain, or None if it is valid.

    Args:
        names: classes of the connector's transformations, in order.
        has_predicate: whether a ``Sql`` transformation has a predicate.
        is_row_level: whether the connector applies row-level changes.
    """
    are_sql = [is_sql(name) for name in names]
    if not any(are_sql):
        return None
    if sum(are_sql) > 1:
        return "A connector can have one Sql transformation"
    if not are_sql[-1]:
        return "Sql must be the last transformation"
    if has_predicate:
        return "Sql cannot have a predicate: use WHERE to drop records"
    if is_row_level:
        return "Sql requires a connector that only inserts rows: remove cdc-field and upsert-mode"
    return None


def is_sql(class_name: str) -> bool:
    """Return whether a class name is this transformation."""
    return class_name.strip() in (OWN + DECLARATION.name, DECLARATION.name)


def make(options: Options, side: Side) -> Apply:
    """Check the options. The returned function is never used."""
    del side
    SqlPlan.of(options)

    def apply(record: SinkRecord) -> NoReturn:
        raise InvariantViolation(
            "Sql received a single record; only Spark can run it",
            topic=record.topic,
            offset=record.offset,
        )

    return apply


_QUERY_DOC: Final = (
    "Runs a Spark SQL query over the records, which may join static tables. The view `records` has "
    "the configured `columns`, which are fields of the value and are converted like columns of a "
    "table. It also has a struct `kafka` with `topic`, `partition`, `offset` and `timestamp`.\n\n"
    "The query is `SELECT <items> FROM records [[AS] r] [[INNER | LEFT [OUTER]] JOIN <name> "
    "[[AS] a] ON <equalities joined by AND>]* [WHERE <condition>]`. A record without "
    "result rows is counted as dropped. If an expression fails for a record (in Spark's ANSI mode, "
    "for example a cast of an invalid number, or an overflow), the record is rejected. Either all "
    "result rows of a record are written or none. The order of several matches of one record is "
    "undefined.\n\n"
    "`Sql` must be the last transformation of the chain and have no predicate. A connector can "
    "have one `Sql` transformation, and must only insert rows. A result row depends only on its "
    "record, the query and the static tables. Subqueries, aggregates, window functions, generators "
    "such as `explode` (see [Explode](Explode.md)), and functions that depend on time, randomness, "
    "the user, files or addresses are rejected. Variables such as `${env:HOME}` are not replaced. "
    "Both sides of an equality in a join condition must have the same type; use `CAST` if they "
    "differ.\n\n"
)

_FUNCTIONS_DOC: Final = (
    "The query can call these functions, with their simple names and without options:\n\n"
    f"{functions_text()}\n\n"
    "Other functions are rejected when the connector is validated. Errors that only Spark detects "
    "fail the task when it starts (`sql_query`), with the error condition of Spark.\n\n"
    f"Limits: the query has at most {CHARACTERS_MAX:,} characters and {NESTING_MAX} levels of "
    "brackets. Size arguments of `repeat`, `lpad`, `rpad`, `space`, `array_repeat`, `round` and "
    "`format_number`, replacement and separator texts, and schemas of `from_json` must be "
    "literals. A query is rejected if a value can grow to more than 64 times its record, or to 1 "
    "MiB of constants. A lambda function, for example of `transform`, can use strings, lists, maps "
    "and structs of its own arguments only. A lambda function inside another one can iterate only "
    "over lists and maps of the arguments of that function, in at most three levels.\n\n"
    "Patterns of `rlike`, `like`, `split` and `regexp_*` must be literals. A query has at most 50 "
    "of them. A regular expression is one of Java. A match has 20,000 steps, and 1,000 more for "
    "each character of the text. A record that needs more is rejected. If the REST API has users, "
    "a regular expression must be one that RE2 supports with the same meaning, without look-around "
    "and back-references, and with at most 1,000 characters. A query is then rejected if a "
    "quantifier repeats an expression that can be empty, such as `(a*)*`, or if several "
    "alternatives can be empty. Delimiters of `str_to_map` and the key of `parse_url` cannot have "
    "quantifiers.\n\n"
)

_TABLES_DOC: Final = (
    "A static table is the current snapshot of an Iceberg table in the connector's catalog, or a "
    "set of Parquet files. The node's operator can restrict static tables "
    "(`icefloe.static.tables.<connector>`). The table is read completely, kept in the memory of "
    "the worker and broadcast to every core. Columns of types that Spark does not support "
    "(`time`, `uuid`, `fixed`) are omitted. The table is read again between batches after "
    "`tables.refresh.ms`. All records of a batch use the same state of the table. After a failure, "
    "records that are read again may use a newer state. With aggregates, a changed table starts "
    "the task again.\n\n"
    "Columns in expressions are transferred between Python and Spark row by row, which costs CPU: "
    "see [performance](../../evidence/performance.md). Columns that are selected unchanged bypass "
    "Spark and cost almost nothing. Use [Jmespath](Jmespath.md) if the query does not join a "
    "table. Tombstones are dropped."
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
        says="The table `geo.locations` (`device`, `city`) contains the row `d1, Oslo`.",
    ),
    keys=(
        Key("query", "STRING", "The Spark SQL query.", REQUIRED, "HIGH"),
        Key(
            "columns",
            "STRING",
            "Columns of the view `records`, as in `CREATE TABLE`: `device STRING, fps INT`.",
            REQUIRED,
            "HIGH",
        ),
        Key(
            "tables.refresh.ms",
            "LONG",
            "Interval after which static tables are read again.",
            "60000",
            unit="ms",
            check=at_least(0),
        ),
        Key(
            "tables.max.bytes",
            "LONG",
            "Maximum size of each static table in memory. A table of more than 256 MB may require "
            "a larger `spark.driver.maxResultSize`.",
            "67108864",
            "LOW",
            unit="bytes",
            check=at_least(1),
        ),
    ),
    families={
        STATIC_TABLE: "source of the static table with this name in the query: "
        "`<namespace>.<table>` in the connector's catalog, or the path of a Parquet file or folder."
    },
    is_query=True,
)
