"""Computes an upper bound of the size of a query's rows, before the first record.

Rules of this file:
- A value contains each of its columns at most ``times`` times, plus ``bytes`` bytes. A query with
  too large a bound is refused: many connectors share the memory of one worker.
- This file covers the functions that ``worker.sql.sql_expressions`` allows. If a function
  multiplies the sizes of two arguments, one of them must be a literal.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

from connect.records.transforms.sql.sql_functions import names_of
from worker.sql.sql_expressions import items, literal_of, refuse, simple_name

TIMES_MAX: Final = 64
ROW_TIMES_MAX: Final = 1_024
LAMBDAS_MAX: Final = 3
_NESTED_BYTES_MAX: Final = 128
BYTES_MAX: Final = 2**20
_FIXED: Final = names_of(
    """
    BooleanType ByteType DateType DayTimeIntervalType DecimalType DoubleType FloatType IntegerType
    LongType NullType ShortType TimestampNTZType TimestampType YearMonthIntervalType
    """
)
_FIXED_BYTES: Final = 8
_ENLARGING: Final = {
    **dict.fromkeys(("Hex", "Quote", "StructsToCsv", "Base64"), 2),
    **dict.fromkeys(("StringTranslate", "Encode", "UrlEncode"), 4),
    "StructsToJson": 6,
}
"""Maximal bytes per byte of the argument: in JSON a quotation mark has 2, a control character 6."""
_CHOICES: Final = names_of("CaseWhen Coalesce Greatest If Least NaNvl Nvl Nvl2 Decode")
_LAMBDAS: Final = names_of("ArrayTransform TransformKeys TransformValues ZipWith MapZipWith")
_CHARACTER_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Size:
    """An upper bound of a value's size.

    Attributes:
        times: column to how many times the value may contain it.
        bytes: additional bytes that the value may contain.
    """

    times: Counter[str] = field(default_factory=Counter)
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.times + other.times, self.bytes + other.bytes)

    def __mul__(self, factor: int) -> Size:
        return Size(Counter({k: v * factor for k, v in self.times.items()}), self.bytes * factor)

    def __or__(self, other: Size) -> Size:
        return Size(self.times | other.times, max(self.bytes, other.bytes))

    @property
    def most(self) -> int:
        """The largest of ``times``."""
        return max(self.times.values(), default=0)


def size_of(expression: Any) -> Size:
    """Return the bound of a resolved expression.

    Raises:
        ConfigError: ``sql_query``: the expression, or a part of it, may be too large.
    """
    return _Sizes().of(expression)


def check_row(sizes: list[Size]) -> None:
    """Refuse a query whose rows may be too large.

    Raises:
        ConfigError: ``sql_query``.
    """
    whole = sum(sizes, Size())
    if whole.most > ROW_TIMES_MAX or whole.bytes > 4 * BYTES_MAX:
        refuse("its rows may be much larger than their records")


class _Sizes:
    def __init__(self) -> None:
        # of the innermost lambda function that makes values
        self._variables: tuple[str, ...] | None = None
        self._scopes: list[frozenset[str]] = []  # arguments of the enclosing lambda functions

    def of(self, expression: Any) -> Size:
        kind = simple_name(expression)
        size = self._of(kind, expression)
        if size.most > TIMES_MAX or size.bytes > BYTES_MAX:
            refuse(f"{kind} may make a value much larger than its record")
        return Size(bytes=_FIXED_BYTES) if _is_fixed(expression) else size

    def _of(self, kind: str, expression: Any) -> Size:
        if kind in ("AttributeReference", "NamedLambdaVariable"):
            return self._column(expression)
        if kind in ("Literal", "TypedNullLiteral"):
            value = None if kind != "Literal" else literal_of(expression)
            return Size(bytes=len(value.encode()) if isinstance(value, str) else _FIXED_BYTES)
        children = list(items(expression.children()))
        if kind == "CommonExpressionRef":
            return Size()  # counted where it is defined
        if children and simple_name(children[-1]) == "LambdaFunction":
            return self._over_items(kind, children)
        sizes = [self.of(child) for child in children]
        if kind in _CHOICES:
            return reduce(or_, sizes, Size())
        return self._made(kind, expression, children, sizes)

    def _made(self, kind: str, expression: Any, children: list[Any], sizes: list[Size]) -> Size:
        whole = sum(sizes, Size())
        if kind in ("StringRepeat", "ArrayRepeat"):
            return sizes[0] * _number(children[1])
        if kind in ("StringLPad", "StringRPad", "StringSpace"):
            return whole + Size(bytes=_CHARACTER_BYTES * _number(children[kind != "StringSpace"]))
        if kind == "StringReplace":
            return self._replaced(children[2], "", sizes[0])
        if kind == "Invoke" and expression.functionName() == "replace":
            return self._replaced(children[2], expression.targetObject().value().source(), sizes[1])
        if kind in ("ConcatWs", "ArrayJoin"):
            return self._joined(kind, children, sizes)
        if kind == "FormatString":
            text = literal_of(children[0])
            return whole + Size(bytes=1_000 * (str(text).count("%") + 1))
        return whole * _ENLARGING.get(kind, 1)

    def _column(self, expression: Any) -> Size:
        name = str(expression.exprId().toString())
        if (
            self._variables is not None
            and name not in self._variables
            and not _is_fixed(expression)
        ):
            refuse(
                "a lambda function that makes values may use strings, lists, maps and structs of "
                "its arguments only"
            )
        return Size(Counter([name]))

    def _over_items(self, kind: str, children: list[Any]) -> Size:
        """Return the bound of a function that calls a lambda function for each item."""
        *arguments, function = children
        whole = sum((self.of(child) for child in arguments), Size())
        if self._scopes:
            self._check_nested(whole)
        variables = [str(v.exprId().toString()) for v in items(function.arguments())]
        before = self._variables
        if kind in _LAMBDAS:
            self._variables = tuple(variables)
        self._scopes.append(frozenset(variables))
        item_size = self.of(function.function())
        self._scopes.pop()
        self._variables = before
        if kind not in _LAMBDAS:
            return whole
        # each item becomes the lambda's value: with an item's bytes, and the same bytes more
        return whole * max(sum(item_size.times.values()) + item_size.bytes, 1)

    def _check_nested(self, size: Size) -> None:
        """Refuse lambda functions whose number of calls is a power of the record's size."""
        if len(self._scopes) >= LAMBDAS_MAX:
            refuse(f"lambda functions are nested more than {LAMBDAS_MAX} deep")
        if not self._scopes[-1].issuperset(size.times) or size.bytes > _NESTED_BYTES_MAX:
            refuse(
                "a lambda function inside another one can iterate only over lists and maps of "
                "the arguments of that function"
            )

    @staticmethod
    def _replaced(replacement: Any, pattern: str, text: Size) -> Size:
        by = literal_of(replacement)
        if not isinstance(by, str):
            refuse("the replacement in a string function must be a literal")
        if "$" in by and ("(?=" in pattern or "(?<=" in pattern):
            refuse("regexp_replace with a group needs a pattern without lookaround")
        return text * (len(by.encode()) + 1)

    def _joined(self, kind: str, children: list[Any], sizes: list[Size]) -> Size:
        index = 0 if kind == "ConcatWs" else 1
        separators = [literal_of(child) for child in children[1:]] if index else []
        separators = separators or [literal_of(children[0])]
        if not all(isinstance(each, str) for each in separators):
            refuse("the separator of joined strings must be a literal")
        length = max(len(each.encode()) for each in separators)
        whole = Size()
        for child, size in zip(children, sizes, strict=True):
            is_list = simple_name(child.dataType()) == "ArrayType"
            whole += size * (length + 1) if is_list else size + Size(bytes=length)
        return whole


def _number(expression: Any) -> int:
    """Return a literal number, without casts around it."""
    while simple_name(expression) in ("Cast", "UnaryMinus"):
        expression = expression.child()
    value = literal_of(expression)
    if not isinstance(value, int):
        refuse("a size must be an integer literal")
    return max(value, 1)


def _is_fixed(expression: Any) -> bool:
    return simple_name(expression.dataType()).removesuffix("$") in _FIXED
