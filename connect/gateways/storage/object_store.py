"""Object stores: which properties open them, and how files go away.

Rules of this file:
- Only text properties travel to other processes; tokens of the catalog do not.
- A written file is verified in the store before a table refers to it.
- Files are opened by PyIceberg's own ``FileIO`` for the location's scheme, never by a class that
  a property names.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import structlog
from pyiceberg.io import FileIO, load_file_io

from connect.errors import ConfigError, RetriableError
from connect.gateways.catalog_properties import python_modules_in
from connect.gateways.reach import AMBIENT_ALLOWED, reach
from connect.redaction.foreign_text import shown_answer

_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_ROLES = ("s3.role-arn", "client.role-arn", "glue.role-arn", "dynamodb.role-arn")
_AZURE = ("adls.account-key", "adls.sas-token", "adls.client-secret")
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "gs": ("gcs.oauth2.token",),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
    **dict.fromkeys(("hdfs", "viewfs", "hf"), ()),
}
"""Properties of which one brings credentials, by scheme; S3 allows anonymous requests."""
_STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "hf.")
_MESSAGE_CHARACTERS_MAX = 500
_log = structlog.get_logger(__name__)


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """The part of a ``FileIO``'s properties that opens files, for a worker's plan.

    Args:
        properties: ``table.io.properties``: the catalog's, with credentials the catalog lent.

    Returns:
        Text only; may hold secrets of the object store, none of the catalog's.
    """
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(_STORAGE_PREFIXES)
        and isinstance(value, str)
        and not python_modules_in({key: value})
    }


def own_credentials(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's properties without the credentials of the node's machine.

    Without keys in the configuration the client sends anonymous requests, if the node's operator
    does not let connectors use the credentials of its machine and environment.

    Raises:
        ConfigError: ``host_refused``; ``ambient_credentials``: a profile or a role, or a region
            that is none.
    """
    reach().check_addresses(properties)
    out = dict(properties)
    if reach().has_ambient:
        return out
    for key, value in properties.items():
        if key.endswith("region") and value and not _REGION.fullmatch(str(value)):
            raise ConfigError(f"{key} is no region's name", code="catalog_property")
        if key.endswith("profile-name") and value:
            raise _ambient(key)
    if not has_own_keys(properties):
        for key in _ROLES:
            if properties.get(key):
                raise _ambient(key)
        out["s3.anonymous"] = "true"
        for key in ("s3.session-token", "client.session-token"):
            out.pop(key, None)
    return out


def has_own_keys(properties: Mapping[str, Any], service: str = "s3") -> bool:
    """Whether the properties bring keys for one of Amazon's services, and no profile.

    Args:
        properties: of a client.
        service: prefix of its own keys; ``client`` keys are for every service.
    """
    has_keys = any(
        properties.get(f"{prefix}.access-key-id") and properties.get(f"{prefix}.secret-access-key")
        for prefix in (service, "client")
    )
    return has_keys and not any(
        value for key, value in properties.items() if key.endswith("profile-name")
    )


def require_own_keys(properties: Mapping[str, Any], what: str, service: str) -> None:
    """Refuse a client of Amazon's services that would use the node's credentials.

    Args:
        properties: of the client.
        what: subject of the sentence.
        service: as ``has_own_keys``.

    Raises:
        ConfigError: ``ambient_credentials``.
    """
    if not has_own_keys(properties, service):
        raise _ambient(what)


def check_storage(properties: Mapping[str, Any], location: str) -> None:
    """Judge where files lie, and with which credentials they are opened.

    Raises:
        ConfigError: ``path_refused``, ``host_refused``, ``ambient_credentials``.
    """
    reach().check_location(location)
    keys = _OWN_KEYS.get(location.partition(":")[0].lower())
    if keys is not None and not reach().has_ambient and not any(map(properties.get, keys)):
        raise _ambient(location)


def _ambient(what: str) -> ConfigError:
    return ConfigError(
        f"{what} would use credentials of the node's machine; give the connector its own, or ask "
        f"the node's operator to set {AMBIENT_ALLOWED}",
        code="ambient_credentials",
    )


def open_storage(properties: Mapping[str, str], location: str) -> FileIO:
    """A ``FileIO`` for files at and below ``location``.

    Raises:
        ConfigError: a property names a Python module.
    """
    if named := python_modules_in(properties):
        raise ConfigError(f"{named[0]} would import a Python module", code="python_module_refused")
    return load_file_io(dict(properties), location)


def delete_files(io: FileIO, paths: Iterable[str]) -> int:
    """Delete files that no table refers to; a file that cannot be deleted is left as an orphan.

    Returns:
        Number of deleted files.
    """
    deleted = 0
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            _log.warning("orphan_left", path=path, error=str(error))
            continue
        deleted += 1
    return deleted


def verify_written(io: FileIO, sizes: Mapping[str, int | None]) -> None:
    """Check that the files exist which the store acknowledged.

    A table that refers to a missing file cannot be read.

    Args:
        io: of the files.
        sizes: path -> size in bytes, None for any but nothing.

    Raises:
        RetriableError: ``storage_unavailable``: one is missing or of another size.
    """
    for path, expected in sizes.items():
        with storage_errors(f"reading {path}"):
            try:
                found: int | None = len(io.new_input(path))
            except FileNotFoundError:
                found = None
        if not found or expected not in {None, found}:
            raise RetriableError(
                f"the store said that {path} was written "
                f"({'' if expected is None else f'{expected} bytes, '}found "
                f"{'nothing' if found is None else found})",
                code="storage_unavailable",
            )


@contextlib.contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn what an object store raises into a ``RetriableError``: ``storage_unavailable``.

    Args:
        doing: what failed, for the message.
    """
    try:
        yield
    except OSError as error:
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS_MAX]
        raise RetriableError(
            f"{doing}: {shown_answer(text) or type(error).__name__}", code="storage_unavailable"
        ) from error
