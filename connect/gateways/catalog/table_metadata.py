"""A table's metadata: read from JSON, and changed, at a cost that does not follow its history.

Rules of this file:
- Schemas with equal JSON are one object in the process, and so are partition specs: most tables
  keep them, and to build them takes more time than the rest. PyIceberg's objects cannot be changed.
  Owners of tables decide how large they are, so those that are kept have a limit of bytes.
- Snapshots that are not wanted are dropped before PyIceberg makes objects of them.
- Text that is no metadata raises what PyIceberg raises.

Source:
    PyIceberg 0.12.0 ``update_table_metadata``, which copies all of the metadata after each change;
    ``TableMetadataUtil``.
"""

from __future__ import annotations

import marshal
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from pydantic_core import from_json
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, TableMetadataWrapper
from pyiceberg.table.update import (
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)

from connect.clock import SystemClock
from connect.gateways.catalog.metadata_v3 import with_next_row_id
from connect.gateways.catalog.table_properties import VERSIONS_MAX, size

_LOG = b'"snapshot-log":['
_MAIN = "main"
_MARSHAL_VERSION = 2  # later versions depend on which objects are shared
_SHARED_MAX = 1_024
_SHARED_BYTES_MAX = 16 * 2**20
T = TypeVar("T")
_CLOCK = SystemClock()


def table_response(text: bytes, *, with_history: bool = True) -> TableResponse:
    """Read a REST catalog's answer with a table.

    Args:
        text: JSON in UTF-8.
        with_history: False leaves out snapshots that no branch and no tag names.

    Raises:
        pydantic.ValidationError: it is no such answer.
    """
    content = _object(text if with_history else _with_short_log(text)) or _object(text)
    metadata = None if content is None else content.get("metadata")
    if content is None or not isinstance(metadata, dict):
        return TableResponse.model_validate_json(text)
    _prepare(metadata, with_history=with_history)
    return TableResponse.model_validate(content)


def table_metadata(text: bytes) -> TableMetadata:
    """Read a metadata file.

    Raises:
        pyiceberg.exceptions.ValidationError: it is none.
    """
    content = _object(text)
    if content is None:
        return TableMetadataUtil.parse_raw(text.decode())
    _prepare(content, with_history=True)
    try:
        return TableMetadataWrapper.model_validate(content).root
    except ValueError:
        return TableMetadataUtil.parse_raw(text.decode())  # raises the error of PyIceberg


def changed_metadata(
    metadata: TableMetadata, updates: Sequence[TableUpdate], metadata_location: str | None = None
) -> TableMetadata:
    """Return the metadata after a change; the parts that do not change are shared.

    Args:
        metadata: before the change; its next row id may be missing.
        updates: the change.
        metadata_location: of ``metadata``, for the log of metadata files; None adds no entry.

    Raises:
        ValueError: an update does not fit the metadata.
    """
    context = _TableMetadataUpdateContext()
    out = with_next_row_id(metadata)
    for update in updates:
        out = _apply_table_update(update, out, context)
    if context.has_changes():
        if metadata_location:
            out = _logged(out, metadata_location, metadata.last_updated_ms)
        if out.last_updated_ms == metadata.last_updated_ms:
            out = out.model_copy(update={"last_updated_ms": _CLOCK.now_ms()})
    out.spec().check_compatible(out.schema())
    out.sort_order().check_compatible(out.schema())
    return out


def _logged(metadata: TableMetadata, before: str, before_ms: int) -> TableMetadata:
    """Add the metadata file before to the log, also where the log's length is no number."""
    properties = metadata.properties
    if VERSIONS_MAX not in properties or size(properties, VERSIONS_MAX, 0):
        return _update_table_metadata_log(metadata, before, before_ms)
    usable = {key: text for key, text in properties.items() if key != VERSIONS_MAX}
    readable = metadata.model_copy(update={"properties": usable})
    logged = _update_table_metadata_log(readable, before, before_ms)
    return logged.model_copy(update={"properties": properties})


def referenced_only(metadata: TableMetadata) -> TableMetadata:
    """Return a table's metadata with only the snapshots that branches and tags name."""
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return metadata.model_copy(
        update={
            "snapshots": [s for s in metadata.snapshots if s.snapshot_id in named],
            "snapshot_log": metadata.snapshot_log[-1:],
        }
    )


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        content = from_json(text, cache_strings="keys")
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _with_short_log(text: bytes) -> bytes:
    """Cut the log of snapshots down to its last entry, before it is parsed.

    It has an entry for each snapshot, even if the catalog leaves the snapshots out. Its entries
    have numbers only, so its first bracket ends it. If they do not, what is left without it is no
    JSON.
    """
    start = text.find(_LOG)
    if start < 1 or text[start - 1 : start] == b"\\":  # within a string
        return text
    start += len(_LOG)
    last = text.rfind(b"{", start, max(text.find(b"]", start), start))
    return text if last < 0 else text[:start] + text[last:]


def _prepare(metadata: dict[str, Any], *, with_history: bool) -> None:
    if not with_history:
        _drop_history(metadata)
    if metadata.get("format-version") == 1:
        return  # PyIceberg changes its parts before it reads them
    for key, shared in (("schemas", _SCHEMAS.get), ("partition-specs", _SPECS.get)):
        if isinstance(listed := metadata.get(key), list):
            metadata[key] = [shared(marshal.dumps(each, _MARSHAL_VERSION)) for each in listed]


def _drop_history(metadata: dict[str, Any]) -> None:
    """Leave out what ``referenced_only`` would; metadata of another form stays as it is."""
    refs, snapshots = metadata.get("refs") or {}, metadata.get("snapshots")
    if not isinstance(refs, dict) or not isinstance(snapshots, list):
        return
    try:
        named = {ref["snapshot-id"] for ref in refs.values()}
        if _MAIN not in refs:
            named.add(metadata.get("current-snapshot-id"))
        metadata["snapshots"] = [s for s in snapshots if s["snapshot-id"] in named]
    except (TypeError, KeyError):
        return
    if isinstance(entries := metadata.get("snapshot-log"), list):
        metadata["snapshot-log"] = entries[-1:]


class SharedParts(Generic[T]):
    """Objects by the JSON that they were made of, bounded in number and in bytes; thread-safe.

    Args:
        make: makes an object.
        bytes_max: size of the texts; the objects take several times as much.
    """

    def __init__(self, make: Callable[[Any], T], bytes_max: int = _SHARED_BYTES_MAX) -> None:
        self._make = make
        self._bytes_max = bytes_max
        self._kept: OrderedDict[bytes, T] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, dumped: bytes) -> T:
        """Return the object of a text."""
        with self._lock:
            if (kept := self._kept.get(dumped)) is not None:
                self._kept.move_to_end(dumped)
                return kept
        made = self._make(marshal.loads(dumped))  # noqa: S302 - written by this module
        with self._lock:
            if len(dumped) > self._bytes_max // 4:  # it would replace those of all other tables
                return made
            if dumped in self._kept:
                return self._kept[dumped]
            self._kept[dumped] = made
            self._bytes += len(dumped)
            while len(self._kept) > _SHARED_MAX or self._bytes > self._bytes_max:
                oldest, _ = self._kept.popitem(last=False)
                self._bytes -= len(oldest)
        return made


_SCHEMAS: Final = SharedParts(Schema.model_validate)
_SPECS: Final = SharedParts(PartitionSpec.model_validate)
