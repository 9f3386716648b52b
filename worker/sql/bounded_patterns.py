"""Pattern functions of a query, with a bounded number of matching steps for each record.

Rules of this file:
- Spark's own functions for regular expressions never run. Before Spark resolves the query, each
  call becomes a call of ``BoundedPatterns.java``. Any remaining call is refused.
- Patterns must be literals, so that they are checked once, before any record. On a node with users
  they must be those of ``pattern_rules``: counted steps alone do not bound the time of all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from connect.gateways.access_policy import access_policy
from worker.spark.compiled_java import load_class, new_instance
from worker.spark.jvm import jvm_of
from worker.sql.pattern_rules import (
    PatternRefusedError,
    check_delimiter,
    check_pattern,
    once_per_line,
)

CALLS_MAX: Final = 50
_PACKAGE: Final = "icefloe.sql.BoundedPatterns"
_SHOWN_CHARACTERS_MAX: Final = 120
_LIKE_CHARACTERS_MAX: Final = 1_000
# Spark runs these as startsWith, endsWith, contains or comparisons, without a pattern
_SIMPLE_LIKE: Final = re.compile(r"%?[^%_\\]*%?|[^%_\\]*%[^%_\\]*", re.DOTALL)
_ARGUMENTS: Final = {
    "rlike": ("find", "Boolean", 2, 2),
    "regexp": ("find", "Boolean", 2, 2),
    "regexp_like": ("find", "Boolean", 2, 2),
    "regexp_count": ("count", "Integer", 2, 2),
    "regexp_extract": ("extract", "String", 2, 3),
    "regexp_instr": ("position", "Integer", 2, 3),
    "regexp_replace": ("replace", "String", 3, 4),
    "regexp_substr": ("first", "String", 2, 2),
    "split": ("split", "Array", 2, 3),
}
"""Function -> method, type of its value, and number of its arguments."""
_LAST: Final = {"extract": 1, "position": 0, "replace": 1, "split": -1}
"""Method -> default of its last argument, an integer."""
_MULTIPLE: Final = {
    "LikeAll": ("And", False),
    "LikeAny": ("Or", False),
    "NotLikeAll": ("And", True),
    "NotLikeAny": ("Or", True),
}
FUNCTIONS: Final = frozenset({*_ARGUMENTS, "like", "ilike"})
"""Functions that this file replaces."""
_DELIMITERS: Final = {"str_to_map": 1, "parse_url": 2, "try_parse_url": 2}
"""Function -> index of the first argument that it passes to Java's matcher."""


