"""Connectors from files: JSON or YAML, one or several, in either of Kafka Connect's shapes.

Rules of this file:
- Values are kept as the file spells them: a number or ``yes`` of YAML stays that text, as Kafka
  Connect's configurations are text. ``true`` and ``false`` of JSON become that text.
- A key that is there twice is an error, not the last one.
- Every error names the file, and the connector or key where there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from connect.errors import ConfigError
from connect.redaction.secret_values import MASK

SUFFIXES = (".json", ".yaml", ".yml")
STATES = ("RUNNING", "PAUSED", "STOPPED")
_FILE_BYTES_MAX = 4 * 2**20
_WRAPPED = frozenset({"name", "config", "initial_state"})


class FileError(ConfigError):
    """A file that does not hold connectors."""

    default_code = "file"


@dataclass(frozen=True, slots=True)
class Desired:
    """A connector as a file has it.

    Attributes:
        name: of the connector.
        config: its configuration, ``name`` included.
        source: the file, for messages.
        initial_state: state to create it in; None is running.
    """

    name: str
    config: Mapping[str, str]
    source: str
    initial_state: str | None = None


def read(paths: Iterable[Path]) -> tuple[Desired, ...]:
    """Read connectors from files and folders, in order of their names.

    Folders are read with all below them; files and folders whose names begin with a dot are left
    out.

    Raises:
        FileError: a path that is not there, content that is no connector, two connectors of one
            name, or none at all.
    """
    listed = list(paths)
    found: dict[str, Desired] = {}
    for path in listed:
        for file in _files(path):
            for desired in _connectors(file):
                known = found.setdefault(desired.name, desired)
                if known is not desired:
                    raise FileError(
                        f"the connector {desired.name!r} is in {known.source} and in {file}: "
                        "leave one of them"
                    )
    if not found:
        places = ", ".join(map(str, listed))
        raise FileError(f"no connector in {places}: files end in {', '.join(SUFFIXES)}")
    return tuple(found[name] for name in sorted(found))


def read_one(file: Path, name: str | None = None, *, unnamed: str | None = None) -> Desired:
    """Read one connector of a file.

    Args:
        file: JSON or YAML.
        name: which one; None is the only one.
        unnamed: name of a connector that the file gives none.

    Raises:
        FileError: there is no such connector, or there are several.
    """
    if not file.is_file():
        raise FileError(f"{file} is no file")
    found = list(_connectors(file, unnamed))
    chosen = [desired for desired in found if name in {None, desired.name}]
    if len(chosen) != 1:
        there = ", ".join(desired.name for desired in found) or "none"
        wanted = "one connector" if name is None else f"one connector {name!r}"
        raise FileError(f"{file} has to hold {wanted}; it holds {there}")
    return chosen[0]


def read_keys(file: Path) -> dict[str, str | None]:
    """Read some keys of a configuration: one JSON or YAML object, null for a key to remove.

    Raises:
        FileError: the file is not such an object.
    """
    documents = _documents(file)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise FileError(f"{file} has to hold one object with the keys to change")
    return {
        key: None if value is None else _text(value, key, str(file))
        for key, value in documents[0].items()
    }


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            inner = file.relative_to(path)
            is_hidden = any(part.startswith(".") for part in inner.parts)
            if file.is_file() and file.suffix in SUFFIXES and not is_hidden:
                yield file
    elif path.is_file():
        yield path
    else:
        raise FileError(f"{path} is neither a file nor a folder")


def _connectors(file: Path, unnamed: str | None = None) -> Iterator[Desired]:
    for number, content in enumerate(_documents(file), 1):
        listed = content if isinstance(content, list) else [content]
        for place, item in enumerate(listed, 1):
            several = len(listed) > 1 or number > 1
            where = f"{file} (number {max(place, number)})" if several else str(file)
            yield _connector(item, where, unnamed)


def _documents(file: Path) -> list[Any]:
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise FileError(f"{file} is larger than {_FILE_BYTES_MAX} bytes")
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise FileError(f"{file} cannot be read: {e}") from e
    try:
        if file.suffix == ".json":
            return [json.loads(text, object_pairs_hook=_once, parse_int=str, parse_float=str)]
        return [item for item in yaml.load_all(text, _TextLoader) if item != ""]
    except (ValueError, yaml.YAMLError, RecursionError) as e:
        raise FileError(f"{file} is no {'JSON' if file.suffix == '.json' else 'YAML'}: {e}") from e


def _connector(item: Any, where: str, unnamed: str | None) -> Desired:
    if not isinstance(item, dict):
        raise FileError(f"{where}: a connector is an object with keys, not a {_kind(item)}")
    inner = item.get("config")
    own = inner.get("name", unnamed) if isinstance(inner, dict) else unnamed
    name = item.get("name", own)
    if not isinstance(name, str) or not name.strip():
        raise FileError(f'{where}: a connector needs a "name"')
    state = None
    config: Any = item
    if isinstance(inner, dict):
        unknown = sorted(set(item) - _WRAPPED)
        if unknown:
            raise FileError(f"{where}: {unknown[0]!r} is next to config; put it inside")
        config, state = inner, item.get("initial_state")
        if state is not None and state not in STATES:
            raise FileError(f"{where}: initial_state is {state!r}, not {', '.join(STATES)}")
        if config.get("name", name) != name:
            raise FileError(f"{where}: it is called {name!r}, its config {config['name']!r}")
    texts = {"name": name}
    for key, value in config.items():
        texts[key] = _text(value, key, where)
    if "connector.class" not in texts:
        raise FileError(f"{where}: {name!r} has no connector.class")
    return Desired(name, texts, where, state)


def _text(value: Any, key: str, where: str) -> str:
    if isinstance(value, str):
        if MASK in value:
            raise FileError(
                f"{where}: the value of {key} is masked: put a reference such as "
                "${file:/etc/icefloe/secrets.properties:key} in its place"
            )
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise FileError(f"{where}: the value of {key} is a {_kind(value)}; values are text")


def _kind(value: Any) -> str:
    return {dict: "object", list: "list", type(None): "null"}.get(type(value), "single value")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is there twice")
        found[key] = value
    return found


class _TextLoader(yaml.BaseLoader):
    """YAML whose scalars are all text; no tag makes anything else of them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are texts, each there once."""
        pairs = [
            (self.construct_object(key, deep=True), self.construct_object(value, deep=True))
            for key, value in node.value
        ]
        del deep
        bad = next((key for key, _ in pairs if not isinstance(key, str)), None)
        if bad is not None:
            raise ValueError(f"{bad!r} is no key{node.start_mark}")
        return _once(pairs)
