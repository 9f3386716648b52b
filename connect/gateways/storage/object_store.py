"""Object stores: which properties open them, and how files are deleted.

Rules of this file:
- Only text properties travel to other processes; tokens of the catalog do not.
- A written file is verified in the store before a table refers to it.
- Files are opened by ``StoreFileIO``, never by a class that a property names.
- An error names the store, and what to change where its text says that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import structlog
from pyiceberg.io import FileIO, load_file_io

from connect.errors import ConfigError, RetriableError
from connect.gateways.access_policy import AMBIENT_ALLOWED, access_policy
from connect.gateways.catalog_properties import python_modules_in
from connect.gateways.storage.store_file_io import (
    S3_CA_BUNDLE,
    StoreFileIO,
    azure_hosts,
    container_of,
    is_anonymous,
    sas_token,
)
from connect.redaction.foreign_text import shown_answer

_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_ROLES = ("s3.role-arn", "client.role-arn", "glue.role-arn", "dynamodb.role-arn")
_AZURE = ("adls.account-key", "adls.client-secret")
_OWN_KEYS: Mapping[str, tuple[str, ...]] = {
    "gs": ("gcs.oauth2.token",),
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), _AZURE),
    **dict.fromkeys(("hdfs", "viewfs", "hf"), ()),
}
"""Properties of which one brings credentials, by scheme; S3 allows anonymous requests."""
_STORAGE_PREFIXES = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "hf.")
_MESSAGE_CHARACTERS_MAX = 500
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|INVALID_SIGNATURE|"
    r"SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|HTTP status 40[13]|"
    r"Azure Error: \[\w*\] 40[13]|Status\((PERMISSION_DENIED|UNAUTHENTICATED)"
)
_NO_PLACE = re.compile(
    r"NO_SUCH_BUCKET|\[ContainerNotFound\]|\[FilesystemNotFound\]|Status\(NOT_FOUND.*CreateResumable|"
    r"KeyTooLong|File name too long"
)
_NOT_TRUSTED = re.compile(r"curlCode: (60|77)|SSL peer certificate|CURL error \[(60|77)\]")
_ADVICE = (
    (
        _NOT_TRUSTED,
        "the certificate of the store is not trusted; set iceberg.catalog.s3.ssl.cabundle",
    ),
    (_REFUSED, "the store refuses the credentials, or they lack a permission"),
    (_NO_PLACE, "the bucket or container does not exist, or the name is too long"),
)
_KEYLESS = (
    "no keys are set; set iceberg.catalog.s3.access-key-id and "
    "iceberg.catalog.s3.secret-access-key, or give the node's machine a role"
)
_log = structlog.get_logger(__name__)


def storage_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """The part of a ``FileIO``'s properties that opens files, for a worker's plan.

    Args:
        properties: ``table.io.properties``: the catalog's, with vended credentials.

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
        ConfigError: ``host_refused``, ``path_refused``; ``ambient_credentials``: a profile or a
            role, or a region that is none.
    """
    access_policy().check_addresses(properties)
    if bundle := properties.get(S3_CA_BUNDLE):
        access_policy().check_path(bundle)
    out = dict(properties)
    _check_regions(properties)
    if access_policy().has_ambient:
        return out
    for key, value in properties.items():
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


def _check_regions(properties: Mapping[str, Any]) -> None:
    """Refuse a region that would change the host: it is a part of the name of the store's host."""
    for key, value in properties.items():
        if key.endswith("region") and value and not _REGION.fullmatch(str(value)):
            raise ConfigError(f"{key} is no region's name", code="catalog_property")


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


def require_own_keys(properties: Mapping[str, Any], client: str, service: str) -> None:
    """Refuse a client of Amazon's services that would use the node's credentials.

    Args:
        properties: of the client.
        client: subject of the error's sentence.
        service: as ``has_own_keys``.

    Raises:
        ConfigError: ``ambient_credentials``.
    """
    if not has_own_keys(properties, service):
        raise _ambient(client)


def check_storage(properties: Mapping[str, Any], location: str) -> None:
    """Check where files are, and with which credentials they are opened.

    Raises:
        ConfigError: ``path_refused``, ``host_refused``, ``ambient_credentials``,
            ``catalog_property``.
    """
    access_policy().check_location(location)
    host = StoreFileIO.parse_location(location)[1] if container_of(location) else None
    if host is not None and access_policy().is_guarded:
        for authority in azure_hosts(properties, host)[1:]:
            access_policy().check_host(authority.partition(":")[0])
    scheme = location.partition(":")[0].lower()
    keys = _OWN_KEYS.get(scheme)
    if keys is None or access_policy().has_ambient or any(map(properties.get, keys)):
        return
    if host is not None and sas_token(properties, host):
        return
    if scheme == "gs" and is_anonymous(properties):
        return
    raise _ambient(location)


def has_credentials(properties: Mapping[str, Any], location: str) -> bool:
    """Whether properties bring credentials for the store of a location.

    A connector without them gets them from its catalog, or uses those of the machine.
    """
    scheme = location.partition(":")[0].lower()
    if scheme in {"s3", "s3a", "s3n"}:
        return has_own_keys(properties)
    return any(map(properties.get, _OWN_KEYS.get(scheme, ()))) or (
        scheme == "gs" and is_anonymous(properties)
    )


def signs_remotely(properties: Mapping[str, Any]) -> bool:
    """Whether a catalog vends no keys for S3, and signs every request itself."""
    is_enabled = str(properties.get("s3.remote-signing-enabled", "")).lower() == "true"
    return (is_enabled or bool(properties.get("s3.signer"))) and not has_own_keys(properties)


def _ambient(client: str) -> ConfigError:
    return ConfigError(
        f"{client} would use credentials of the node's machine; give the connector its own, or ask "
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
                size: int | None = len(io.new_input(path))
            except FileNotFoundError:
                size = None
        if not size or expected not in {None, size}:
            raise RetriableError(
                f"the store said that {path} was written "
                f"({'' if expected is None else f'{expected} bytes, '}found "
                f"{'nothing' if size is None else size})",
                code="storage_unavailable",
            )


def probe(io: FileIO, path: str) -> None:
    """Write and delete a small file.

    A store that refuses only the deletion passes: files that cannot be deleted are left.

    Raises:
        RetriableError: ``storage_unavailable``: it cannot be written.
    """
    try:
        with storage_errors(f"writing {path}"):
            with io.new_output(path).create(overwrite=True) as stream:
                stream.write(b"icefloe")
            verify_written(io, {path: len(b"icefloe")})
    except RetriableError as error:
        is_signed = has_own_keys(io.properties) or signs_remotely(io.properties)
        if path.startswith(("s3:", "s3a:", "s3n:")) and not is_signed:
            error.message = f"{_KEYLESS}: {error.message}"
        raise
    delete_files(io, [path])


def store_advice(text: str) -> str | None:
    """What an error's text of a store says that an operator can change; None if it is not known."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(text)), None)


def is_refusal(error: BaseException) -> bool:
    """Whether a store answered that files may not be written at a place."""
    text = str(error)
    return isinstance(error, PermissionError) or bool(
        _REFUSED.search(text) or _NO_PLACE.search(text)
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
        raise RetriableError(
            f"{doing}: {store_error_text(error)}", code="storage_unavailable"
        ) from error


def store_error_text(error: BaseException) -> str:
    """The text of a store's error with advice; where foreign texts are hidden, its class."""
    text = " ".join(str(error).split())
    shown = shown_answer(text[:_MESSAGE_CHARACTERS_MAX]) or type(error).__name__
    advice = store_advice(text)
    return shown if advice is None else f"{advice} ({shown})"
