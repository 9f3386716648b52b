"""Words that this project does not use: each has a standard term of the field.

Rules of this file:
- Prose, comments, texts and identifiers are searched alike; parts of an identifier count as words.
- A place that must keep a word (a third party's name, a recorded text) is named with its reason.
- Guides and reference pages have no long sentences. Names in code are one word, also several in a
  row. A cell of a table is text as well; a semicolon divides its items.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".toml", ".yml", ".yaml", ".html", ".js", ".css", ".sh", ".java"}
FILES = {"Makefile", "Dockerfile", ".ci/run"}

# word or phrase -> what to write
INSTEAD = {
    "told": "reported, sent",
    "heard": "received",
    "word": "status, message, keyword",
    "words": "status, messages, keywords",
    "wish": "target state, request",
    "wishes": "target state, requests",
    "wished": "requested",
    "look": "poll, check, read",
    "looks": "polls, checks, reads",
    "looked": "polled, checked, read",
    "looking": "polling, checking, reading",
    "here": "local, or the name of the place",
    "elsewhere": "remote, or the name of the place",
    "anew": "again",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "whoever": "any client, any process",
    "whatever": "any",
    "somebody": "an operator, a client",
    "nobody": "no client, no process",
    "anybody": "any client, any process",
    "anyone": "any client, any user",
    "someone": "a client, an operator",
    "fate": "outcome",
    "beside": "next to, together with, compared with",
}
PHRASES = {
    "goes on": "continues",
    "go on": "continue",
    "going on": "continuing",
    "by hand": "manually",
    "lets go of": "releases",
    "let go of": "release",
}
# (file or folder, word): why it stays. A folder ends with a slash.
KEPT: dict[tuple[str, str], str] = {
    ("coordinator/operator_requests.py", "mended"): "field of an answer",
    (
        "tests/unit/coordinator/commit/operator_changes/test_floor_rebase.py",
        "mended",
    ): "field of an answer",
    ("connect/cli/control_command.py", "mended"): "a field of the REST API",
    ("connect/operations/migration/inspector.py", "elsewhere"): "a code of a finding",
    ("tests/attack/test_rebase.py", "mended"): "a field of a REST answer",
    ("tests/e2e/test_moving.py", "elsewhere"): "a code of a finding",
}

_ALTERNATIVES = "|".join(sorted(INSTEAD, key=len, reverse=True))
_CAPITALISED = "|".join(w.capitalize() for w in sorted(INSTEAD, key=len, reverse=True))
_UPPER = _ALTERNATIVES.upper()
_PATTERN = re.compile(
    rf"(?<![A-Za-z])(?:{_ALTERNATIVES}|{_CAPITALISED})(?![a-z'-]?[a-z])"
    rf"|(?<=[a-z])(?:{_CAPITALISED})(?![a-z])"
    rf"|(?<![A-Za-z])(?:{_UPPER})(?![A-Za-z])"
    rf"|\b(?:{'|'.join(PHRASES)})\b"
)


_SOUGHT = tuple(INSTEAD) + tuple(PHRASES)
SENTENCE_WORDS_MAX = 30
SHORT_SENTENCES = ("docs/how-to", "docs/reference")
_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_STARTS = re.compile(r"\s*(?:[-*]|#+|:|1\.) +")
_NUMBER = re.compile(r"\s*\d+\. +")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_NAMES = re.compile(r"(?:``.+?``|`[^`]*`)(?:(?:,? and |,? or |, )(?:``.+?``|`[^`]*`))*")


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page: of paragraphs, items of lists, headings and cells."""
    for part in _parts(_FENCED.sub("", page)):
        plain = _LINK.sub(r"\1", _NAMES.sub("name", part))
        yield from re.split(r"(?<=[.!?])[*)]* +", plain)


def _parts(page: str) -> Iterator[str]:
    lines: list[str] = []
    is_in_list = False
    for line in [*page.splitlines(), ""]:
        start = _STARTS.match(line) or (_NUMBER.match(line) if is_in_list else None)
        if not line.startswith(" "):
            is_in_list = start is not None
        is_code = not lines and start is None and line.startswith("    " * (1 + is_in_list))
        if not line.strip() or line.startswith("|") or start or is_code:
            yield " ".join(lines)
            lines = []
        if line.startswith("|"):
            yield from re.split(r" \| |; ", line)
        elif line.strip() and not is_code:
            lines.append(line[start.end() if start else 0 :].strip())


def places(name: str, text: str) -> list[str]:
    """Return ``file:line word -> instead`` for every word that is not kept."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        small = line.lower()
        if not any(sought in small for sought in _SOUGHT):  # ten times as fast as the pattern
            continue
        for match in _PATTERN.finditer(line):
            word = match[0].lower()
            if not is_kept(name, word):
                instead = INSTEAD.get(word) or PHRASES[word]
                found.append(f"{name}:{number} {match[0]!r} -> {instead}")
    return found


def is_kept(name: str, word: str) -> bool:
    return any(
        kept == word and (name == place or (place.endswith("/") and name.startswith(place)))
        for place, kept in KEPT
    )


def searched_files() -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(
        name
        for name in names.split("\0")
        if name
        and (Path(name).suffix in SUFFIXES or name in FILES)
        and (ROOT / name).is_file()
        and name != Path(__file__).relative_to(ROOT).as_posix()
    )


def test_the_search_finds_words_in_prose_and_in_identifiers() -> None:
    """Prose, snake case, camel case and constants are searched; parts of other words are not."""
    assert places("f", "# The herder is told.") == ["f:1 'told' -> reported, sent"]
    assert places("f", "looked_ms = is_told(NodeWord)")[0].startswith("f:1 'looked'")
    assert places("f", "LOOK_MS = 1")[0].startswith("f:1 'LOOK'")
    assert len(places("f", "looked_ms = is_told(NodeWord)")) == 3
    assert places("f", "password, keyword, lookup, there, recommended, besides, adhere") == []
    assert places("f", "the stream goes on") == ["f:1 'goes on' -> continues"]


def test_plain_words_only() -> None:
    """No file uses a word that has a standard term."""
    found = [
        place
        for name in searched_files()
        for place in places(name, (ROOT / name).read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


def test_sentences_are_found_in_text_lists_and_tables() -> None:
    """Code is left out; names in code are one word; links count by their text."""
    page = (
        "# Head line\n\nOne [two three](x.md) four. `a`, `b` and `c`\ngo. Last: `d`\n\n"
        "```json\n{no}\n```\n\n- item\n  more.\n\n        code\n\n    code\n\n1. first\n"
        "| a | b; c |\n"
    )
    assert [found.strip(" |") for found in sentences(page) if found.strip(" |")] == [
        *("Head line", "One two three four.", "name go.", "Last: name", "item more."),
        *("first", "a", "b", "c"),
    ]


def test_sentences_of_guides_and_references_are_short() -> None:
    """A reader looks up one thing; a sentence has one thought."""
    long = [
        f"{page.relative_to(ROOT)}: {len(found)} words: {' '.join(found)}"
        for folder in SHORT_SENTENCES
        for page in sorted((ROOT / folder).rglob("*.md"))
        for sentence in sentences(page.read_text("utf-8"))
        if len(found := re.findall(r"\S*\w\S*", sentence)) > SENTENCE_WORDS_MAX
    ]
    assert not long, "\n".join(long)
