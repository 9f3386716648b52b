"""Parser of the query of a ``Sql`` transformation, without Spark.

Rules of this file:
- The parser recognizes the outermost clauses and the names of functions. Spark checks the
  expressions. ``worker.sql.sql_expressions`` does not rely on this file.
- Clauses that cannot be evaluated record by record are rejected: subqueries, aggregates, sorting,
  limits and other joins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from connect.records.transforms.sql.sql_functions import FUNCTIONS
from connect.records.transforms.sql.sql_tokens import (
    Token,
    displayed,
    refuse,
    split_at,
    text_of,
    tokens_of,
)

RECORDS: Final = "records"
_CLAUSES: Final = frozenset({"HAVING", "UNION", "INTERSECT", "EXCEPT", "LIMIT", "QUALIFY"})
_BEFORE_BY: Final = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})
_OTHER_JOINS: Final = frozenset({"RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "LATERAL"})
_NO_EQUALITY: Final = frozenset({"OR", "NOT", "IN", "LIKE", "RLIKE", "BETWEEN", "IS"})
_BEFORE_BRACKET: Final = frozenset(
    {"AND", "AS", "BETWEEN", "BY", "CASE", "DIV", "ELSE", "ESCAPE", "FROM", "ILIKE"}
    | {"IN", "IS", "JOIN", "LIKE", "NOT", "ON", "OR", "REGEXP", "RLIKE", "SELECT", "THEN"}
    | {"USING", "VARCHAR", "WHEN", "WHERE", "DEC", "NUMERIC", "VALUES"}
)
_OF_LIKE: Final = frozenset({"ALL", "ANY", "SOME"})
_NESTED_TYPES: Final = frozenset({"ARRAY", "MAP", "STRUCT"})
_NESTED_TYPES_MAX: Final = 64
_CASES_MAX: Final = 200  # the time of Spark's parser is quadratic in their nesting
_JOINS_MAX: Final = 16
_MOVING_LITERAL: Final = re.compile(
    r"\b(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ)\s*"
    r"r?['\"]\s*(?:now|today|yesterday|tomorrow|epoch)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Equality:
    """An equality ``left = right`` in the condition of a join, as written."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Join:
    """A join of the query with a static table.

    Attributes:
        table: the name in the configuration.
        alias: the alias in the query.
        kind: inner or left join.
        on: equalities of the condition, at least one.
    """

    table: str
    alias: str
    kind: Literal["inner", "left"]
    on: tuple[Equality, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the view ``records``.

    Attributes:
        select: the items of the SELECT list; ``*`` and ``alias.*`` are not expanded.
        alias: the alias of the records.
        joins: joins with static tables, in order.
        where: the condition, or None.
    """

    select: tuple[str, ...]
    alias: str
    joins: tuple[Join, ...] = ()
    where: str | None = None


def parse_query(text: str) -> Query:
    """Parse a query.

    Args:
        text: ``SELECT .. FROM records [[AS] r] [[INNER | LEFT [OUTER]] JOIN t [[AS] a] ON ..]
            [WHERE ..]``, in Spark's SQL.

    Raises:
        ConfigError: ``sql_query``; the query has another form.
    """
    tokens = tokens_of(text)
    _refuse_other_clauses(tokens)
    _refuse_functions(tokens)
    if not tokens or tokens[0].keyword != "SELECT":
        refuse("the query must begin with SELECT")
    starts = [i for i, token in enumerate(tokens) if token.keyword == "FROM"]
    if not starts:
        refuse(f"the query has no FROM {RECORDS}")
    select = tuple(map(text_of, split_at(tokens[1 : starts[0]], ",")))
    if not all(select):
        refuse("an item of the SELECT list is empty")
    rest = tokens[starts[0] + 1 :]
    ends = [i for i, token in enumerate(rest) if token.keyword == "WHERE"]
    where = text_of(rest[ends[0] + 1 :]) if ends else None
    if where == "":
        refuse("WHERE has no condition")
    source, *joined = _relations(rest[: ends[0]] if ends else rest)
    name, alias = _named(source[1])
    if name.lower() != RECORDS:
        refuse(f"FROM must name {RECORDS}, not {name}; add other tables with JOIN")
    if len(joined) > _JOINS_MAX:
        refuse(f"the query has {len(joined)} joins, more than {_JOINS_MAX}")
    joins = tuple(_join(kind, part) for kind, part in joined)
    aliases = [alias.lower(), *(join.alias.lower() for join in joins)]
    for each in aliases:
        if aliases.count(each) > 1:
            refuse(f"two relations of the query have the name {each}")
    return Query(select, alias, joins, where)


def star_of(item: str) -> str | None:
    """Return the alias of ``alias.*``, an empty text for ``*``, or None for any other item."""
    tokens = tokens_of(item)
    if [t.text for t in tokens] == ["*"]:
        return ""
    if len(tokens) == 3 and [t.text for t in tokens[1:]] == [".", "*"]:
        return tokens[0].name
    return None


def column_names(query: Query, columns: Sequence[str]) -> frozenset[str] | None:
    """Return the names of the query's columns; None if only Spark knows one of them.

    Args:
        query: the query.
        columns: names of the columns of the view ``records``.
    """
    names: set[str] = set()
    for item in query.select:
        star = star_of(item)
        if star is not None:
            of_records = star.lower() == query.alias.lower() if star else not query.joins
            if not of_records:
                return None
            names.update(columns)
            continue
        *before, last = tokens_of(item)
        is_path = all(t.kind in ("identifier", "quoted") or t.text == "." for t in before)
        is_alias = bool(before) and before[-1].keyword == "AS"
        is_name = last.kind in ("identifier", "quoted")
        if not (is_name and (is_alias or not before or (is_path and last.after_dot))):
            return None
        names.add(last.name)
    return frozenset(names)


def _refuse_other_clauses(tokens: Sequence[Token]) -> None:
    for i, token in enumerate(tokens):
        keyword, following = token.keyword, tokens[i + 1].keyword if i + 1 < len(tokens) else ""
        is_name = token.kind == "identifier" and not token.after_dot
        if i and is_name and token.text.upper() == "SELECT":
            refuse("subqueries are not supported: the query is evaluated for each record")
        if keyword in _CLAUSES or (keyword in _BEFORE_BY and following == "BY"):
            refuse(f"{keyword} is not supported: the query is evaluated for each record")
        if keyword == "DISTINCT" and i == 1:
            refuse("DISTINCT is not supported: the query is evaluated for each record")
        if keyword in _OTHER_JOINS and (
            following in ("JOIN", "OUTER", "VIEW") or keyword == "LATERAL"
        ):
            refuse(f"{keyword} is not supported: use JOIN or LEFT JOIN for a static table")
    if tokens and _MOVING_LITERAL.search(tokens[0].source):
        refuse("a literal that depends on the current time would differ in a retry")


def _refuse_functions(tokens: Sequence[Token]) -> None:
    """Reject functions outside the allowlist, and deep nesting without brackets."""
    cases = types = 0
    before = ""
    for token, following in pairwise(tokens):
        if token.kind not in ("identifier", "quoted"):
            before = ""
            continue
        of_like = before in ("LIKE", "ILIKE")
        before = keyword = (
            token.text.upper() if token.kind == "identifier" and not token.after_dot else ""
        )
        cases += keyword == "CASE"
        types += keyword in _NESTED_TYPES and following.text[0] == "<"
        if cases > _CASES_MAX or types > _NESTED_TYPES_MAX:
            refuse(
                f"the query has more than {_CASES_MAX} CASE expressions, or more than "
                f"{_NESTED_TYPES_MAX} nested types"
            )
        if following.text != "(" or keyword in (_OF_LIKE if of_like else _BEFORE_BRACKET):
            continue
        if token.after_dot:
            refuse(f"the name of the function {token.name} is qualified: use the simple name")
        refuse_function(token.name)


def refuse_function(name: str) -> None:
    """Raise ``ConfigError`` for a function that is not in the allowlist."""
    if name.lower() not in FUNCTIONS:
        refuse(
            f"the function {name} is not allowed in a query; docs/reference/transforms/Sql.md "
            "lists the allowed functions"
        )


def _relations(
    tokens: Sequence[Token],
) -> list[tuple[Literal["inner", "left"], list[Token]]]:
    """Split the text after FROM into the relations of FROM and each JOIN."""
    relations: list[tuple[Literal["inner", "left"], list[Token]]] = [("inner", [])]
    for token in tokens:
        if token.keyword != "JOIN":
            relations[-1][1].append(token)
            continue
        before = relations[-1][1]
        kind: Literal["inner", "left"] = "inner"
        if before and before[-1].keyword == "OUTER":
            before.pop()
            if not before or before[-1].keyword != "LEFT":
                refuse("OUTER JOIN is not supported: use LEFT JOIN for a static table")
        if before and before[-1].keyword in ("LEFT", "INNER"):
            kind = "left" if before.pop().keyword == "LEFT" else "inner"
        relations.append((kind, []))
    return relations


def _named(tokens: Sequence[Token]) -> tuple[str, str]:
    """Parse ``name [[AS] alias]``."""
    names = [t for t in tokens if t.keyword != "AS"]
    if not 1 <= len(names) <= 2 or any(t.kind not in ("identifier", "quoted") for t in names):
        refuse(f"a relation must be a name with an optional alias, not {displayed(tokens)}")
    return names[0].name, names[-1].name


def _join(kind: Literal["inner", "left"], tokens: list[Token]) -> Join:
    places = [i for i, token in enumerate(tokens) if token.keyword == "ON"]
    if not places:
        refuse("a JOIN requires a condition: ON <column of the static table> = <expression>")
    table, alias = _named(tokens[: places[0]])
    equalities: list[Equality] = []
    for part in split_at(tokens[places[0] + 1 :], "AND"):
        signs = [i for i, t in enumerate(part) if t.depth == 0 and t.kind == "operator"]
        is_one = len(signs) == 1 and part[signs[0]].text in ("=", "==")
        if not is_one or any(t.keyword in _NO_EQUALITY for t in part):
            refuse(
                f"the condition of JOIN {table} must consist of equalities with AND, not "
                f"{displayed(part)}; move other conditions to WHERE"
            )
        left, right = text_of(part[: signs[0]]), text_of(part[signs[0] + 1 :])
        if not left or not right:
            refuse(f"an equality of JOIN {table} lacks a side")
        equalities.append(Equality(left, right))
    return Join(table, alias, kind, tuple(equalities))
