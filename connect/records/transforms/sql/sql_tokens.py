"""Tokenizer of Spark SQL, without Spark, for queries and columns.

Rules of this file:
- The time is linear in the text. Size and nesting are checked first.
- Strings and comments end as in Spark's lexer. An unterminated one is an error.
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
    |(?P<identifier>[^\W\d]\w*)
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
        kind: ``string``, ``quoted``, ``identifier``, ``number``, ``operator`` or ``other``.
        depth: number of enclosing brackets.
        after_dot: whether a dot precedes it.
        source: the whole text with blanks for comments.
        start: index of its first character in the text.
        end: index after its last character.
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
    def keyword(self) -> str:
        """Return the text in upper case if it may be a keyword, else an empty text."""
        is_keyword = self.kind == "identifier" and self.depth == 0 and not self.after_dot
        return self.text.upper() if is_keyword else ""

    @property
    def name(self) -> str:
        """Return the name of an identifier."""
        is_quoted = self.kind == "quoted"
        return self.text[1:-1].replace("``", "`") if is_quoted else self.text


def refuse(why: str) -> NoReturn:
    """Raise ``ConfigError`` for a query or its columns."""
    raise ConfigError(why, code="sql_query")


def tokens_of(text: str, brackets: str = "([") -> list[Token]:
    """Split a text into tokens, without comments and a final semicolon.

    Args:
        text: the configured text.
        brackets: the characters that count as opening brackets.

    Raises:
        ConfigError: ``sql_query``; the text is too long or nested too deeply, brackets do not
            match, or a string, name or comment is not terminated.
    """
    if len(text) > CHARACTERS_MAX:
        refuse(f"the text has {len(text)} characters, more than {CHARACTERS_MAX}")
    pieces, clean = _pieces(text)
    ends = {_CLOSING[c] for c in brackets}
    tokens: list[Token] = []
    depth = 0
    is_after_dot = False
    for kind, start, end in pieces:
        piece = clean[start] if kind == "other" else ""
        if piece in ends and piece:
            depth -= 1
        tokens.append(Token(kind, depth, is_after_dot, clean, start, end))
        is_after_dot = piece == "."
        if piece in brackets and piece:
            depth += 1
        if depth > NESTING_MAX:
            refuse(f"brackets are nested deeper than {NESTING_MAX} levels")
        if depth < 0:
            break
    if depth:
        refuse("brackets do not match")
    if tokens and tokens[-1].text == ";":
        tokens.pop()
    return tokens


def text_of(tokens: Sequence[Token]) -> str:
    """Return the text of tokens, with blanks for comments."""
    return tokens[0].source[tokens[0].start : tokens[-1].end] if tokens else ""


def displayed(tokens: Sequence[Token]) -> str:
    """Return the beginning of tokens, for an error message."""
    text = text_of(tokens)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


def split_at(tokens: Sequence[Token], separator: str) -> Iterator[list[Token]]:
    """Split tokens at separators outside brackets."""
    part: list[Token] = []
    for token in tokens:
        if token.depth == 0 and separator in (token.text, token.keyword):
            yield part
            part = []
        else:
            part.append(token)
    yield part


def _pieces(text: str) -> tuple[list[tuple[str, int, int]], str]:
    """Return kind, start and end of each token, and the text with blanks for comments."""
    pieces: list[tuple[str, int, int]] = []
    clean: list[str] = []
    position = 0
    for match in _TOKEN.finditer(text):
        kind, start, end = str(match.lastgroup), match.start(), match.end()
        if kind == "comment":
            clean += text[position:start], " " * (end - start)
            position = end
            continue
        if kind == "other" and text[start] in _QUOTES:
            refuse(f"the string or name at character {start + 1} is not terminated")
        if kind == "other" and text.startswith("/*", start):
            refuse(f"the comment at character {start + 1} is not terminated")
        pieces.append((kind, start, end))
    return pieces, "".join([*clean, text[position:]])
