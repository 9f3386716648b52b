"""Which regular expressions have a bound of the matcher's work between two characters."""

from __future__ import annotations

import pytest

from worker.sql.pattern_rules import (
    CHARACTERS_MAX,
    PatternRefusedError,
    check_delimiter,
    check_pattern,
    once_per_line,
)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]+-\d+$",
        r"(\d{4})-(\d{2})-(\d{2})",
        r"(?i)error|warn(?:ing)?",
        r"(?:^|,)(\w+)(?:,|$)",
        r"\bfoo\b",
        r'"([^"\\]|\\.)*"',
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"(?<year>\d+)/\k<year>",
        r"\Qa.b*\E+",
        r"[a-z&&[^aeiou]]+",
        r"\p{L}+\P{Lu}",
        r"(?<=id=)\d+",
        r"^(?=.*\d)(?!.*\s).{8,}$",
        r"(a+)+$",
        "",
        "|".join(f"name{i}" for i in range(40)),
    ],
)
def test_ordinary_patterns_are_accepted(pattern: str) -> None:
    """Java's matcher has a bounded number of steps per character."""
    assert check_pattern(pattern).visits <= 500


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*",
        "(a?)+",
        "(?:a*)?",
        "(|)",
        "(?:a*|b*)c",
        "(?:(?=a)|(?!b))",
        "(?:^|$)",
        r"(a)\1*",
        r"(?:\b)+",
        r"(a|b)(?:\11)*",
        "(?:){1000}",
        "a{1001}",
        "a**",
        "a{,3}",
        "{",
        "*a",
        "(?x) a",
        r"\X",
        r"\G",
        r"\b{g}",
        r"\N{DIGIT ONE}",
        r"\q",
        "(a",
        "a)",
        "[a",
        "[]a]",
        "[a[b]",
        "(?<=a*)b",
        "(?<=(?:^|a.{200}))b" * 3,
        "(" * 33 + "a" + ")" * 33,
        "[" * 34 + "a" + "]" * 34,
        "a" * (CHARACTERS_MAX + 1),
        "(?:^a|^b|^c|^d|^e)" * 60,
        "(?",
        "\\",
    ],
)
def test_patterns_without_a_bound_are_refused(pattern: str) -> None:
    """Many empty alternatives, an unknown form, or too much work."""
    with pytest.raises(PatternRefusedError):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", [".*a", "(.*)a(.*)", "(?<x>.*?)a", "(?:(.*)a)b"])
def test_any_text_at_the_start_of_a_pattern_is_tried_once_per_line(pattern: str) -> None:
    """The rewritten pattern starts at a line, or where the last match ended."""
    assert once_per_line(pattern).startswith(r"(?:\G|(?<!")


@pytest.mark.parametrize(
    "pattern",
    [".*", "a.*", ".*+a", "(?s).*a", ".*a|b", r"(.*)\1a", "(?>.*)a", "(?=.*)a"],
)
def test_other_patterns_run_as_written(pattern: str) -> None:
    """A match may start inside a line, or be empty."""
    assert once_per_line(pattern) == pattern


def test_delimiters_have_no_quantifier() -> None:
    """Spark itself matches them."""
    check_delimiter(r"\|")
    check_delimiter("[,;]|: ")
    for pattern in ("a+", r"(a)\1", "(?:a|b){2}"):
        with pytest.raises(PatternRefusedError):
            check_delimiter(pattern)
