"""Files of a Parquet folder in S3.

Rules of this file:
- Only the connector's own keys are used, unless the operator allows those of the machine
  (``own_credentials``): without keys, requests are anonymous.
- The client may send a request again, so a refusal can follow a request that succeeded.
- PyArrow, which writes the data files, has no conditional requests; therefore boto3.

Source:
    Amazon S3 API, "Conditional writes": ``If-None-Match: *``, statuses 409 and 412.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import boto3
from boto3.s3.transfer import TransferConfig
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from connect.errors import (
    CommitConflict,
    CommitRefused,
    CommitStateUnknown,
    ConfigError,
    IcefloeError,
    RetriableError,
)
from connect.gateways.storage.log_sizes import limited_content, limited_entries
from connect.gateways.storage.object_store import has_own_keys
from connect.gateways.storage.store_file_io import S3_CA_BUNDLE
from connect.redaction.foreign_text import shown_answer

_COPY_BYTES_MAX: Final = 5 * 2**30
_REGION: Final = "us-east-1"  # any, for stores other than Amazon's, which ignore it
_TRIES: Final = 3
_CONNECTIONS: Final = 16
_MESSAGE_CHARACTERS_MAX: Final = 500
_MISSING: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_EXISTS: Final = frozenset({"409", "412", "ConditionalRequestConflict", "PreconditionFailed"})
_REFUSED: Final = frozenset(
    {
        "401",
        "403",
        "AccessDenied",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "SignatureDoesNotMatch",
    }
)
_UNSUPPORTED: Final = frozenset({"501", "NotImplemented"})
_ROLES: Final = ("s3.role-arn", "client.role-arn")


class S3Store:
    """A prefix of a bucket; see ``FolderStore``.

    Args:
        properties: of the store, with the connector's own credentials.
        bucket: its name.
        prefix: of the folder's keys, without a slash at the end.

    Raises:
        ConfigError: ``parquet_location``: the properties name a role.
    """

    parallel = 8
    is_posix = False
    page_names = 1_000

    def __init__(self, properties: Mapping[str, Any], bucket: str, prefix: str) -> None:
        if role := next((key for key in _ROLES if properties.get(key)), None):
            raise ConfigError(
                f"{role} is not supported with Parquet folders: give the connector keys, or let "
                "the node's machine have the role",
                code="parquet_location",
            )
        own = {k: str(v) for k, v in properties.items() if k.startswith(("s3.", "client."))}
        own["own-keys"] = str(has_own_keys(properties))
        self._client = _client(tuple(sorted(own.items())))
        self._bucket = bucket
        self._prefix = prefix

    def read(self, path: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        with _mapped("reading", path):
            try:
                answer = self._client.get_object(Bucket=self._bucket, Key=self._key(path))
                with contextlib.closing(answer["Body"]) as body:
                    return limited_content(body.read)
            except ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise

    def create(self, path: str, content: bytes) -> None:
        """Write a file on condition that it does not exist."""
        with _mapped("writing", path, is_commit=True):
            self._client.put_object(
                Bucket=self._bucket, Key=self._key(path), Body=content, IfNoneMatch="*"
            )

    def replace(self, path: str, content: bytes) -> None:
        """Write a file."""
        with _mapped("writing", path):
            self._client.put_object(Bucket=self._bucket, Key=self._key(path), Body=content)

    def listed(self, folder: str, after: str) -> list[tuple[str, int]]:
        """Return names and sizes of a folder's files whose names sort after ``after``, sorted."""
        with _mapped("listing", folder):
            return sorted(limited_entries(self._entries(folder, after, self.page_names)))

    def has_files(self, folder: str) -> bool:
        """Return whether a folder has a file or folder."""
        with _mapped("listing", folder):
            return next(self._entries(folder, "", 1), None) is not None

    def _entries(self, folder: str, after: str, page_names: int) -> Iterator[tuple[str, int]]:
        prefix = f"{self._key(folder)}/"
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(
            Bucket=self._bucket,
            Prefix=prefix,
            StartAfter=prefix + after,
            PaginationConfig={"PageSize": page_names},
        ):
            for each in page.get("Contents", ()):
                if (name := each["Key"].removeprefix(prefix)) > after:
                    yield name, each["Size"]

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if there is none."""
        with _mapped("reading", path):
            try:
                answer = self._client.head_object(Bucket=self._bucket, Key=self._key(path))
            except ClientError as error:
                if _code(error) in _MISSING:
                    return None
                raise
            size: int = answer["ContentLength"]
            return size

    def publish(self, staged: str, path: str, size_bytes: int) -> bool:
        """Copy a staged file in the store; False if there is no staged file."""
        source = {"Bucket": self._bucket, "Key": self._key(staged)}
        with _mapped("publishing", path):
            try:
                if size_bytes > _COPY_BYTES_MAX:
                    parts = TransferConfig(multipart_threshold=_COPY_BYTES_MAX)
                    self._client.copy(source, self._bucket, self._key(path), Config=parts)
                else:
                    self._client.copy_object(
                        Bucket=self._bucket, Key=self._key(path), CopySource=source
                    )
            except ClientError as error:
                if _code(error) in _MISSING:
                    return False
                raise
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; what cannot be deleted is left."""
        for path in paths:
            with contextlib.suppress(ClientError, BotoCoreError):
                self._client.delete_object(Bucket=self._bucket, Key=self._key(path))

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path


