"""Expressions of a query: parsed once, and judged before Spark resolves any name in them.

Rules of this file:
- Text becomes an expression here and nowhere else, by the parser that replaces no variables. What
  was judged is what runs: it is never parsed again from text that something else may change.
- Judged is an allowlist, twice: the kinds and functions of the parsed expression, before analysis
  may read a file or call anything; and the kinds of the resolved plan, where a bare name may have
  become a function such as ``current_user``.
- No text of Spark's errors leaves this file: it may quote files, columns and values. A refusal
  names the error's condition and the part of the query.

Source:
    Spark 4.1, ``AstBuilder``, ``LiteralFunctionResolution``, ``FunctionRegistry``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from connect.errors import ConfigError, IcefloeError
from connect.records.transforms.sql.sql_functions import (
    ARGUMENTS_MAX,
    BOUNDED,
    FORMATS,
    FUNCTIONS,
    LITERALS,
    SCHEMAS,
    names_of,
)
from connect.records.transforms.sql.sql_query import refuse_function
from connect.records.transforms.sql.sql_tokens import CHARACTERS_MAX, NESTING_MAX
from worker.spark.source_options import map_spark_error

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_OPERATORS: Final = names_of(
    """
    Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat CreateNamedStruct
    Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In IntegralDivide IsNotNull
    IsNull LambdaFunction LessThan LessThanOrEqual Like LikeAll LikeAny Literal Lower Multiply Not
    NotLikeAll NotLikeAny Or Overlay RLike Remainder ShiftLeft ShiftRight ShiftRightUnsigned
    StringLocate StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring Subtract
    TimestampAdd TimestampDiff UnaryMinus UnaryPositive Alias
    """
)
_UNRESOLVED: Final = ("UnresolvedNamedLambdaVariable", "NamePlaceholder$")
_PARSED: Final = frozenset(
    {f"{_CATALYST}expressions.{name}" for name in _OPERATORS}
    | {f"{_CATALYST}expressions.{name}" for name in _UNRESOLVED}
    | {f"{_CATALYST}analysis.Unresolved{name}" for name in ("Attribute", "ExtractValue")}
    | {f"{_CATALYST}analysis.UnresolvedFunction"}
)
_PARSED_ANONYMOUS: Final = re.compile(
    re.escape(f"{_CATALYST}expressions.") + r"Is(?:Not)?Unknown\$\$anon\$\d+"
)
_SYNTAX: Final = frozenset({"case", "div", "try_cast", "timestampadd", "timestampdiff"})
"""Names on the list of functions that the parser takes as syntax."""

_RESOLVED: Final = _OPERATORS | names_of(
    """
    AttributeReference Ceil CommonExpressionDef CommonExpressionRef Contains Coalesce
    DateAddInterval DateAddYMInterval DatetimeSub DayOfWeek ExtractANSIIntervalDays SubtractDates
    SubtractTimestamps TimestampAddInterval TimestampAddYMInterval TryMakeTimestamp
    EndsWith Extract Floor GetArrayItem GetArrayStructFields GetMapValue GetStructField Hour
    HourOfTime HoursOfTime If KnownNotNull Left Length MakeDate MakeTimestamp Mask MakeTimestampNTZ
    MakeTimestampLTZ Minute Month NamedLambdaVariable ParseToTimestamp RoundCeil RoundFloor Second
    SecondWithFraction SecondsToTimestamp StartsWith StringDecode StringLPad StringRPad StringTrim
    ToBinary ToCharacter TryEval TryToDate TryToTimestamp TypedNullLiteral With Year
    """
)
_NODES: Final = frozenset(
    {"Project", "Join", "SubqueryAlias", "LocalRelation", "LogicalRDD", "ResolvedHint"}
)
_NODES_MAX: Final = 3_000
_DEPTH_MAX: Final = 200
_WIDTH_DIGITS: Final = re.compile(r"\d{4}")
_SHOWN_CHARACTERS_MAX: Final = 120
_NAMED: Final = {
    "UNRESOLVED_COLUMN": "objectName",
    "UNRESOLVED_ROUTINE": "routineName",
    "AMBIGUOUS_REFERENCE": "name",
}
"""Conditions whose parameter is a name that the query itself holds."""


class Expressions:
    """The one way from a query's text into Spark.

    Args:
        spark: the worker's session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm  # noqa: SLF001 - pyspark gives no way to the parser
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._parser = catalyst.parser.CatalystSqlParser()
        self._patterns = catalyst.trees.TreePattern
        self._utils = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._judged: set[str] = set()
        self._resolved = _RESOLVED | _classes_of_functions(spark)

    def column(self, text: str) -> Column:
        """An expression of the query.

        Raises:
            ConfigError: ``sql_query``: Spark cannot parse it, or something in it is not allowed.
        """
        with spark_refusals(text):
            session = self._spark._jsparkSession  # noqa: SLF001 - no public way
            self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
            parsed = self._parser.parseExpression(text)
        if text not in self._judged:
            _judge_parsed(parsed, text)
            self._judged.add(text)
        return Column(self._utils.column(parsed))

    def tried(self, inner: Column) -> Column:
        """The same expression; null where it fails for a row."""
        expression = self._utils.expression(inner._jc)  # noqa: SLF001 - no public way
        made = self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression)
        return Column(self._utils.column(made))

    def judge(self, rows: DataFrame) -> None:
        """Refuse what a resolved plan may not hold.

        Raises:
            ConfigError: ``sql_query``.
        """
        plan = analyzed(rows)
        patterns = self._patterns
        for node in _nodes(plan):
            name = str(node.nodeName())
            if name not in _NODES:
                refuse(f"{name} is not possible: records are looked at one by one")
        if plan.containsPattern(patterns.PLAN_EXPRESSION()):
            refuse("subqueries are not possible: records are looked at one by one")
        if not plan.deterministic() or plan.containsPattern(patterns.CURRENT_LIKE()):
            refuse("a function of the query gives another result when it is tried again")
        for node in _nodes(plan):
            for expression in items(node.expressions()):
                for each, _ in _walked(expression):
                    kind = simple_name(each)
                    if kind not in self._resolved:
                        refuse(f"{kind} is not allowed in a query")


