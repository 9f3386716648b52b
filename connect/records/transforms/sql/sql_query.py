"""The text of a ``Sql`` transformation's query, taken apart without Spark.

Rules of this file:
- Only the outermost clauses are distinguished, and the functions that are called; what else is
  inside of them is Spark's to judge. ``worker.sql.sql_expressions`` does not rely on this file.
- What is refused here is what could not be counted record by record: subqueries, aggregates,
  sorting, limits, other joins.
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
_CASES_MAX: Final = 200  # Spark's parser takes the square of their nesting
_JOINS_MAX: Final = 16
_MOVING_LITERAL: Final = re.compile(
    r"\b(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ)\s*"
    r"r?['\"]\s*(?:now|today|yesterday|tomorrow|epoch)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Equality:
    """``left = right`` of a join's condition, as written."""

    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Join:
    """One static table of a query.

    Attributes:
        table: the name that its configuration has.
        alias: what the query calls it.
        kind: whether records without a match stay.
        on: what must be equal, at least one.
    """

    table: str
    alias: str
    kind: Literal["inner", "left"]
    on: tuple[Equality, ...]


@dataclass(frozen=True, slots=True)
class Query:
    """A query over the view ``records``.

    Attributes:
        select: its items, ``*`` and ``alias.*`` as they are.
        alias: what the query calls the records.
        joins: static tables, in order.
        where: a condition, or None.
    """

    select: tuple[str, ...]
    alias: str
    joins: tuple[Join, ...] = ()
    where: str | None = None


def parse_query(text: str) -> Query:
    """Take a query apart.

    Args:
        text: ``SELECT .. FROM records [[AS] r] [[INNER | LEFT [OUTER]] JOIN t [[AS] a] ON ..]
            [WHERE ..]``, in Spark's SQL.

    Raises:
        ConfigError: ``sql_query``: it is something else.
    """
    tokens = tokens_of(text)
    _refuse_the_uncountable(tokens)
    _refuse_functions(tokens)
    if not tokens or tokens[0].word != "SELECT":
        refuse("the query must begin with SELECT")
    starts = [i for i, token in enumerate(tokens) if token.word == "FROM"]
    if not starts:
        refuse(f"the query has no FROM {RECORDS}")
    select = tuple(map(text_of, split_at(tokens[1 : starts[0]], ",")))
    if not all(select):
        refuse("an item of the SELECT list is empty")
    rest = tokens[starts[0] + 1 :]
    ends = [i for i, token in enumerate(rest) if token.word == "WHERE"]
    where = text_of(rest[ends[0] + 1 :]) if ends else None
    if where == "":
        refuse("WHERE has no condition")
    source, *joined = _relations(rest[: ends[0]] if ends else rest)
    name, alias = _named(source[1])
    if name.lower() != RECORDS:
        refuse(f"FROM must name {RECORDS}, other tables follow with JOIN; it names {name}")
    if len(joined) > _JOINS_MAX:
        refuse(f"the query has {len(joined)} joins, {_JOINS_MAX} are allowed")
    joins = tuple(_join(kind, part) for kind, part in joined)
    aliases = [alias.lower(), *(join.alias.lower() for join in joins)]
    for each in aliases:
        if aliases.count(each) > 1:
            refuse(f"two relations of the query are called {each}")
    return Query(select, alias, joins, where)


def star_of(item: str) -> str | None:
    """The relation of ``alias.*``, an empty text for ``*``, None for any other item."""
    tokens = tokens_of(item)
    if [t.text for t in tokens] == ["*"]:
        return ""
    if len(tokens) == 3 and [t.text for t in tokens[1:]] == [".", "*"]:
        return tokens[0].name
    return None


