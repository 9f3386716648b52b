"""Reads connectors from JSON and YAML files, in either of Kafka Connect's forms.

Rules of this file:
- Values stay the text of the file: a number or a ``yes`` in YAML is not converted, because Kafka
  Connect's configuration values are text. ``true`` and ``false`` of JSON become text.
- A duplicate key is an error. ``$schema`` is for editors, and no key of the connector.
- Every error names the file and, if known, the connector or key.
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


_JSON_FAULTS = {
    "Expecting ',' delimiter": "a comma is missing before this place",
    "Expecting ':' delimiter": "a colon is missing after the key",
    "Expecting property name enclosed in double quotes": "a key in double quotes is missing",
    "Expecting value": "a value is missing; a text needs double quotes",
    "Extra data": "there is text after the end of the JSON value",
}


class ConnectorFileError(ConfigError):
    """A file does not contain valid connectors."""

    default_code = "file"


@dataclass(frozen=True, slots=True)
class DesiredConnector:
    """A connector as a file defines it.

    Attributes:
        config: its configuration, ``name`` included.
        source: the file, for messages.
        initial_state: state in which it is created; None stands for RUNNING.
    """

    name: str
    config: Mapping[str, str]
    source: str
    initial_state: str | None = None


def read(paths: Iterable[Path]) -> tuple[DesiredConnector, ...]:
    """Read connectors from files and folders, sorted by name.

    Folders are read recursively. Files and folders whose names begin with a dot are skipped.

    Raises:
        ConnectorFileError: a path does not exist, a file is invalid, two connectors have the same
            name, or there is no connector.
    """
    listed = list(paths)
    connectors: dict[str, DesiredConnector] = {}
    for path in listed:
        for file in _files(path):
            for desired in _connectors(file):
                first_declared = connectors.setdefault(desired.name, desired)
                if first_declared is not desired:
                    raise ConnectorFileError(
                        f"the connector {desired.name!r} is in {first_declared.source} and in "
                        f"{file}: remove one of them"
                    )
    if not connectors:
        places = ", ".join(map(str, listed))
        raise ConnectorFileError(
            f"no connector in {places}: file names must end in {', '.join(SUFFIXES)}"
        )
    return tuple(connectors[name] for name in sorted(connectors))


def read_one(
    file: Path, name: str | None = None, *, unnamed: str | None = None
) -> DesiredConnector:
    """Read one connector from a file.

    Args:
        file: JSON or YAML.
        name: of the connector; None if the file must contain exactly one.
        unnamed: name for a connector that has none in the file.

    Raises:
        ConnectorFileError: the file contains no such connector, or several.
    """
    if not file.is_file():
        raise ConnectorFileError(f"{file} is not a file")
    connectors = list(_connectors(file, unnamed))
    chosen = [desired for desired in connectors if name in {None, desired.name}]
    if len(chosen) != 1:
        names = ", ".join(desired.name for desired in connectors) or "none"
        expected = "one connector" if name is None else f"one connector {name!r}"
        raise ConnectorFileError(f"{file} must contain {expected}; it contains {names}")
    return chosen[0]


def read_keys(file: Path) -> dict[str, str | None]:
    """Read some keys of a configuration: one JSON or YAML object, null for a key to remove.

    Raises:
        ConnectorFileError: the file is not such an object.
    """
    documents = _documents(file)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise ConnectorFileError(f"{file} must contain one object with the keys to change")
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
        raise ConnectorFileError(f"{path} is neither a file nor a folder")


def _connectors(file: Path, unnamed: str | None = None) -> Iterator[DesiredConnector]:
    for number, content in enumerate(_documents(file), 1):
        listed = content if isinstance(content, list) else [content]
        for item_number, item in enumerate(listed, 1):
            several = len(listed) > 1 or number > 1
            where = f"{file} (number {max(item_number, number)})" if several else str(file)
            yield _connector(item, where, unnamed)


def _documents(file: Path) -> list[Any]:
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise ConnectorFileError(f"{file} is larger than {_FILE_BYTES_MAX} bytes")
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConnectorFileError(f"{file} cannot be read: {e}") from e
    try:
        if file.suffix == ".json":
            return [
                json.loads(
                    text, object_pairs_hook=_object_of_unique_keys, parse_int=str, parse_float=str
                )
            ]
        return [item for item in yaml.load_all(text, _TextLoader) if item != ""]
    except json.JSONDecodeError as e:
        raise ConnectorFileError(f"{file} is not valid JSON: {_json_fault(e)}") from e
    except (ValueError, yaml.YAMLError, RecursionError) as e:
        kind = "JSON" if file.suffix == ".json" else "YAML"
        raise ConnectorFileError(f"{file} is not valid {kind}: {e}") from e


def _json_fault(error: json.JSONDecodeError) -> str:
    """Return the place of an error in JSON, and what is wrong there."""
    text, at = error.doc, error.pos
    if text[at : at + 1] != ",":
        at = len(text[:at].rstrip()) - 1  # the place is behind the comma, or at it
    if text[at : at + 1] == "," and text[at + 1 :].lstrip()[:1] in {"}", "]"}:
        line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        return f"line {line}, column {column}: remove the comma, nothing follows it"
    why = _JSON_FAULTS.get(error.msg, error.msg)
    return f"line {error.lineno}, column {error.colno}: {why}"


def _connector(item: Any, where: str, unnamed: str | None) -> DesiredConnector:
    if not isinstance(item, dict):
        raise ConnectorFileError(
            f"{where}: a connector is an object with keys, not a {_kind(item)}"
        )
    item = {key: value for key, value in item.items() if key != "$schema"}
    inner = item.get("config")
    own = inner.get("name", unnamed) if isinstance(inner, dict) else unnamed
    name = item.get("name", own)
    if not isinstance(name, str) or not name.strip():
        raise ConnectorFileError(f'{where}: a connector needs a "name"')
    state = None
    config: Any = item
    if isinstance(inner, dict):
        unknown = sorted(set(item) - _WRAPPED)
        if unknown:
            raise ConnectorFileError(f"{where}: move {unknown[0]!r} into config")
        config, state = inner, item.get("initial_state")
        if state is not None and state not in STATES:
            raise ConnectorFileError(
                f"{where}: initial_state is {state!r}, not one of {', '.join(STATES)}"
            )
        if config.get("name", name) != name:
            raise ConnectorFileError(
                f"{where}: the connector is named {name!r}, but its config has the name "
                f"{config['name']!r}"
            )
    texts = {"name": name}
    for key, value in config.items():
        texts[key] = _text(value, key, where)
    if "connector.class" not in texts:
        raise ConnectorFileError(f"{where}: {name!r} has no connector.class")
    return DesiredConnector(name, texts, where, state)


def _text(value: Any, key: str, where: str) -> str:
    if isinstance(value, str):
        if MASK in value:
            raise ConnectorFileError(
                f"{where}: the value of {key} is masked: replace it by a reference such as "
                "${file:/etc/icefloe/secrets.properties:key}"
            )
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    raise ConnectorFileError(f"{where}: the value of {key} is a {_kind(value)}; it must be text")


def _kind(value: Any) -> str:
    return {dict: "object", list: "list", type(None): "null"}.get(type(value), "single value")


def _object_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} is duplicate")
        members[key] = value
    return members


class _TextLoader(yaml.BaseLoader):
    """Loads YAML with text as the only scalar type; tags have no effect."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping; its keys must be text and unique."""
        pairs = [
            (self.construct_object(key, deep=True), self.construct_object(value, deep=True))
            for key, value in node.value
        ]
        del deep
        bad = next((key for key, _ in pairs if not isinstance(key, str)), None)
        if bad is not None:
            raise ValueError(f"{bad!r} is not a valid key{node.start_mark}")
        return _object_of_unique_keys(pairs)
