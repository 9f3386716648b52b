"""Arguments that select cells of the matrix."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from tests.bench.shapes import SHAPES, TABLES_MAX

MODES = ("append", "upsert")


def matrix_parser(
    description: str | None, formats: Sequence[str], *, scale: float, rounds: int
) -> argparse.ArgumentParser:
    """Return a parser of the common arguments of the matrix; lists are separated by commas.

    Args:
        description: for ``--help``.
        formats: all that there are.
        scale: how many records by default, times each shape's own number.
        rounds: runs of a cell by default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--formats", default=",".join(formats))
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--tables", default=f"1,{TABLES_MAX}")
    parser.add_argument("--scale", type=float, default=scale)
    parser.add_argument("--rounds", type=int, default=rounds)
    return parser
