"""Parses the expressions of a query, and checks them before Spark resolves any name in them.

Rules of this file:
- Only this file turns text into an expression, with a parser that does not substitute variables.
  The checked expression is the one that runs. It is never parsed again.
- There are two allowlists. The first has the classes and functions of parsed expressions, before
  the analysis can read a file or call a function. The second has the classes of the resolved plan,
  in which a plain name may have become a function such as ``current_user``.
- The text of Spark's errors never leaves this file: it may quote files, columns and values. An
  error names Spark's error condition and the part of the query.

Source:
    Spark 4.1, ``AstBuilder``, ``LiteralFunctionResolution``, ``FunctionRegistry``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
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
from worker.spark.jvm import gateway_of, java_session, jvm_of, query_execution
from worker.spark.source_options import map_spark_error
from worker.sql.bounded_patterns import FUNCTIONS as BOUNDED_FUNCTIONS
from worker.sql.bounded_patterns import BoundedPatterns

_CATALYST: Final = "org.apache.spark.sql.catalyst."
_OPERATORS: Final = names_of(
    """
    Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat CreateNamedStruct
    Divide EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual In IntegralDivide IsNotNull
    IsNull LambdaFunction LessThan LessThanOrEqual Like Literal Lower Multiply Not
    Or Overlay Remainder ShiftLeft ShiftRight ShiftRightUnsigned
    StringLocate StringTrim StringTrimBoth StringTrimLeft StringTrimRight Substring Subtract
    TimestampAdd TimestampDiff UnaryMinus UnaryPositive Alias
    """
)
_PATTERNS: Final = names_of("ILike LikeAll LikeAny NotLikeAll NotLikeAny RLike")
"""Operators of patterns; ``worker.sql.bounded_patterns`` replaces them."""
_UNRESOLVED: Final = ("UnresolvedNamedLambdaVariable", "NamePlaceholder$")
_PARSED: Final = frozenset(
    {f"{_CATALYST}expressions.{name}" for name in _OPERATORS | _PATTERNS}
    | {f"{_CATALYST}expressions.{name}" for name in _UNRESOLVED}
    | {f"{_CATALYST}analysis.Unresolved{name}" for name in ("Attribute", "ExtractValue")}
    | {f"{_CATALYST}analysis.UnresolvedFunction"}
)
_PARSED_ANONYMOUS: Final = re.compile(
    re.escape(f"{_CATALYST}expressions.") + r"Is(?:Not)?Unknown\$\$anon\$\d+"
)
_SYNTAX: Final = frozenset({"case", "div", "try_cast", "timestampadd", "timestampdiff"})
"""Names in the list of functions that the parser treats as syntax."""

_RESOLVED: Final = _OPERATORS | names_of(
    """
    AttributeReference Ceil CommonExpressionDef CommonExpressionRef Contains Coalesce
    DateAddInterval DateAddYMInterval DatetimeSub DayOfWeek ExtractANSIIntervalDays SubtractDates
    SubtractTimestamps TimestampAddInterval TimestampAddYMInterval TryMakeTimestamp
    EndsWith Extract Floor GetArrayItem GetArrayStructFields GetMapValue GetStructField Hour
    HourOfTime HoursOfTime If Invoke
    KnownNotNull Left Length MakeDate MakeTimestamp Mask MakeTimestampNTZ
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
"""Error conditions with a parameter that is a name in the query."""
_TIMES_OF_RECORDS: Final = frozenset({"STRING", "INT", "BIGINT", "DOUBLE"})
"""Types of fields of records that may be times."""