@lru_cache(maxsize=32)
def _client(options: tuple[tuple[str, str], ...]) -> Any:
    """Return the client for a store; clients may be used by many threads, and are slow to make."""
    named = dict(options)

    def own(name: str) -> str | None:
        return named.get(f"s3.{name}") or named.get(f"client.{name}")

    has_keys = named["own-keys"] == "True"
    is_anonymous = named.get("s3.anonymous", "").lower() == "true"
    session = boto3.session.Session(
        aws_access_key_id=own("access-key-id") if has_keys else None,
        aws_secret_access_key=own("secret-access-key") if has_keys else None,
        aws_session_token=own("session-token") if has_keys else None,
        profile_name=own("profile-name"),
    )
    endpoint = named.get("s3.endpoint")
    is_virtual = named.get("s3.force-virtual-addressing", "").lower() == "true"
    style = "virtual" if is_virtual else "path" if endpoint else "auto"
    return session.client(
        "s3",
        region_name=own("region") or _REGION,
        endpoint_url=endpoint,
        verify=named.get(S3_CA_BUNDLE),
        config=Config(
            signature_version=UNSIGNED if is_anonymous and not has_keys else None,
            s3={"addressing_style": style},
            connect_timeout=float(named["s3.connect-timeout"]),
            read_timeout=float(named["s3.request-timeout"]),
            retries={"mode": "standard", "total_max_attempts": _TRIES},
            max_pool_connections=_CONNECTIONS,
            request_checksum_calculation="when_required",  # stores other than Amazon's lack others
            response_checksum_validation="when_required",
            ignore_configured_endpoint_urls=True,
        ),
    )


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _message(error: Exception) -> str:
    text = " ".join(str(error).split())
    return shown_answer(f"{type(error).__name__}: {text}")[:_MESSAGE_CHARACTERS_MAX]


@contextlib.contextmanager
def _mapped(doing: str, path: str, *, is_commit: bool = False) -> Iterator[None]:
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise _error(error, f"{doing} {path}: {_message(error)}", is_commit=is_commit) from error


def _error(error: Exception, message: str, *, is_commit: bool) -> IcefloeError:
    code = _code(error) if isinstance(error, ClientError) else ""
    if code in _REFUSED:
        return CommitRefused(message, code="forbidden")
    if is_commit and code in _EXISTS:
        return CommitConflict(message)
    if is_commit and code in _UNSUPPORTED:
        return CommitRefused(f"the store has no conditional writes ({message})", code=_CONDITIONS)
    if is_commit:
        return CommitStateUnknown(message)
    return RetriableError(message, code="catalog_unavailable")


_CONDITIONS: Final = "conditional_writes"
