"""How a producer writes its documents, learned from some of them."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from worker.decode.json_scan import ENTRY, ITEM, Path, is_plain

Gaps = tuple[bytes, bytes]

_COMPACT: Final = (b",", b":")


class Pairs(list[tuple[str, Any]]):
    """Keys and values of an object, in their order."""


class JsonLayouts:
    """The order of keys, and what stands between them.

    Args:
        passes: whether to take note of keys that nobody asks for.

    Attributes:
        keys: by path, the keys of an object in their order.
        gaps: between two fields, and between a name and its value.
    """

    def __init__(self, *, passes: bool) -> None:
        self.keys: dict[Path, list[str]] = {}
        self.gaps: Gaps = _COMPACT
        self._passes = passes

    def known(self) -> tuple[dict[Path, list[str]], Gaps]:
        """What is known by now, as a copy."""
        return {path: list(keys) for path, keys in self.keys.items()}, self.gaps

    def note(self, text: str, kind: pa.DataType) -> Pairs:
        """Look at a document; its fields, none where it is no object."""
        try:
            document = json.loads(text, object_pairs_hook=Pairs)
        except (ValueError, RecursionError):
            return Pairs()
        self._note(document, kind, ())
        self.gaps = _gaps(_names(document), text, self.gaps)
        return document if isinstance(document, Pairs) else Pairs()

    def _note(self, value: Any, kind: pa.DataType, path: Path) -> None:
        """Take note of the order of keys."""
        if pa.types.is_list(kind) and type(value) is list:
            for item in value:
                self._note(item, kind.value_type, (*path, ITEM))
        elif pa.types.is_map(kind) and isinstance(value, Pairs):
            for _, item in value:
                self._note(item, kind.item_type, (*path, ENTRY))
        elif pa.types.is_struct(kind) and isinstance(value, Pairs):
            types = {field.name: field.type for field in kind}
            known, place = self.keys.setdefault(path, []), 0
            for name, item in value:
                if name in known:
                    place = known.index(name) + 1
                elif name in types or (self._passes and is_plain(name)):
                    known.insert(place, name)
                    place += 1
                if name in types:
                    self._note(item, types[name], (*path, name))


def _names(value: Any) -> tuple[str | None, str | None]:
    """A name of an object, and one behind another, at any depth."""
    first = second = None
    if not isinstance(value, Pairs):
        return None, None
    if value:
        first = value[0][0]
    if len(value) > 1:
        second = value[1][0]
    for _, inner in value:
        if second is not None:
            break
        _, second = _names(inner)
    return first, second


def _gaps(names: tuple[str | None, str | None], text: str, known: Gaps) -> Gaps:
    """What stands between fields, and between a name and its value, where the names tell."""
    found = [name for name in names if name is not None]  # one with an escape is not in the text
    commas = [gap for gap in (", ", ",") if f'{gap}"{names[1]}"' in text and names[1] is not None]
    colons = [gap for name in found for gap in (": ", ":") if f'"{name}"{gap}' in text]
    comma = commas[0].encode() if commas else known[0]
    return comma, colons[0].encode() if colons else known[1]