class Expressions:
    """Turns text of a query into expressions of Spark.

    Args:
        spark: the worker's session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._jvm = jvm_of(spark)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._parser = catalyst.parser.CatalystSqlParser()
        self._patterns = catalyst.trees.TreePattern
        self._utils = self._jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._bounded = BoundedPatterns(spark, refuse)
        self._parsed: dict[str, Any] = {}
        self._columns: dict[str, Column] = {}
        self._resolved = _RESOLVED | _classes_of_functions(spark.sparkContext)

    def column(self, text: str, *, is_bounded: bool = True) -> Column:
        """Parse and check an expression of the query.

        Args:
            text: as written.
            is_bounded: whether it may run; without, Spark names its column as for the text.

        Raises:
            ConfigError: ``sql_query``: Spark cannot parse it, or a part of it is not allowed.
        """
        if text not in self._parsed:
            with spark_refusals(text):
                session = java_session(self._spark)
                self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
                parsed = self._parser.parseExpression(text)
            _check_parsed(parsed, text)
            self._parsed[text] = parsed
        if not is_bounded:
            return Column(self._utils.column(self._parsed[text]))
        if text not in self._columns:
            bounded = self._bounded.replaced(self._parsed[text], text)
            self._columns[text] = Column(self._utils.column(bounded))
        return self._columns[text]

    def tried(self, inner: Column) -> Column:
        """Return the expression with null instead of an error for a row."""
        expression = self._utils.expression(inner._jc)  # noqa: SLF001 - no public way
        guarded = self._jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expression)
        return Column(self._utils.column(guarded))

    def check_plan(self, rows: DataFrame) -> None:
        """Check that a resolved plan has only allowed nodes and expressions.

        Raises:
            ConfigError: ``sql_query``.
        """
        plan = analyzed(rows)
        patterns = self._patterns
        for node in _nodes(plan):
            name = str(node.nodeName())
            if name not in _NODES:
                refuse(f"{name} is not supported: the query runs on each record alone")
        if plan.containsPattern(patterns.PLAN_EXPRESSION()):
            refuse("subqueries are not supported: the query runs on each record alone")
        if not plan.deterministic() or plan.containsPattern(patterns.CURRENT_LIKE()):
            refuse("a function of the query may return another result in a retry")
        for node in _nodes(plan):
            for expression in items(node.expressions()):
                for each, _ in _walked(expression):
                    kind = simple_name(each)
                    is_pattern = kind in ("Invoke", "Like")
                    is_allowed = not is_pattern or self._bounded.is_bounded(each)
                    if kind not in self._resolved or not is_allowed:
                        refuse(f"{kind} is not allowed in a query")


@contextmanager
def spark_refusals(part: str = "") -> Iterator[None]:
    """Map Spark's errors about a query to errors without Spark's text.

    Args:
        part: the part of the query, for the message.
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
            refusal = _error(f"{_shortened(part)} is nested too deeply")
    if refusal is not None:
        raise refusal from None  # a trace must not show the text of Spark's error


