"""Which columns of the view ``records`` a query only hands through, told from Spark's plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812 - the same

from connect.records.transforms.sql.sql_transform import SqlPlan
from worker.sql.row_transport import Item, Shares, has_list
from worker.sql.sql_expressions import Expressions, analyzed
from worker.sql.sql_read import view_columns


@dataclass(frozen=True, slots=True)
class Selected:
    """An item of a SELECT list.

    Attributes:
        text: as written.
        name: of its column.
        kind: its type.
    """

    text: str
    name: str
    kind: T.DataType


class ViewColumns:
    """The columns of the view as plans name them.

    Args:
        view: all of the view, any rows.
        expressions: of the query.
    """

    def __init__(self, view: DataFrame, expressions: Expressions) -> None:
        self._expressions = expressions
        output = analyzed(view).output()
        self._all = [output.apply(i) for i in range(output.size())]

    def path(self, rows: DataFrame, text: str) -> tuple[str, ...]:
        """The column that an expression is, and the fields inside of it; empty for any other."""
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
        """The columns that expressions look at."""
        found = analyzed(rows.select(*map(self._expressions.column, texts))).references()
        return {str(a.name()) for a in self._all if found.contains(a)}


def shares_of(
    plan: SqlPlan,
    columns: ViewColumns,
    joined: DataFrame,
    selected: Sequence[Selected],
    keys: Iterable[tuple[DataFrame, Sequence[str]]],
) -> Shares:
    """What goes through Spark of a query that is known to be sound.

    Args:
        plan: the query's.
        columns: of the view that ``joined`` begins with.
        joined: the view with all static tables.
        selected: items of the SELECT list, stars spelt out.
        keys: of each join what precedes it, and the sides of its equalities that are of that.
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
    return Shares(tuple(name for name in kinds if name in used), tuple(items), is_fenced)
