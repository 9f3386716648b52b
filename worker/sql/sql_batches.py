"""Runs a ``Sql`` transformation in Spark: the view of the records, joined with static tables.

Rules of this file:
- The plan removes no record: the writing half counts every record. WHERE and inner joins become a
  state column, and every join keeps all rows of the records' side.
- An error of an expression concerns its row only. ``TryEval`` is around every expression. Join keys
  are evaluated before the join, with one type on both sides.
- The records keep their order: static tables are broadcast, nothing is shuffled.
- A query must return the same rows in a retry, and it runs on each record alone.

Source:
    Spark 4.1, ``catalyst.expressions.TryEval``, on which ``try_add`` and similar functions are
    based. SQL has no function for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql import types as T  # noqa: N812 - as all of Spark's users call it

from connect.config.connector import ConnectorConfig
from connect.config.key import Key
from connect.errors import ConfigError
from connect.records.transforms.sql.sql_query import Join, star_of
from connect.records.transforms.sql.sql_transform import DECLARATION, SqlPlan, is_sql
from connect.records.transforms.transform import typed_options
from worker.batch.pipeline_spec import PipelineSpec
from worker.spark.session import held_small, is_of_rows
from worker.sql.column_pruning import Selected, ViewColumns, split_columns
from worker.sql.expression_sizes import Size, check_row, size_of
from worker.sql.row_transport import (
    CARRIED,
    DROPPED,
    FAILED,
    FENCE,
    MADE,
    PLACE,
    ROW,
    STATE,
    ColumnSplit,
    Item,
    fence_text,
)
from worker.sql.sql_expressions import Expressions, analyzed, refuse, spark_refusals
from worker.sql.sql_read import read, view_ddl
from worker.sql.sql_write import write
from worker.sql.static_tables import StaticTables

_TYPES: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
_TEXTS: Final = (T.StringType, T.BinaryType)
_NESTED: Final = (T.ArrayType, T.MapType, T.StructType)


def sql_plan(config: ConnectorConfig) -> SqlPlan | None:
    """Return the query of a connector; None if it has no ``Sql`` transformation."""
    if not config.transforms or not is_sql(config.transforms[-1].class_name):
        return None
    keys: tuple[Key, ...] = DECLARATION.keys
    raw = config.transforms[-1].options
    return SqlPlan.of(typed_options(keys, raw, families=DECLARATION.families))


class SparkQuery:
    """The query of one task.

    Args:
        spark: the worker's session.
        plan: the plan of the query.
        static_tables: its static tables, not yet read.

    Attributes:
        split: which columns Spark receives; known after ``refresh``.
    """

    def __init__(self, spark: SparkSession, plan: SqlPlan, static_tables: StaticTables) -> None:
        self._spark = spark
        self._plan = plan
        self.static_tables = static_tables
        self._joined: list[_Static] = []
        self._items: list[Selected] = []
        self.split = ColumnSplit((), ())
        self._expressions = Expressions(spark)

    def refresh(self) -> None:
        """Refresh the static tables if due; prepare the query again if one of them changed.

        Raises:
            ConfigError: ``sql_query``, ``sql_table``.
            CommitRefused, RetriableError: a static table cannot be loaded.
        """
        if not self.static_tables.refresh() and self._items:
            return
        with spark_refusals():
            self._prepare()

    def run(self, rows: DataFrame, spec: PipelineSpec) -> DataFrame:
        """Return the descriptors of a micro-batch of Kafka records; see ``pipeline.run``."""
        return self.rows(rows, spec).mapInArrow(write(spec, self.split), spec.descriptor_ddl)

    def rows(self, records: DataFrame, spec: PipelineSpec) -> DataFrame:
        """Return the query's rows of Kafka records, for the writing half with this ``split``."""
        reading = read(spec, self._plan, self.split)
        view = records.mapInArrow(reading, view_ddl(self._plan, self.split.seen))
        queried = self._over(view, self._items, self.split)
        return queried.withColumn(STATE, self._state()) if is_of_rows(records) else queried

    @property
    def may_enlarge(self) -> bool:
        """Whether the query makes lists, maps or structs: Spark does not check their size."""
        return any(isinstance(each.kind, _NESTED) for each in _made(self._items, self.split))

    def _state(self) -> Column:
        """Return the state column, with a check that the values of the query are small."""
        made_columns = _made(self._items, self.split)
        texts = [each.name for each in made_columns if isinstance(each.kind, _TEXTS)]
        sizes = [F.coalesce(F.octet_length(F.col(MADE).getField(name)), F.lit(0)) for name in texts]
        if not sizes:
            return F.col(STATE)
        return held_small(F.col(STATE), reduce(add, sizes), "tinyint")

    def _over(self, view: DataFrame, selected: list[Selected], split: ColumnSplit) -> DataFrame:
        """Return the query's rows in the view's order, for ``row_transport.from_pieces``."""
        query = self._plan.query
        joined = self._join_all(view)
        failed, left_out = F.lit(False), F.lit(False)  # noqa: FBT003 - Spark's
        for number, join in enumerate(query.joins):
            failed |= F.col(_on(number)).isNull()
            if join.kind == "inner":
                left_out |= F.col(_hit(number)).isNull()
        is_row = self._is_row()
        chosen = F.when(~is_row, DROPPED).when(failed, FAILED).when(left_out, DROPPED)
        if query.where is not None:
            where = self._expressions.column(query.where)
            condition = self._tried([where.alias("holds")])
            is_candidate = is_row & ~failed & ~left_out
            joined = joined.withColumn("__where", F.when(is_candidate, condition))
            holds = F.coalesce(F.col("__where.holds"), F.lit(False))  # noqa: FBT003 - Spark's
            chosen = chosen.when(F.col("__where").isNull(), FAILED).when(~holds, DROPPED)
        joined = joined.withColumn(STATE, chosen.otherwise(ROW).cast("tinyint"))
        columns = [self._of_view(PLACE), self._of_view(CARRIED), F.col(STATE)]
        made_columns = _made(selected, split)
        if made_columns:
            items = [self._expressions.column(each.text).alias(each.name) for each in made_columns]
            row = F.when(F.col(STATE) == ROW, self._tried(items))
            if split.is_fenced:
                fence = F.struct(
                    *(F.expr(fence_text(s.kind)).cast(s.kind).alias(s.name) for s in made_columns)
                )
                row = row.when(self._of_view(PLACE) == FENCE, fence)
            columns.append(row.alias(MADE))
        return joined.select(*columns)

    # -------------------------------------------------------------- before the first batch

    def _prepare(self) -> None:
        """Read the static tables into Spark, resolve sides and names, check the whole plan."""
        query = self._plan.query
        view = self._spark.createDataFrame([], view_ddl(self._plan))
        self._joined = []
        for number, join in enumerate(query.joins):
            self._joined.append(self._static(number, join, self._join_all(view)))
        joined = self._join_all(view)
        selected = list(self._named(joined))
        if query.where is not None:
            where = self._expressions.column(query.where)
            with spark_refusals(query.where):
                kind = joined.select(where).schema[0].dataType
            if not isinstance(kind, T.BooleanType):
                refuse(f"WHERE is not a condition: its type is {kind.simpleString()}")
        check_row([self._sized(joined, each.text) for each in selected])
        if query.where is not None:
            self._sized(joined, query.where)
        everything = ColumnSplit((), tuple(Item(each.name) for each in selected))
        self._expressions.check_plan(self._over(view, selected, everything))
        keys = [(static.left, static.sides) for static in self._joined]
        self.split = split_columns(
            self._plan, ViewColumns(view, self._expressions), joined, selected, keys
        )
        self._items = selected
        empty_view = self._spark.createDataFrame([], view_ddl(self._plan, self.split.seen))
        self._over(empty_view, selected, self.split)  # Spark raises an error if a column is missing

    def _static(self, number: int, join: Join, left: DataFrame) -> _Static:
        table = self._spark.createDataFrame(self.static_tables.tables[join.table])
        right = table.alias(join.alias)
        sides = [self._sides(join, each.left, each.right, left, right) for each in join.on]
        texts = [side for _, side in sides]
        keys = [
            self._expressions.column(side).alias(_key(number, i)) for i, side in enumerate(texts)
        ]
        keyed = right.select("*", *keys, F.lit(True).alias(_hit(number)))  # noqa: FBT003 - Spark's
        for i in range(len(keys)):  # null is equal to no value
            keyed = keyed.where(F.col(_key(number, i)).isNotNull())
        self._expressions.check_plan(right.select(*keys))
        for of_records, of_table in sides:
            self._sized(left, of_records)
            self._sized(right, of_table)
        condition = None
        try:
            rows = keyed.toArrow()
        except PySparkException as error:
            condition = error.getCondition() or "an error in Spark"
        if condition is not None:  # not in the handler: a trace would show Spark's text
            raise ConfigError(
                f"static table {join.table}: the join condition fails for one of its rows: "
                f"{condition}",
                code="sql_table",
            )
        return _Static(
            self._spark.createDataFrame(rows), left, [side for side, _ in sides], table.columns
        )

    def _sides(
        self, join: Join, first: str, second: str, left: DataFrame, right: DataFrame
    ) -> tuple[str, str]:
        """Return the left side of an equality, then the side of the static table."""
        matches = [
            (left_side, right_side, left_type, right_type)
            for left_side, right_side in ((first, second), (second, first))
            if (left_type := self._type(left, left_side)) is not None
            and (right_type := self._type(right, right_side)) is not None
        ]
        text = f"{first} = {second} of JOIN {join.table}"
        column = self._expressions.column
        with spark_refusals(text):  # Spark raises an error for an unknown name
            left.join(right).select(column(first) == column(second))
        if not matches:
            refuse(
                f"{text}: one side must use the static table, the other side what precedes the join"
            )
        if len(matches) > 1:
            refuse(f"{text}: each side may belong to either table; write <alias>.<column>")
        left_side, right_side, left_type, right_type = matches[0]
        if left_type.simpleString() != right_type.simpleString():
            refuse(
                f"{text}: the sides have the types {left_type.simpleString()} and "
                f"{right_type.simpleString()}; write a CAST"
            )
        return left_side, right_side

    def _named(self, joined: DataFrame) -> Iterator[Selected]:
        """Yield the items of the SELECT list, with ``*`` expanded."""
        names: set[str] = set()
        for item in self._plan.query.select:
            star = star_of(item)
            texts = [item] if star is None else list(self._columns(star))
            for text in texts:
                with spark_refusals(text):
                    written = self._expressions.column(text, is_bounded=False)
                    (column,) = joined.select(written).schema.fields
                if column.name.lower() in names:
                    refuse(f"two columns of the query have the name {column.name}")
                if not _is_writable(column.dataType):
                    kind = column.dataType.simpleString()
                    refuse(f"column {column.name} has the type {kind}, which no table supports")
                names.add(column.name.lower())
                yield Selected(text, column.name, column.dataType)

    def _columns(self, star: str) -> Iterator[str]:
        query = self._plan.query
        relations = [(query.alias, [f.name for f in self._plan.columns.fields])]
        relations += [
            (join.alias, static.columns)
            for join, static in zip(query.joins, self._joined, strict=True)
        ]
        chosen = [r for r in relations if not star or r[0].lower() == star.lower()]
        if not chosen:
            refuse(f"{star}.* is not a relation of the query")
        for alias, columns in chosen:
            yield from (f"{_quoted(alias)}.{_quoted(column)}" for column in columns)

    def _type(self, rows: DataFrame, text: str) -> T.DataType | None:
        """Return the type of an expression; None if these rows do not have a name in it."""
        column = self._expressions.column(text)
        try:
            kind: T.DataType = rows.select(column).schema[0].dataType
        except AnalysisException:
            return None
        return kind

    def _sized(self, rows: DataFrame, text: str) -> Size:
        """Return the bound of an expression's size; refuse one that is too large."""
        return size_of(analyzed(rows.select(self._expressions.column(text))).projectList().apply(0))

    # -------------------------------------------------------------- parts of the plan

    def _join_all(self, view: DataFrame) -> DataFrame:
        """Return the view, joined with all static tables prepared so far."""
        query = self._plan.query
        joined = view.alias(query.alias)
        for number, (join, static) in enumerate(zip(query.joins, self._joined, strict=False)):
            keys = [
                self._expressions.column(text).alias(f"k{i}") for i, text in enumerate(static.sides)
            ]
            tried = F.when(self._is_row(), self._tried(keys))  # dropped records match no row
            joined = joined.withColumn(_on(number), tried)
            condition = " AND ".join(
                f"{_on(number)}.k{i} = {_key(number, i)}" for i in range(len(keys))
            )
            right = F.broadcast(static.rows.alias(join.alias))
            joined = joined.join(right, F.expr(condition), "left")
        return joined

    def _of_view(self, name: str) -> Column:
        return F.col(f"{_quoted(self._plan.query.alias)}.{name}")

    def _is_row(self) -> Column:
        return F.coalesce(self._of_view(PLACE), F.lit(FENCE)) >= 0

    def _tried(self, columns: list[Column]) -> Column:
        """Return a struct of expressions; null for a row in which one of them fails."""
        return self._expressions.tried(F.struct(*columns))