@contextmanager
def spark_failures() -> Iterator[None]:
    """Map errors of a query's batch to errors without Spark's text."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise map_spark_error(error, is_query=True) from None


def analyzed(rows: DataFrame) -> Any:
    """Return the resolved plan of a DataFrame."""
    return query_execution(rows).analyzed()


def refuse(why: str) -> NoReturn:
    """Raise a ``ConfigError`` about the query."""
    raise _error(why)


def _error(why: str) -> ConfigError:
    return ConfigError(f"the query of Sql: {why}", code="sql_query")


def _refusal(error: PySparkException, part: str) -> IcefloeError:
    condition = error.getCondition()
    if condition is None or not re.fullmatch(r"[A-Z0-9_]+(\.[A-Z0-9_]+)*", condition):
        return map_spark_error(error, is_query=True)
    named = _NAMED.get(condition.split(".")[0])
    parameters = error.getMessageParameters() or {}
    name = parameters.get(named, "") if named else ""
    place = f" at {_shortened(part)}" if part else ""
    advice = ""
    is_time = any(kind in parameters.get("requiredType", "") for kind in ("TIMESTAMP", "DATE"))
    if is_time and parameters.get("inputType", "").strip('"') in _TIMES_OF_RECORDS:
        advice = "; convert it with the transformation ParseTimestamp, and declare it TIMESTAMP"
    shown = f" {_shortened(name)}" if name else ""
    return _error(f"Spark rejects it{place}: {condition}{shown}{advice}")


def _check_parsed(parsed: Any, text: str) -> None:
    for expression, depth in _walked(parsed):
        name = str(expression.getClass().getName())
        if depth > _DEPTH_MAX:
            refuse(f"{_shortened(text)} is nested more than {_DEPTH_MAX} deep")
        if name not in _PARSED and not _PARSED_ANONYMOUS.fullmatch(name):
            refuse(f"{_form(name)} is not allowed: {_shortened(text)}")
        if name.endswith(".UnresolvedFunction"):
            _check_call(expression)
        elif name.endswith(".UnresolvedAttribute"):
            parts = [str(part) for part in items(expression.nameParts())]
            if any(part.startswith("__") for part in parts):
                refuse(f"no column has the name {_shortened('.'.join(parts))}")


def _check_call(call: Any) -> None:
    parts = [str(part) for part in items(call.nameParts())]
    if len(parts) != 1:
        refuse(f"the name of the function {_shortened('.'.join(parts))} is qualified")
    name = parts[0].lower()
    refuse_function(name)
    if call.isDistinct() or call.filter().isDefined() or call.ignoreNulls():
        refuse(f"{name} does not support DISTINCT, FILTER or IGNORE NULLS")
    _check_arguments(name, list(items(call.arguments())))


def _check_arguments(name: str, arguments: list[Any]) -> None:
    if len(arguments) > ARGUMENTS_MAX.get(name, len(arguments)):
        refuse(f"options of {name} are not supported")
    if name in BOUNDED:
        index, largest = BOUNDED[name]
        if len(arguments) > index and not _is_small(arguments[index], largest):
            refuse(
                f"argument {index + 1} of {name} must be an integer literal between "
                f"-{largest} and {largest}"
            )
    for index in LITERALS.get(name, ()):
        if index < len(arguments) and literal_of(arguments[index]) is None:
            refuse(f"argument {index + 1} of {name} must be a literal")
    if name in SCHEMAS and not _is_flat_text(arguments[1] if len(arguments) > 1 else None):
        refuse(f"argument 2 of {name} must be a schema of at most {NESTING_MAX} nested types")
    if name in FORMATS:
        text = literal_of(arguments[0]) if arguments else None
        if not isinstance(text, str) or _WIDTH_DIGITS.search(text):
            refuse(f"argument 1 of {name} must be a string with numbers of at most three digits")


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
    """Return the value of a literal: an integer, or other values as text; None if not a literal."""
    if simple_name(expression) != "Literal":
        return None
    value = expression.value()
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    return str(value.toString()) if isinstance(value, JavaObject) else str(value)


def _form(class_name: str) -> str:
    """Return the name of a refused kind of expression."""
    name = class_name.rsplit(".", 1)[-1].split("$", maxsplit=1)[0]
    if name in ("Exists", "ListQuery", "InSubquery", "ScalarSubquery"):
        return "a subquery"
    return {"UnresolvedStar": "* inside an expression"}.get(name, name)


@functools.lru_cache(maxsize=1)
def _classes_of_functions(context: SparkContext) -> frozenset[str]:
    """Return the classes to which Spark resolves the allowed functions: 1,500 calls of the JVM."""
    jvm = gateway_of(context).jvm
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    class_names = set()
    for name in FUNCTIONS - _SYNTAX - BOUNDED_FUNCTIONS:
        function = registry.lookupFunction(
            jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        )
        if function.isDefined():
            class_names.add(str(function.get().getClassName()).rsplit(".", 1)[-1])
    return frozenset(class_names)


def _walked(expression: Any) -> Iterator[tuple[Any, int]]:
    """Yield all parts of an expression with their depth."""
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
    """Yield the items of a Scala sequence."""
    for index in range(sequence.size()):
        yield sequence.apply(index)


def simple_name(expression: Any) -> str:
    """Return the class of an expression or type, without its package."""
    return str(expression.getClass().getName()).rsplit(".", 1)[-1]


def _shortened(text: str) -> str:
    one_line = " ".join(text.split())
    if len(one_line) <= _SHOWN_CHARACTERS_MAX:
        return one_line
    return f"{one_line[:_SHOWN_CHARACTERS_MAX]}..."
