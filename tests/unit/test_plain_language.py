"""Words that this project does not use: each has a standard term of the field.

Rules of this file:
- Prose, comments, texts and identifiers are searched alike; parts of an identifier count as words.
- A place that must keep a word (a third party's name, a recorded text) is named with its reason.
"""

from __future__ import annotations

import re
import subprocess
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
