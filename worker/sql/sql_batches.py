"""A ``Sql`` transformation in Spark: the view of the records, joined with static tables.

Rules of this file:
- No record leaves the plan before the half behind it has counted it: WHERE and inner joins become
  a column that says so, and every join keeps the records' side.
- What an expression raises about a row is caught in that row: every expression of the query is
  evaluated below ``TryEval``, the keys of joins before the join, in one type on both sides.
- The order of the records stays: static tables are broadcast, nothing is shuffled.
- Only what gives the same rows again is let in, one record at a time.

Source:
    Spark 4.1, ``catalyst.expressions.TryEval``, which ``try_add`` and its kind are made of; there
    is no function in SQL for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Final

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql import types as T  # noqa: N812 - the same

from connect.config.connector import ConnectorConfig
from connect.config.key import Key
from connect.errors import ConfigError
from connect.records.transforms.sql.sql_query import Join, star_of
from connect.records.transforms.sql.sql_transform import DECLARATION, SqlPlan, is_sql
from connect.records.transforms.transform import typed_options
from worker.batch.descriptors import DESCRIPTOR_DDL
from worker.batch.pipeline_spec import PipelineSpec
from worker.spark.session import held_small, is_of_rows
from worker.sql.column_pruning import Selected, ViewColumns, shares_of
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
    Item,
    Shares,
    fence_text,
)
from worker.sql.sql_expressions import Expressions, analyzed, refuse, spark_refusals
from worker.sql.sql_read import read, view_ddl
from worker.sql.sql_write import write
from worker.sql.static_tables import StaticTables

_TYPES: Final = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType),
    *(T.DoubleType, T.DecimalType, T.StringType, T.BinaryType, T.DateType),
    *(T.TimestampType, T.TimestampNTZType),
)
_TEXTS: Final = (T.StringType, T.BinaryType)
_NESTED: Final = (T.ArrayType, T.MapType, T.StructType)


def sql_plan(config: ConnectorConfig) -> SqlPlan | None:
    """The query of a connector; None when it has none."""
    if not config.transforms or not is_sql(config.transforms[-1].class_name):
        return None
    keys: tuple[Key, ...] = DECLARATION.keys
    raw = config.transforms[-1].options
    return SqlPlan.of(typed_options(keys, raw, families=DECLARATION.families))


class SparkQuery:
    """The query of one task.

    Args:
        spark: the worker's session.
        plan: what the query is.
        static_tables: its static tables, not yet read.

    Attributes:
        shares: what of its rows goes through Spark; known after ``refresh``.
    """

    def __init__(self, spark: SparkSession, plan: SqlPlan, static_tables: StaticTables) -> None:
        self._spark = spark
        self._plan = plan
        self._static_tables = static_tables
        self._joined: list[_Static] = []
        self._items: list[Selected] = []
        self.shares = Shares((), ())
        self._expressions = Expressions(spark)

    def refresh(self) -> None:
        """Look at the static tables when it is time, and at the query when they changed.

        Raises:
            ConfigError: ``sql_query``, ``sql_table``.
            CommitRefused, RetriableError: a catalog or store does not give a static table.
        """
        if not self._static_tables.refresh() and self._items:
            return
        with spark_refusals():
            self._prepare()

    def run(self, rows: DataFrame, spec: PipelineSpec) -> DataFrame:
        """The descriptors of a micro-batch of Kafka's records; see ``pipeline.run``."""
        shares = self.shares
        ddl = view_ddl(self._plan, shares.seen)
        view = rows.mapInArrow(read(spec, self._plan, shares), ddl)
        asked = self._over(view, self._items, shares)
        if is_of_rows(rows):
            asked = asked.withColumn(STATE, self._state())
        return asked.mapInArrow(write(spec, shares), DESCRIPTOR_DDL)

    @property
    def may_enlarge(self) -> bool:
        """Whether the query makes values whose size Spark is not asked for: lists and the like."""
        return any(isinstance(each.kind, _NESTED) for each in _made(self._items, self.shares))

    def _state(self) -> Column:
        """The state of a row, if it is as small as records are that go by rows alone."""
        made = _made(self._items, self.shares)
        texts = [each.name for each in made if isinstance(each.kind, _TEXTS)]
        sizes = [F.coalesce(F.octet_length(F.col(MADE).getField(name)), F.lit(0)) for name in texts]
        if not sizes:
            return F.col(STATE)
        return held_small(F.col(STATE), reduce(add, sizes), "tinyint")

    def _over(self, view: DataFrame, selected: list[Selected], shares: Shares) -> DataFrame:
        """The query's rows in the view's order, as ``row_transport.whole`` takes them."""
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
            is_asked = is_row & ~failed & ~left_out
            joined = joined.withColumn("__where", F.when(is_asked, condition))
            holds = F.coalesce(F.col("__where.holds"), F.lit(False))  # noqa: FBT003 - Spark's
            chosen = chosen.when(F.col("__where").isNull(), FAILED).when(~holds, DROPPED)
        joined = joined.withColumn(STATE, chosen.otherwise(ROW).cast("tinyint"))
        found = [self._of_view(PLACE), self._of_view(CARRIED), F.col(STATE)]
        made = _made(selected, shares)
        if made:
            items = [self._expressions.column(each.text).alias(each.name) for each in made]
            row = F.when(F.col(STATE) == ROW, self._tried(items))
            if shares.is_fenced:
                fence = F.struct(
                    *(F.expr(fence_text(s.kind)).cast(s.kind).alias(s.name) for s in made)
                )
                row = row.when(self._of_view(PLACE) == FENCE, fence)
            found.append(row.alias(MADE))
        return joined.select(*found)

    # -------------------------------------------------------------- before the first batch

    def _prepare(self) -> None:
        """Read the static tables into Spark, find out sides and names, judge the whole plan."""
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
                refuse(f"WHERE is no condition: it gives {kind.simpleString()}")
        check_row([self._sized(joined, each.text) for each in selected])
        if query.where is not None:
            self._sized(joined, query.where)
        everything = Shares((), tuple(Item(each.name) for each in selected))
        self._expressions.judge(self._over(view, selected, everything))
        keys = [(static.left, static.sides) for static in self._joined]
        self.shares = shares_of(
            self._plan, ViewColumns(view, self._expressions), joined, selected, keys
        )
        self._items = selected
        seen = self._spark.createDataFrame([], view_ddl(self._plan, self.shares.seen))
        self._over(seen, selected, self.shares)  # Spark would say what is missing

    def _static(self, number: int, join: Join, left: DataFrame) -> _Static:
        table = self._spark.createDataFrame(self._static_tables.tables[join.table])
        right = table.alias(join.alias)
        sides = [self._sides(join, each.left, each.right, left, right) for each in join.on]
        texts = [side for _, side in sides]
        keys = [
            self._expressions.column(side).alias(_key(number, i)) for i, side in enumerate(texts)
        ]
        found = right.select("*", *keys, F.lit(True).alias(_hit(number)))  # noqa: FBT003 - Spark's
        for i in range(len(keys)):  # null equals nothing
            found = found.where(F.col(_key(number, i)).isNotNull())
        self._expressions.judge(right.select(*keys))
        for mine, its in sides:
            self._sized(left, mine)
            self._sized(right, its)
        condition = None
        try:
            rows = found.toArrow()
        except PySparkException as error:
            condition = error.getCondition() or "an error of Spark"
        if condition is not None:  # outside of the handler: a trace would show Spark's text
            raise ConfigError(
                f"static table {join.table}: the condition of its join fails for a row of it: "
                f"{condition}",
                code="sql_table",
            )
        return _Static(
            self._spark.createDataFrame(rows), left, [side for side, _ in sides], table.columns
        )

    def _sides(
        self, join: Join, first: str, second: str, left: DataFrame, right: DataFrame
    ) -> tuple[str, str]:
        """The side of an equality that is known before the join, and the static table's."""
        ways = [
            (mine, its, kind, of_table)
            for mine, its in ((first, second), (second, first))
            if (kind := self._type(left, mine)) is not None
            and (of_table := self._type(right, its)) is not None
        ]
        text = f"{first} = {second} of JOIN {join.table}"
        column = self._expressions.column
        with spark_refusals(text):  # Spark finds what is wrong
            left.join(right).select(column(first) == column(second))
        if not ways:
            refuse(f"{text}: one side must be of the static table, the other of what precedes it")
        if len(ways) > 1:
            refuse(f"{text}: both sides may be either table's; write <alias>.<column>")
        mine, its, kind, of_table = ways[0]
        if kind.simpleString() != of_table.simpleString():
            refuse(
                f"{text}: the sides have the types {kind.simpleString()} and "
                f"{of_table.simpleString()}; write a CAST"
            )
        return mine, its

    def _named(self, joined: DataFrame) -> Iterator[Selected]:
        """Items of the SELECT list, stars spelt out."""
        names: set[str] = set()
        for item in self._plan.query.select:
            star = star_of(item)
            texts = [item] if star is None else list(self._columns(star))
            for text in texts:
                with spark_refusals(text):
                    (column,) = joined.select(self._expressions.column(text)).schema.fields
                if column.name.lower() in names:
                    refuse(f"two columns of the query are called {column.name}")
                if not _is_writable(column.dataType):
                    kind = column.dataType.simpleString()
                    refuse(f"column {column.name} has the type {kind}, which no table takes")
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
            refuse(f"{star}.* names no relation of the query")
        for alias, columns in chosen:
            yield from (f"{_quoted(alias)}.{_quoted(column)}" for column in columns)

    def _type(self, rows: DataFrame, text: str) -> T.DataType | None:
        """The type of an expression; None when a name in it is unknown there."""
        column = self._expressions.column(text)
        try:
            found: T.DataType = rows.select(column).schema[0].dataType
        except AnalysisException:
            return None
        return found

    def _sized(self, rows: DataFrame, text: str) -> Size:
        """The bound of an expression's size."""
        return size_of(analyzed(rows.select(self._expressions.column(text))).projectList().apply(0))

    # -------------------------------------------------------------- parts of the plan

    def _join_all(self, view: DataFrame) -> DataFrame:
        """The view with as many static tables as are prepared."""
        query = self._plan.query
        found = view.alias(query.alias)
        for number, (join, static) in enumerate(zip(query.joins, self._joined, strict=False)):
            keys = [
                self._expressions.column(text).alias(f"k{i}") for i, text in enumerate(static.sides)
            ]
            tried = F.when(self._is_row(), self._tried(keys))  # others find nothing
            found = found.withColumn(_on(number), tried)
            condition = " AND ".join(
                f"{_on(number)}.k{i} = {_key(number, i)}" for i in range(len(keys))
            )
            right = F.broadcast(static.rows.alias(join.alias))
            found = found.join(right, F.expr(condition), "left")
        return found

    def _of_view(self, name: str) -> Column:
        return F.col(f"{_quoted(self._plan.query.alias)}.{name}")

    def _is_row(self) -> Column:
        return F.coalesce(self._of_view(PLACE), F.lit(FENCE)) >= 0

    def _tried(self, columns: list[Column]) -> Column:
        """A struct of expressions; null where one of them fails."""
        return self._expressions.tried(F.struct(*columns))


class _Static:
    """A static table in Spark.

    Args:
        rows: its columns, the keys of its join, and a mark that it was hit.
        left: what it is joined to.
        sides: what the keys must equal.
        columns: its own columns.
    """

    def __init__(
        self, rows: DataFrame, left: DataFrame, sides: list[str], columns: list[str]
    ) -> None:
        self.rows = rows
        self.left = left
        self.sides = sides
        self.columns = columns


def _made(selected: list[Selected], shares: Shares) -> list[Selected]:
    """What Spark makes of a query's items; others go past it."""
    pairs = zip(selected, shares.items, strict=True)
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