class BoundedPatterns:
    """Replaces calls of pattern functions in parsed expressions.

    Args:
        spark: the worker's session.
        refuse: raises an error about the query.
    """

    def __init__(self, spark: SparkSession, refuse: Callable[[str], NoReturn]) -> None:
        self._spark = spark
        self._refuse = refuse
        self._jvm = jvm_of(spark)
        self._catalyst = self._jvm.org.apache.spark.sql.catalyst
        self._compiled: dict[tuple[str, ...], Any] = {}
        self._calls: dict[str, int] = {}
        self._text = ""

    def replaced(self, expression: Any, text: str) -> Any:
        """Return a parsed expression with all pattern functions replaced by bounded ones.

        Args:
            expression: as parsed.
            text: its text in the query.

        Raises:
            ConfigError: a pattern is not a literal, or not supported.
        """
        self._calls[text] = 0
        self._text = text
        return self._replaced(expression)

    def _replaced(self, expression: Any) -> Any:
        children = [_item(expression.children(), i) for i in range(expression.children().size())]
        replaced = [self._replaced(child) for child in children]
        if any(new is not old for new, old in zip(replaced, children, strict=True)):
            expression = expression.withNewChildren(self._sequence(replaced))
        kind = _simple_name(expression)
        if kind == "UnresolvedFunction":
            return self._call(expression)
        if kind == "RLike":
            return self._of_regex("rlike", [expression.left(), expression.right()]) or expression
        if kind in ("Like", "ILike"):
            escape = str(expression.escapeChar())
            return self._like(
                expression.left(), expression.right(), escape, is_folding=kind == "ILike"
            )
        if kind in _MULTIPLE:
            return self._likes(kind, expression)
        return expression

    def is_bounded(self, expression: Any) -> bool:
        """Return whether a resolved ``Invoke`` or ``Like`` is bounded."""
        if _simple_name(expression) == "Like":
            pattern = _text(expression.right())
            return pattern is not None and _is_simple(pattern, str(expression.escapeChar()))
        target = expression.targetObject()
        return _simple_name(target) == "Literal" and str(
            target.value().getClass().getName()
        ).startswith(f"{_PACKAGE}$")

    # -------------------------------------------------------------- calls

    def _call(self, call: Any) -> Any:
        name = str(_item(call.nameParts(), 0)).lower()
        arguments = [_item(call.arguments(), i) for i in range(call.arguments().size())]
        if name in _ARGUMENTS:
            return self._of_regex(name, arguments) or call
        if name in ("like", "ilike") and len(arguments) in (2, 3):
            escape = "\\" if len(arguments) == 2 else _text(arguments[2])
            if escape is None or len(escape) != 1:
                self._refuse(f"the escape character of {name} must be a literal of one character")
            return self._like(arguments[0], arguments[1], escape, is_folding=name == "ilike")
        if name in _DELIMITERS:
            for argument in arguments[_DELIMITERS[name] :]:
                self._check(check_delimiter, self._pattern(name, argument))
        return call

    def _of_regex(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return the bounded call; None if Spark will refuse the number of arguments."""
        method, kind, least, most = _ARGUMENTS[name]
        if not least <= len(arguments) <= most:
            return None
        text, pattern, *others = arguments
        written = self._pattern(name, pattern)
        if access_policy().is_guarded:
            self._check(check_pattern, written)
        target = self._target("Regex", written, once_per_line(written))
        types = [self._type("String")]
        if method in _LAST:
            if len(arguments) < most:
                others.append(self._literal(_LAST[method]))
            types += [self._type("String")] * (len(others) - 1) + [self._type("Integer")]
        if method == "replace":
            position = others[1].value() if _simple_name(others[1]) == "Literal" else None
            if not isinstance(position, int) or position < 1:
                self._refuse(f"the position of {name} must be an integer literal above 0")
        return self._invoke(target, method, kind, [text, *others], types)

    def _like(self, text: Any, pattern: Any, escape: str, *, is_folding: bool) -> Any:
        written = self._pattern("like", pattern)
        if len(written) > _LIKE_CHARACTERS_MAX:
            self._refuse(
                f"a pattern of LIKE has {len(written)} characters; the maximum is "
                f"{_LIKE_CHARACTERS_MAX}"
            )
        expressions = self._catalyst.expressions
        if is_folding:
            text = expressions.Lower(text)
            written = str(expressions.Lower(self._literal(written)).eval(None).toString())
        if _is_simple(written, escape):
            return expressions.Like(text, self._literal(written), escape)
        target = self._target("Like", written, escape)
        return self._invoke(target, "matches", "Boolean", [text], [self._type("String")])

    def _likes(self, kind: str, expression: Any) -> Any:
        """Replace LIKE ANY and LIKE ALL by LIKE comparisons joined by OR and AND."""
        joined, is_negated = _MULTIPLE[kind]
        expressions = self._catalyst.expressions
        patterns = expression.patterns()
        condition = None
        for index in range(patterns.size()):
            pattern = _item(patterns, index)
            if pattern is None:
                self._refuse("a pattern of LIKE is NULL")
            literal = self._literal(str(pattern.toString()))
            each = self._like(expression.child(), literal, "\\", is_folding=False)
            each = expressions.Not(each) if is_negated else each
            condition = each if condition is None else getattr(expressions, joined)(condition, each)
        return condition

    # -------------------------------------------------------------- parts

    def _pattern(self, name: str, expression: Any) -> str:
        text = _text(expression)
        if text is None:
            self._refuse(f"the pattern of {name} must be a literal")
        return text

    def _check(self, rule: Callable[[str], None], pattern: str) -> None:
        why = None
        try:
            rule(pattern)
        except PatternRefusedError as error:
            why = str(error)
        if why is not None:
            self._refuse(f"the pattern {_displayed(pattern)} is not supported: {why}")

    def _target(self, kind: str, *arguments: str) -> Any:
        """Return a literal whose value is a pattern, compiled in the JVM."""
        self._calls[self._text] += 1
        if sum(self._calls.values()) > CALLS_MAX:
            self._refuse(f"it has more than {CALLS_MAX} patterns")
        key = (kind, *arguments)
        if key not in self._compiled:
            name = f"{_PACKAGE}${kind}"
            loaded = load_class(self._spark, "worker.sql", name)
            is_wrong = False
            try:
                target = new_instance(self._spark.sparkContext, loaded, *arguments)
            except Py4JJavaError:
                is_wrong = True
            if is_wrong:
                self._refuse(f"Java does not accept the pattern {_displayed(arguments[0])}")
            kind_of = self._jvm.org.apache.spark.sql.types.ObjectType(loaded)
            self._compiled[key] = self._catalyst.expressions.Literal(target, kind_of)
        return self._compiled[key]

    def _invoke(
        self, target: Any, method: str, kind: str, arguments: list[Any], types: list[Any]
    ) -> Any:
        return self._catalyst.expressions.objects.Invoke(
            target,
            method,
            self._type(kind),
            self._sequence(arguments),
            self._sequence(types),
            True,  # noqa: FBT003 - null where an argument is
            True,  # noqa: FBT003 - it may be null
            True,  # noqa: FBT003 - the same arguments give the same value
        )

    def _type(self, name: str) -> Any:
        types = self._jvm.org.apache.spark.sql.types
        if name == "Array":
            return types.ArrayType(self._type("String"), False)  # noqa: FBT003 - no item is null
        return getattr(getattr(types, f"{name}Type$"), "MODULE$")

    def _literal(self, value: str | int) -> Any:
        return getattr(getattr(self._catalyst.expressions, "Literal$"), "MODULE$").apply(value)

    def _sequence(self, values: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(values)


def _is_simple(pattern: str, escape: str) -> bool:
    return escape not in pattern and _SIMPLE_LIKE.fullmatch(pattern) is not None


def _text(expression: Any) -> str | None:
    """Return the value of a string literal; None for any other expression."""
    if _simple_name(expression) != "Literal":
        return None
    if not _simple_name(expression.dataType()).startswith("StringType"):
        return None
    value = expression.value()
    return None if value is None else str(value.toString())


def _item(sequence: Any, index: int) -> Any:
    return sequence.apply(index)


def _simple_name(expression: Any) -> str:
    return str(expression.getClass().getName()).rsplit(".", 1)[-1]


def _displayed(text: str) -> str:
    return repr(text[:_SHOWN_CHARACTERS_MAX]) + ("..." if len(text) > _SHOWN_CHARACTERS_MAX else "")