def _refuse_the_uncountable(tokens: Sequence[Token]) -> None:
    for i, token in enumerate(tokens):
        word, following = token.word, tokens[i + 1].word if i + 1 < len(tokens) else ""
        is_word = token.kind == "word" and not token.after_dot
        if i and is_word and token.text.upper() == "SELECT":
            refuse("subqueries are not possible: records are looked at one by one")
        if word in _CLAUSES or (word in _BEFORE_BY and following == "BY"):
            refuse(f"{word} is not possible: records are looked at one by one")
        if word == "DISTINCT" and i == 1:
            refuse("DISTINCT is not possible: records are looked at one by one")
        if word in _OTHER_JOINS and (following in ("JOIN", "OUTER", "VIEW") or word == "LATERAL"):
            refuse(f"{word} is not possible: a static table is joined with JOIN or LEFT JOIN")
    if tokens and _MOVING_LITERAL.search(tokens[0].source):
        refuse("a literal that depends on the time of the query would differ when tried again")


def _refuse_functions(tokens: Sequence[Token]) -> None:
    """Refuse functions outside the allowlist, and what nests without brackets."""
    cases = types = 0
    before = ""
    for token, following in pairwise(tokens):
        if token.kind not in ("word", "quoted"):
            before = ""
            continue
        of_like = before in ("LIKE", "ILIKE")
        before = keyword = (
            token.text.upper() if token.kind == "word" and not token.after_dot else ""
        )
        cases += keyword == "CASE"
        types += keyword in _NESTED_TYPES and following.text[0] == "<"
        if cases > _CASES_MAX or types > _NESTED_TYPES_MAX:
            refuse(
                f"the query has more than {_CASES_MAX} times CASE, or more than "
                f"{_NESTED_TYPES_MAX} nested types"
            )
        if following.text != "(" or keyword in (_OF_LIKE if of_like else _BEFORE_BRACKET):
            continue
        if token.after_dot:
            refuse(f"the name of the function {token.name} is qualified: write the bare name")
        refuse_function(token.name)


def refuse_function(name: str) -> None:
    """Raise ``ConfigError`` for a function that the allowlist does not name."""
    if name.lower() not in FUNCTIONS:
        refuse(
            f"the function {name} is not allowed in a query; docs/reference/transforms/Sql.md "
            "lists those that are"
        )


def _relations(
    tokens: Sequence[Token],
) -> list[tuple[Literal["inner", "left"], list[Token]]]:
    """What follows FROM and each JOIN."""
    found: list[tuple[Literal["inner", "left"], list[Token]]] = [("inner", [])]
    for token in tokens:
        if token.word != "JOIN":
            found[-1][1].append(token)
            continue
        before = found[-1][1]
        kind: Literal["inner", "left"] = "inner"
        if before and before[-1].word == "OUTER":
            before.pop()
            if not before or before[-1].word != "LEFT":
                refuse("OUTER JOIN is not possible: a static table is joined with LEFT JOIN")
        if before and before[-1].word in ("LEFT", "INNER"):
            kind = "left" if before.pop().word == "LEFT" else "inner"
        found.append((kind, []))
    return found


def _named(tokens: Sequence[Token]) -> tuple[str, str]:
    """``name [[AS] alias]``."""
    names = [t for t in tokens if t.word != "AS"]
    if not 1 <= len(names) <= 2 or any(t.kind not in ("word", "quoted") for t in names):
        refuse(f"a relation is written as a name and perhaps an alias, not {displayed(tokens)}")
    return names[0].name, names[-1].name


def _join(kind: Literal["inner", "left"], tokens: list[Token]) -> Join:
    places = [i for i, token in enumerate(tokens) if token.word == "ON"]
    if not places:
        refuse("a JOIN needs a condition: ON <column of the static table> = <expression>")
    table, alias = _named(tokens[: places[0]])
    equalities: list[Equality] = []
    for part in split_at(tokens[places[0] + 1 :], "AND"):
        signs = [i for i, t in enumerate(part) if t.depth == 0 and t.kind == "operator"]
        is_one = len(signs) == 1 and part[signs[0]].text in ("=", "==")
        if not is_one or any(t.word in _NO_EQUALITY for t in part):
            refuse(
                f"the condition of JOIN {table} must be equalities joined by AND, others go into "
                f"WHERE; it has {displayed(part)}"
            )
        left, right = text_of(part[: signs[0]]), text_of(part[signs[0] + 1 :])
        if not left or not right:
            refuse(f"an equality of JOIN {table} lacks a side")
        equalities.append(Equality(left, right))
    return Join(table, alias, kind, tuple(equalities))
