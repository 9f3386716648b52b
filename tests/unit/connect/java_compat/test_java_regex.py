"""Java's regular expressions: which engine matches them, and that each ends in time."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connect.errors import ConfigError
from connect.java_compat.java_regex import (
    BACKTRACKING_LENGTH_MAX,
    LENGTH_MAX,
    compile_java_regex,
    replacement,
)

GENEROUS_S = 5.0  # of processor time: what others on the machine do does not count
ATOMS = st.sampled_from(["a", "b", "A", r"\d", r"\w", r"\s", r"\S", "[ab]", "[^a]", ".", r"\.", ""])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map("|".join),
        inner.map("({})".format),
        inner.map("(?:{})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "+?", "{1,2}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
TEXTS = st.text("abA1 .\v\u00e9", max_size=6)


@given(PATTERNS, TEXTS, st.sampled_from(["", "(?i)", "(?s)", "(?is)"]))
@example("(a*)+", "b", "")
@example("(a|b)*", "ab", "")
@example("(a*)*", "aa", "")
def test_both_engines_find_the_same_matches(pattern: str, text: str, flags: str) -> None:
    """Linear matching and backtracking, with groups."""
    compiled = compile_java_regex(flags + pattern)
    linear = compiled.fullmatch(text)
    python = (
        pattern if "s" in flags else re.sub(r"(?<!\\)\.", r"[^\\n\\r\\x85\\u2028\\u2029]", pattern)
    )
    expected = re.compile(flags + python, re.ASCII).fullmatch(text)
    assert (linear is None) is (expected is None)
    if linear is not None and expected is not None:
        numbers = range(1, compiled.groups + 1)
        assert [linear[n] for n in numbers] == [expected[n] for n in numbers]


@pytest.mark.filterwarnings("ignore:Possible set:FutureWarning")  # that is Python's alone
@given(st.text("ab()[]{}|*+?.^$\\dpLQEzZ1-&", max_size=12), st.text("ab1$\n", max_size=4))
def test_any_text_is_a_regex_or_an_error(pattern: str, text: str) -> None:
    """For any pattern and text, the result is a match, no match, or a configuration error."""
    with suppress(ConfigError):
        compile_java_regex(pattern).fullmatch(text)


@pytest.mark.parametrize(
    ("java", "text", "matches"),
    [
        (r"\p{L}+", "äß", True),
        (r"\P{L}+", "12", True),
        (r"[\p{Lu}\d]+", "Ä1", True),
        (r"\p{Cn}", "\U000e0fff", True),
        (r"(?i)k", "\u212a", False),  # the sign for kelvin: Java folds ASCII only
        (r"(?i)K", "k", True),
        (r"a\u00e9", "a\u00e9", True),
        (r"a\x{e9}", "a\u00e9", True),
        (r"a$\n", "a\n", True),
        (r"a\Z\n", "a\n", True),
        (r"a\R", "a\u2028", True),
        (r"a.", "a\u2028", False),
        (r"\s\S", "\v\xa0", True),
        (r"[\S]", "\v", False),
        (r"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)\12", "abcdefghijkll", True),
        (r"(\w)\1", "aa", True),
        (r"(?<x>a)\k<x>", "aa", True),
        (r"(?!internal)[a-z]+", "internal", False),
        (r"\Qa.b\E+", "a.bb", True),
        ("a+", "\ud800", False),
    ],
)
def test_constructs_of_java_are_translated(java: str, text: str, matches: bool) -> None:
    """Those that the engines write differently, or that one of them lacks."""
    assert bool(compile_java_regex(java).fullmatch(text)) is matches


def test_replacements_find_groups_by_name_and_number() -> None:
    """With either engine."""
    for lookahead in ("", "(?!x)"):
        match = compile_java_regex(lookahead + r"(?<base>[a-z]+)-(\d+)").fullmatch("orders-7")
        assert match is not None
        assert replacement("${base}_$2$1")(match) == "orders_7orders"
        with pytest.raises(ValueError, match="No group"):
            replacement("$3")(match)


@contextmanager
def lock_is_free() -> Iterator[None]:
    """Another thread gets to run all the while."""
    gaps_s = [0.0]
    ended = threading.Event()

    def watch() -> None:
        last_s = time.process_time()
        while not ended.wait(0.005):
            now_s = time.process_time()
            gaps_s.append(now_s - last_s)
            last_s = now_s

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join()
    assert max(gaps_s) < GENEROUS_S / 5


@pytest.mark.parametrize(
    ("java", "text"),
    [
        ("(a+)+b", "a" * 50_000),
        ("(a|a)*b", "a" * 50_000),
        (".*.*.*.*.*x", "a" * 5_000),
        (r"(\p{L}|a)*\d", "ä" * 5_000),
        ("((a*)*)*b", "a" * 5_000),
    ],
)
def test_linear_patterns_take_linear_time(java: str, text: str) -> None:
    """Patterns that block a backtracking engine are matched at once."""
    started_s = time.process_time()
    with lock_is_free():
        assert compile_java_regex(java).fullmatch(text) is None
    assert time.process_time() - started_s < GENEROUS_S


@pytest.mark.parametrize(
    ("java", "text"),
    [
        (r"(?>(a+)+)b|(a|aa)+$c", "a" * 60),
        (r"(?!q)(?:(?:a{1,1000}){1,1000}){1,1000}b", "a" * 2_000),
        (r"(?!q)(.*a.*b.*c.*d)", "abc" * 20_000),
        (r"(a+)+\1b", "a" * 5_000),
    ],
)
def test_backtracking_has_a_time_limit(java: str, text: str) -> None:
    """It is an error; no other thread waits for it."""
    started_s = time.process_time()
    with lock_is_free(), pytest.raises(ConfigError, match="took longer than") as refused:
        compile_java_regex(java).fullmatch(text)
    assert refused.value.code == "regex_slow"
    assert time.process_time() - started_s < GENEROUS_S


def test_a_list_of_texts_has_a_time_limit() -> None:
    """The times of a regex that is slow for each topic do not add up."""
    slow = compile_java_regex(r"(?!q)(.*a.*b.*c.*d)")
    started_s = time.process_time()
    with pytest.raises(ConfigError, match="took longer than"):
        slow.matching("abc" * n for n in range(1, 3_000))
    assert time.process_time() - started_s < GENEROUS_S * 2
    assert compile_java_regex("a.*").matching(["ab", "b", "a"]) == ["ab", "a"]


@pytest.mark.parametrize(
    ("java", "message"),
    [
        (r"\p{L}" * 20_000, "at most"),
        (r"\p{L}" * 60, "more than 50 character classes"),
        ("a" * (LENGTH_MAX + 1), "at most"),
        ("(?!b)" + "a" * BACKTRACKING_LENGTH_MAX, "at most"),
        ("(" * 4_000 + ")" * 4_000, "nested too deeply"),
    ],
)
def test_large_patterns_are_refused(java: str, message: str) -> None:
    """At once, with a short message."""
    started_s = time.process_time()
    with lock_is_free(), pytest.raises(ConfigError, match=message) as refused:
        compile_java_regex(java)
    assert len(refused.value.message) < 600
    assert time.process_time() - started_s < GENEROUS_S


def test_the_largest_patterns_compile_in_time() -> None:
    """Within the limits, no compilation holds the interpreter for long."""
    largest = (
        r"[\p{L}\p{N}]" * 25,
        r"\p{L}{1000}",
        "(a|b|c)*" * 1_200,
        "|".join(f"topic-{n}" for n in range(900)),
        "(?!x)" + "(a|b)" * 390,
        "((((a{1,10}){1,10}){1,10}){1,10})",
    )
    started_s = time.process_time()
    with lock_is_free():
        for java in largest:
            compile_java_regex(java).fullmatch("abc" * 100)
    assert time.process_time() - started_s < 2 * GENEROUS_S
