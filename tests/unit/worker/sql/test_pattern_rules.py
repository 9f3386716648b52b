"""Which regular expressions of a query are accepted on a node with users."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from worker.sql.pattern_rules import (
    CHARACTERS_MAX,
    PatternRefusedError,
    check_delimiter,
    check_pattern,
    once_per_line,
)

ATOMS = st.sampled_from(
    [
        *("a", "bc", ".", "[ab]", "[^|(]", r"\d", r"\(", r"\x41", r"\x{42}", r"\0101", r"\pL"),
        *(r"\p{L}", "^", r"\A", "(?:)", r"\Q*(\E", ""),
    ]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "??", "{0}", "{0,2}", "{1,3}", "{2}?"])
PATTERNS = st.recursive(
    st.builds(str.__add__, ATOMS, QUANTIFIERS),
    lambda inner: (
        st.lists(inner, max_size=3).map("".join)
        | st.builds("({}){}".format, st.lists(inner, max_size=3).map("|".join), QUANTIFIERS)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]+-\d+$",
        r"(\d{4})-(\d{2})-(\d{2})",
        r"(?i)error|warn(?:ing)?",
        r"(?:^|,)(\w+),",
        r"\.(jpg|png)$",
        r"\bfoo\b",
        r'"([^"\\]|\\.)*"',
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"(?<year>\d+)/",
        r"\Qa.b*\E+",
        r"\p{L}+\P{Lu}",
        r"(a+)+$",
        "",
        "|".join(f"name{i}" for i in range(40)),
    ],
)
def test_ordinary_patterns_are_accepted(pattern: str) -> None:
    """Those that RE2 supports, if Java reads a character in each step."""
    check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*",
        "(?:a*)?",
        "(|)",
        "(?:a*|b*)c",
        "(a{0}|b{0,3})c",
        "(?:^|\\A)",
        r"(?:\b)+",
        r"(?:\0101*|\0102*)",
        r"(?:\x41*|\x{42}?)c",
        r"(?:\pL*|\p{L}*)c",
        r"(a)\1*",
        "(?:){1000}",
        "a{1001}",
        "a*+b",
        "a**",
        "a{,3}",
        "*a",
        "(?x) a",
        "(?P<n>a)",
        r"\X",
        r"\G",
        r"\b{g}",
        r"\q",
        "(a",
        "[]a]",
        "[^]a]",
        "[a[b]]",
        "[a&&b]",
        "(?<=a)b",
        "(?=a)",
        "(?>a)",
        "(" * 33 + "a" + ")" * 33,
        "a" * (CHARACTERS_MAX + 1),
        "(?:a|b|c|d)" * 60,
        "\\",
    ],
)
def test_other_patterns_are_refused(pattern: str) -> None:
    """Those of Java only, of many empty alternatives, and of too many parts."""
    with pytest.raises(PatternRefusedError):
        check_pattern(pattern)


@given(PATTERNS)
def test_a_part_that_may_be_empty_is_not_repeated(pattern: str) -> None:
    """What is read as empty is what matches an empty text, with any escape, class and group."""
    assume(_is_accepted(pattern))
    text = re.sub(r"\\Q(.*?)\\E", lambda quoted: re.escape(quoted[1]), pattern)
    text = re.sub(r"\\x\{42\}|\\pL|\\p\{L\}|\\0101", "B", text)  # not of Python
    may_be_empty = re.compile(text).fullmatch("") is not None
    assert _is_accepted(f"(?:{pattern})+") is not may_be_empty


def _is_accepted(pattern: str) -> bool:
    try:
        check_pattern(pattern)
    except PatternRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    "pattern", [".*a", "(.*)a(.*)", "(?<x>.*?)a", "(?:(.*)a)b", ".*(a|b)", "(.*a)(b|c)*"]
)
def test_any_text_at_the_start_of_a_pattern_is_tried_once_per_line(pattern: str) -> None:
    """The rewritten pattern starts at a line, or where the last match ended."""
    assert once_per_line(pattern).startswith(r"(?:\G|(?<!")


@pytest.mark.parametrize(
    "pattern",
    [
        *(".*", "a.*", ".*+a", "(?s).*a", ".*a|b", r"(.*)\1a", "(?>.*)a", "(?=.*)a", "(.*)"),
        *("(.*a)?b", "(.*a|b)c", "(.*)a|b", "((.*)a)+b", r".*\Qa", ".*[", "(?:.*a(?=b))c"),
    ],
)
def test_other_patterns_run_as_written(pattern: str) -> None:
    """A match may start inside a line, or be empty, or RE2 does not support the rest."""
    assert once_per_line(pattern) == pattern


def test_delimiters_have_no_quantifier() -> None:
    """Spark itself matches them."""
    check_delimiter(r"\|")
    check_delimiter("[,;]|: ")
    for pattern in ("a+", r"(a)\1", "(?:a|b){2}"):
        with pytest.raises(PatternRefusedError):
            check_delimiter(pattern)
