"""The text of a ``Sql`` transformation's query, taken apart without Spark.

Rules of this file:
- Only the outermost clauses are told apart; what is inside of them is Spark's to judge.
- What is refused here is what could not be counted record by record: subqueries, aggregates,
  sorting, limits, other joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from connect.errors import ConfigError

RECORDS: Final = "records"
_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    |(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<operator><=>|<=|>=|!=|<>|==|=)
    |(?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_CLAUSES: Final = frozenset({"HAVING", "UNION", "INTERSECT", "EXCEPT", "LIMIT", "QUALIFY"})
_BEFORE_BY: Final = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})
_OTHER_JOINS: Final = frozenset({"RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI", "LATERAL"})
_NO_EQUALITY: Final = frozenset({"OR", "NOT", "IN", "LIKE", "RLIKE", "BETWEEN", "IS"})
_MOVING_LITERAL: Final = re.compile(
    r"\b(?:DATE|TIMESTAMP|TIMESTAMP_NTZ|TIMESTAMP_LTZ)\s*"
    r"['\"]\s*(?:now|today|yesterday|tomorrow|epoch)\b",
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


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    depth: int
    after_dot: bool
    source: str
    start: int
    end: int

    @property
    def text(self) -> str:
        """As written."""
        return self.source[self.start : self.end]

    @property
    def word(self) -> str:
        """The word in capitals where it may be a keyword; else empty."""
        is_keyword = self.kind == "word" and self.depth == 0 and not self.after_dot
        return self.text.upper() if is_keyword else ""


def parse_query(text: str) -> Query:
    """Take a query apart.

    Args:
        text: ``SELECT .. FROM records [[AS] r] [[INNER | LEFT [OUTER]] JOIN t [[AS] a] ON ..]
            [WHERE ..]``, in Spark's SQL.

    Raises:
        ConfigError: ``sql_query``: it is something else.
    """
    tokens = _tokens(text)
    _refuse_the_uncountable(text, tokens)
    if not tokens or tokens[0].word != "SELECT":
        _refuse("the query must begin with SELECT")
    starts = [i for i, token in enumerate(tokens) if token.word == "FROM"]
    if not starts:
        _refuse(f"the query has no FROM {RECORDS}")
    select = tuple(map(_text, _split(tokens[1 : starts[0]], ",")))
    if not all(select):
        _refuse("an item of the SELECT list is empty")
    rest = tokens[starts[0] + 1 :]
    ends = [i for i, token in enumerate(rest) if token.word == "WHERE"]
    where = _text(rest[ends[0] + 1 :]) if ends else None
    if where == "":
        _refuse("WHERE has no condition")
    source, *joined = _relations(rest[: ends[0]] if ends else rest)
    name, alias = _named(source[1])
    if name.lower() != RECORDS:
        _refuse(f"FROM must name {RECORDS}, other tables follow with JOIN; it names {name}")
    joins = tuple(_join(kind, part) for kind, part in joined)
    aliases = [alias.lower(), *(join.alias.lower() for join in joins)]
    for each in aliases:
        if aliases.count(each) > 1:
            _refuse(f"two relations of the query are called {each}")
    return Query(select, alias, joins, where)


def star_of(item: str) -> str | None:
    """The relation of ``alias.*``, an empty text for ``*``, None for any other item."""
    tokens = _tokens(item)
    if [t.text for t in tokens] == ["*"]:
        return ""
    if len(tokens) == 3 and [t.text for t in tokens[1:]] == [".", "*"]:
        return _name(tokens[0])
    return None


def split_names(text: str) -> list[tuple[str, str]]:
    """``name rest, name rest``, commas within brackets belong to the rest.

    Raises:
        ConfigError: ``sql_query``: an entry is no name with something behind it.
    """
    found: list[tuple[str, str]] = []
    for part in _split(_tokens(text, brackets="(<"), ","):
        if len(part) < 2 or part[0].kind not in ("word", "quoted"):
            _refuse(f"a column is written as a name and a type, not {_text(part) or 'nothing'}")
        found.append((_name(part[0]), _text(part[1:])))
    return found


def _refuse(why: str) -> NoReturn:
    raise ConfigError(why, code="sql_query")


def _tokens(text: str, brackets: str = "([") -> list[_Token]:
    closing = {"(": ")", "[": "]", "<": ">"}
    ends = {closing[c] for c in brackets}
    clean = _TOKEN.sub(lambda m: " " * len(m[0]) if m["comment"] else m[0], text)
    found: list[_Token] = []
    depth = 0
    for match in _TOKEN.finditer(clean):
        kind, piece = str(match.lastgroup), match.group()
        if piece in ends:
            depth -= 1
        is_after_dot = bool(found) and found[-1].text == "."
        found.append(_Token(kind, depth, is_after_dot, clean, match.start(), match.end()))
        if piece in brackets:
            depth += 1
        if depth < 0:
            break
    if depth:
        _refuse("brackets do not match")
    if found and found[-1].text == ";":
        found.pop()
    return found


def _refuse_the_uncountable(text: str, tokens: Sequence[_Token]) -> None:
    for i, token in enumerate(tokens):
        word, following = token.word, tokens[i + 1].word if i + 1 < len(tokens) else ""
        is_word = token.kind == "word" and not token.after_dot
        if i and is_word and token.text.upper() == "SELECT":
            _refuse("subqueries are not possible: records are looked at one by one")
        if word in _CLAUSES or (word in _BEFORE_BY and following == "BY"):
            _refuse(f"{word} is not possible: records are looked at one by one")
        if word == "DISTINCT" and i == 1:
            _refuse("DISTINCT is not possible: records are looked at one by one")
        if word in _OTHER_JOINS and (following in ("JOIN", "OUTER", "VIEW") or word == "LATERAL"):
            _refuse(f"{word} is not possible: a static table is joined with JOIN or LEFT JOIN")
    if _MOVING_LITERAL.search(text):
        _refuse("a literal that depends on the time of the query would differ when tried again")


def _text(tokens: Sequence[_Token]) -> str:
    """Tokens as they were written, comments blanked."""
    return tokens[0].source[tokens[0].start : tokens[-1].end] if tokens else ""


def _split(tokens: Sequence[_Token], at: str) -> Iterator[list[_Token]]:
    part: list[_Token] = []
    for token in tokens:
        if token.depth == 0 and at in (token.text, token.word):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _relations(
    tokens: Sequence[_Token],
) -> list[tuple[Literal["inner", "left"], list[_Token]]]:
    """What follows FROM and each JOIN."""
    found: list[tuple[Literal["inner", "left"], list[_Token]]] = [("inner", [])]
    for token in tokens:
        if token.word != "JOIN":
            found[-1][1].append(token)
            continue
        before = found[-1][1]
        kind: Literal["inner", "left"] = "inner"
        if before and before[-1].word == "OUTER":
            before.pop()
            if not before or before[-1].word != "LEFT":
                _refuse("OUTER JOIN is not possible: a static table is joined with LEFT JOIN")
        if before and before[-1].word in ("LEFT", "INNER"):
            kind = "left" if before.pop().word == "LEFT" else "inner"
        found.append((kind, []))
    return found


def _named(tokens: Sequence[_Token]) -> tuple[str, str]:
    """``name [[AS] alias]``."""
    names = [t for t in tokens if t.word != "AS"]
    if not 1 <= len(names) <= 2 or any(t.kind not in ("word", "quoted") for t in names):
        _refuse(f"a relation is written as a name and perhaps an alias, not {_text(tokens)!r}")
    return _name(names[0]), _name(names[-1])


def _name(token: _Token) -> str:
    return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text


def _join(kind: Literal["inner", "left"], tokens: list[_Token]) -> Join:
    places = [i for i, token in enumerate(tokens) if token.word == "ON"]
    if not places:
        _refuse("a JOIN needs a condition: ON <column of the static table> = <expression>")
    table, alias = _named(tokens[: places[0]])
    equalities: list[Equality] = []
    for part in _split(tokens[places[0] + 1 :], "AND"):
        signs = [i for i, t in enumerate(part) if t.depth == 0 and t.kind == "operator"]
        is_one = len(signs) == 1 and part[signs[0]].text in ("=", "==")
        if not is_one or any(t.word in _NO_EQUALITY for t in part):
            _refuse(
                f"the condition of JOIN {table} must be equalities joined by AND, others go into "
                f"WHERE; it has {_text(part)}"
            )
        left, right = _text(part[: signs[0]]), _text(part[signs[0] + 1 :])
        if not left or not right:
            _refuse(f"an equality of JOIN {table} lacks a side")
        equalities.append(Equality(left, right))
    return Join(table, alias, kind, tuple(equalities))