class _Static:
    """A static table in Spark.

    Args:
        rows: its columns, the keys of its join, and a mark of matched rows.
        left: the left side of its join.
        sides: left expressions that the keys must equal.
        columns: its columns, without keys and mark.
    """

    def __init__(
        self, rows: DataFrame, left: DataFrame, sides: list[str], columns: list[str]
    ) -> None:
        self.rows = rows
        self.left = left
        self.sides = sides
        self.columns = columns


def _made(selected: list[Selected], split: ColumnSplit) -> list[Selected]:
    """Return the items that Spark computes; all others are carried."""
    pairs = zip(selected, split.items, strict=True)
    return [each for each, item in pairs if not item.path]


def _on(number: int) -> str:
    return f"__on{number}"


def _hit(number: int) -> str:
    return f"__hit{number}"


def _key(number: int, place: int) -> str:
    return f"__key{number}_{place}"


def _quoted(name: str) -> str:
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def _is_writable(kind: T.DataType) -> bool:
    if isinstance(kind, T.ArrayType):
        return _is_writable(kind.elementType)
    if isinstance(kind, T.MapType):
        return _is_writable(kind.keyType) and _is_writable(kind.valueType)
    if isinstance(kind, T.StructType):
        return all(_is_writable(field.dataType) for field in kind.fields)
    return isinstance(kind, _TYPES)
