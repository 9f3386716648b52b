"""Finds the columns of the view ``records`` that a query only passes through, in Spark's plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the same

from connect.records.transforms.sql.sql_transform import SqlPlan
from worker.sql.row_transport import ColumnSplit, Item, has_list
from worker.sql.sql_expressions import Expressions, analyzed
from worker.sql.sql_read import view_columns


@dataclass(frozen=True, slots=True)
class Selected:
    """An item of a SELECT list.

    Attributes:
        text: text of the item in the query.
        name: name of its column.
        kind: type of its column.
    """

    text: str
    name: str
    kind: T.DataType


class ViewColumns:
    """The columns of the view, as attributes of Spark's plans.

    Args:
        view: the view with all columns; its rows do not matter.
        expressions: the query's expressions.
    """

    def __init__(self, view: DataFrame, expressions: Expressions) -> None:
        self._expressions = expressions
        output = analyzed(view).output()
        self._all = [output.apply(i) for i in range(output.size())]

    def path(self, rows: DataFrame, text: str) -> tuple[str, ...]:
        """Return the column, and fields inside, that an expression equals; empty for any other."""
        plan = analyzed(rows.select(self._expressions.column(text)))
        if plan.nodeName() != "Project":
            return ()
        expression = plan.projectList().apply(0)
        inner: list[str] = []
        while True:
            kind = expression.getClass().getSimpleName()
            if kind == "AttributeReference":
                own = [a.name() for a in self._all if a.exprId().equals(expression.exprId())]
                return (*own, *reversed(inner)) if own else ()
            if kind == "GetStructField":
                inner.append(expression.childSchema().fields()[expression.ordinal()].name())
            elif kind != "Alias":
                return ()
            expression = expression.child()

    def used(self, rows: DataFrame, texts: Iterable[str]) -> set[str]:
        """Return the columns that expressions refer to."""
        references = analyzed(rows.select(*map(self._expressions.column, texts))).references()
        return {str(a.name()) for a in self._all if references.contains(a)}


def split_columns(
    plan: SqlPlan,
    columns: ViewColumns,
    joined: DataFrame,
    selected: Sequence[Selected],
    keys: Iterable[tuple[DataFrame, Sequence[str]]],
) -> ColumnSplit:
    """Return which columns Spark must receive for a valid query.

    Args:
        plan: the plan of the query.
        columns: the columns of the view with which ``joined`` starts.
        joined: the view with all static tables.
        selected: items of the SELECT list, with ``*`` expanded.
        keys: per join its left side, and the left expressions of its equalities.
    """
    items: list[Item] = []
    kinds = view_columns(plan)
    computed: list[str] = []
    is_fenced = False
    for item in selected:
        path = columns.path(joined, item.text)
        if not path:
            computed.append(item.text)
            is_fenced |= has_list(item.kind)
            items.append(Item(item.name))
            continue
        kind = kinds[path[0]][1]
        for name in path[1:]:
            kind = kind.field(name).type
        items.append(Item(item.name, path, kind))
    if plan.query.where is not None:
        computed.append(plan.query.where)
    used = columns.used(joined, computed)
    for rows, sides in keys:
        used |= columns.used(rows, sides)
    return ColumnSplit(tuple(name for name in kinds if name in used), tuple(items), is_fenced)
