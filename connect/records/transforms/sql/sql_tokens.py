"""Tokens of Spark SQL, found without Spark: of a query and of the columns of its view.

Rules of this file:
- Time is linear in the text, and the text, its tokens and its nesting are bounded before anything
  else reads them.
- Strings and comments end where Spark's lexer ends them; one without an end is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from connect.errors import ConfigError

CHARACTERS_MAX: Final = 16_384
NESTING_MAX: Final = 32
_TOKEN: Final = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/)
    |(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<operator><=>|<=|>=|!=|<>|==|=)
    |(?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_CLOSING: Final = {"(": ")", "[": "]", "<": ">"}
_SHOWN_CHARACTERS_MAX: Final = 120
_QUOTES: Final = "'\"`"


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text.

    Attributes:
        kind: ``string``, ``quoted``, ``word``, ``number``, ``operator`` or ``other``.
        depth: how many brackets enclose it.
        after_dot: whether a dot precedes it.
        source: the whole text, comments blanked.
        start: its place there.
        end: of it.
    """

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

    @property
    def name(self) -> str:
        """What an identifier names."""
        is_quoted = self.kind == "quoted"
        return self.text[1:-1].replace("``", "`") if is_quoted else self.text


def refuse(why: str) -> NoReturn:
    """Raise ``ConfigError`` about a query or its columns."""
    raise ConfigError(why, code="sql_query")


def tokens_of(text: str, brackets: str = "([") -> list[Token]:
    """The tokens of a text, comments and a last semicolon left out.

    Args:
        text: as configured.
        brackets: which characters enclose others.

    Raises:
        ConfigError: ``sql_query``: it is too long or too deeply nested, brackets do not match, or
            a string, name or comment has no end.
    """
    if len(text) > CHARACTERS_MAX:
        refuse(f"the text has {len(text)} characters, {CHARACTERS_MAX} are allowed")
    pieces, clean = _pieces(text)
    ends = {_CLOSING[c] for c in brackets}
    found: list[Token] = []
    depth = 0
    is_after_dot = False
    for kind, start, end in pieces:
        piece = clean[start] if kind == "other" else ""
        if piece in ends and piece:
            depth -= 1
        found.append(Token(kind, depth, is_after_dot, clean, start, end))
        is_after_dot = piece == "."
        if piece in brackets and piece:
            depth += 1
        if depth > NESTING_MAX:
            refuse(f"brackets are nested more than {NESTING_MAX} deep")
        if depth < 0:
            break
    if depth:
        refuse("brackets do not match")
    if found and found[-1].text == ";":
        found.pop()
    return found


def text_of(tokens: Sequence[Token]) -> str:
    """Tokens as they were written, comments blanked."""
    return tokens[0].source[tokens[0].start : tokens[-1].end] if tokens else ""


def displayed(tokens: Sequence[Token]) -> str:
    """The beginning of tokens, for a message."""
    text = text_of(tokens)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def split_at(tokens: Sequence[Token], separator: str) -> Iterator[list[Token]]:
    """Parts between separators that no bracket encloses."""
    part: list[Token] = []
    for token in tokens:
        if token.depth == 0 and separator in (token.text, token.word):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _pieces(text: str) -> tuple[list[tuple[str, int, int]], str]:
    """Kind, start and end of each token, and the text with comments blanked."""
    pieces: list[tuple[str, int, int]] = []
    clean: list[str] = []
    place = 0
    for match in _TOKEN.finditer(text):
        kind, start, end = str(match.lastgroup), match.start(), match.end()
        if kind == "comment":
            clean += text[place:start], " " * (end - start)
            place = end
            continue
        if kind == "other" and text[start] in _QUOTES:
            refuse(f"the string or name that begins at character {start + 1} has no end")
        if kind == "other" and text.startswith("/*", start):
            refuse(f"the comment that begins at character {start + 1} has no end")
        pieces.append((kind, start, end))
    return pieces, "".join([*clean, text[place:]])