@contextmanager
def spark_refusals(part: str = "") -> Iterator[None]:
    """Turn what Spark says of a query into our own words.

    Args:
        part: of the query.
    """
    refusal: IcefloeError | None = None
    try:
        yield
    except PySparkException as error:
        refusal = _refusal(error, part)
    except Py4JJavaError as error:
        if "StackOverflowError" not in str(error.java_exception.getClass().getName()):
            refusal = map_spark_error(error, is_query=True)
        else:
            refusal = _error(f"{_displayed(part)} is nested too deeply")
    if refusal is not None:
        raise refusal from None  # traces show no error of Spark's


@contextmanager
def spark_failures() -> Iterator[None]:
    """Turn what Spark raises out of a query's batch into our own words, without Spark's text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise map_spark_error(error, is_query=True) from None


def analyzed(rows: DataFrame) -> Any:
    """The resolved plan of rows."""
    return rows._jdf.queryExecution().analyzed()  # noqa: SLF001 - pyspark shows no plan


def refuse(why: str) -> NoReturn:
    """Raise ``ConfigError`` about the query."""
    raise _error(why)


def _error(why: str) -> ConfigError:
    return ConfigError(f"the query of Sql: {why}", code="sql_query")


def _refusal(error: PySparkException, part: str) -> IcefloeError:
    condition = error.getCondition()
    if condition is None or not re.fullmatch(r"[A-Z0-9_]+(\.[A-Z0-9_]+)*", condition):
        return map_spark_error(error, is_query=True)
    named = _NAMED.get(condition.split(".")[0])
    name = (error.getMessageParameters() or {}).get(named, "") if named else ""
    place = f" at {_displayed(part)}" if part else ""
    return _error(f"Spark refuses it{place}: {condition}{f' {_displayed(name)}' if name else ''}")


def _judge_parsed(parsed: Any, text: str) -> None:
    for expression, depth in _walked(parsed):
        name = str(expression.getClass().getName())
        if depth > _DEPTH_MAX:
            refuse(f"{_displayed(text)} is nested more than {_DEPTH_MAX} deep")
        if name not in _PARSED and not _PARSED_ANONYMOUS.fullmatch(name):
            refuse(f"{_form(name)} is not allowed: {_displayed(text)}")
        if name.endswith(".UnresolvedFunction"):
            _judge_call(expression)
        elif name.endswith(".UnresolvedAttribute"):
            parts = [str(part) for part in items(expression.nameParts())]
            if any(part.startswith("__") for part in parts):
                refuse(f"no column is called {_displayed('.'.join(parts))}")


def _judge_call(call: Any) -> None:
    parts = [str(part) for part in items(call.nameParts())]
    if len(parts) != 1:
        refuse(f"the name of the function {_displayed('.'.join(parts))} is qualified")
    name = parts[0].lower()
    refuse_function(name)
    if call.isDistinct() or call.filter().isDefined() or call.ignoreNulls():
        refuse(f"{name} takes no DISTINCT, FILTER or IGNORE NULLS")
    _judge_arguments(name, list(items(call.arguments())))


def _judge_arguments(name: str, arguments: list[Any]) -> None:
    if len(arguments) > ARGUMENTS_MAX.get(name, len(arguments)):
        refuse(f"{name} takes no options")
    if name in BOUNDED:
        place, largest = BOUNDED[name]
        if len(arguments) > place and not _is_small(arguments[place], largest):
            refuse(
                f"argument {place + 1} of {name} must be a whole number between "
                f"-{largest} and {largest}, written as such"
            )
    for place in LITERALS.get(name, ()):
        if place < len(arguments) and literal_of(arguments[place]) is None:
            refuse(f"argument {place + 1} of {name} must be written as a literal")
    if name in SCHEMAS and not _is_flat_text(arguments[1] if len(arguments) > 1 else None):
        refuse(f"argument 2 of {name} must be a schema of at most {NESTING_MAX} nested types")
    if name in FORMATS:
        text = literal_of(arguments[0]) if arguments else None
        if not isinstance(text, str) or _WIDTH_DIGITS.search(text):
            refuse(f"argument 1 of {name} must be a text, with numbers of at most three digits")


def _is_small(argument: Any, largest: int) -> bool:
    is_negative = simple_name(argument) == "UnaryMinus"
    value = literal_of(argument.child() if is_negative else argument)
    return isinstance(value, int) and abs(value) <= largest


def _is_flat_text(argument: Any) -> bool:
    text = None if argument is None else literal_of(argument)
    if not isinstance(text, str) or len(text) > CHARACTERS_MAX:
        return False
    return max(text.count("<"), text.count("{"), text.count("[")) <= NESTING_MAX


def literal_of(expression: Any) -> Any:
    """The value of a literal: a whole number, or anything else as text; None for no literal."""
    if simple_name(expression) != "Literal":
        return None
    value = expression.value()
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return str(value.toString()) if isinstance(value, JavaObject) else str(value)


def _form(class_name: str) -> str:
    """What a refused kind of expression is called."""
    name = class_name.rsplit(".", 1)[-1].split("$", maxsplit=1)[0]
    if name in ("Exists", "ListQuery", "InSubquery", "ScalarSubquery"):
        return "a subquery"
    return {"UnresolvedStar": "* inside of an expression"}.get(name, name)


def _classes_of_functions(spark: SparkSession) -> frozenset[str]:
    """The classes that Spark resolves the allowed functions to."""
    jvm: Any = spark._jvm  # noqa: SLF001 - no public way
    state = spark._jsparkSession.sessionState()  # noqa: SLF001 - the same
    registry, made = state.functionRegistry(), set()
    for name in FUNCTIONS - _SYNTAX:
        found = registry.lookupFunction(jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name))
        if found.isDefined():
            made.add(str(found.get().getClassName()).rsplit(".", 1)[-1])
    return frozenset(made)


def _walked(expression: Any) -> Iterator[tuple[Any, int]]:
    """All parts of an expression, with how deep they are."""
    left = [(expression, 0)]
    count = 0
    while left:
        each, depth = left.pop()
        count += 1
        if count > _NODES_MAX:
            refuse(f"an expression has more than {_NODES_MAX} parts")
        yield each, depth
        left += [(child, depth + 1) for child in items(each.children())]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def items(sequence: Any) -> Iterator[Any]:
    """The items of a sequence of Scala's."""
    for place in range(sequence.size()):
        yield sequence.apply(place)


def simple_name(expression: Any) -> str:
    """The class of an expression or type, without its package."""
    return str(expression.getClass().getName()).rsplit(".", 1)[-1]


def _displayed(text: str) -> str:
    one_line = " ".join(text.split())
    if len(one_line) <= _SHOWN_CHARACTERS_MAX:
        return one_line
    return f"{one_line[:_SHOWN_CHARACTERS_MAX]}..."
