"""Authentication and grants of callers.

Rules of this file:
- Without a users file there is no authentication, and the node listens on loopback only.
- ``GET /health`` needs no authentication: probes have no password. Neither do the files of the
  status page, which contain no data of the node.
- A caller without the role is refused before any other part of the request is read.
- Passwords are stored as scrypt hashes, tokens as SHA-256 hashes (they are long and random).
  Comparing takes the same time for every wrong one. They are never shown or logged.
- ``Users.caller`` reads memory alone. Slow steps are separate: ``refresh`` reads the file, and
  ``check`` hashes a password.
- A checked password is accepted again for ``KNOWN_MS`` by a keyed hash of it, as long as the users
  file does not change.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from connect.clock import Clock
from connect.config.name_pattern import matches
from connect.errors import ConfigError
from connect.logs import logger

Role = Literal["read", "operate", "admin"]
_RANKS: Final[dict[str, int]] = {"read": 0, "operate": 1, "admin": 2}
_USER_KEYS = frozenset({"name", "password", "token", "certificate", "grants"})
_GRANT_KEYS = frozenset({"role", "connectors"})
_SCRYPT: Final = {"n": 2**14, "r": 8, "p": 1}
_HEX = re.compile(r"(?:[0-9a-f]{2})+", re.ASCII)
_TOKEN_BYTES = 32
_FILE_POLL_MS = 1_000
KNOWN_MS: Final = 300_000
_KNOWN_MAX = 1_000
_FILE_BYTES_MAX = 2**20

_log = logger("auth")


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for the connectors whose names match one of the patterns.

    In a pattern, ``*`` matches any text; every other character matches itself.
    """

    role: Role
    connectors: tuple[str, ...]

    def covers(self, role: Role, connector: str | None) -> bool:
        """Return whether it grants a role for a connector; None is the whole node."""
        if _RANKS[self.role] < _RANKS[role]:
            return False
        if connector is None:
            return "*" in self.connectors
        return any(matches(pattern, connector) for pattern in self.connectors)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller and their grants."""

    name: str
    grants: tuple[Grant, ...]

    def may(self, role: Role, connector: str | None) -> bool:
        """Return whether the caller has a role for a connector; None is the whole node."""
        return any(grant.covers(role, connector) for grant in self.grants)

    def role(self, connector: str | None) -> Role | None:
        """Return the highest role for a connector, or None; ``connector`` None is the node."""
        roles: tuple[Role, ...] = ("admin", "operate", "read")
        return next((role for role in roles if self.may(role, connector)), None)

    def may_somewhere(self, role: Role) -> bool:
        """Return whether the caller has a role for any connector."""
        return any(_RANKS[grant.role] >= _RANKS[role] for grant in self.grants)


EVERYBODY: Final = Caller("everybody", (Grant("admin", ("*",)),))


@dataclass(frozen=True, slots=True, repr=False)
class _User:
    caller: Caller
    password: tuple[bytes, bytes] | None = None  # salt, hash
    token: bytes | None = None
    certificate: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """A name and a password that have not been checked.

    Attributes:
        name: name as sent; a user of that name need not exist.
        password: as sent.
        digest: keyed hash of both.
        is_familiar: whether this pair was right before, with the present users file.
    """

    name: str
    password: str
    digest: bytes
    is_familiar: bool


class Users:
    """The users of a users file, which is read again when it changes. Thread-safe.

    Args:
        file: YAML or JSON; docs/how-to/security.md describes its form.
        clock: for how often the file is read, and how long a password is known.

    Raises:
        ConfigError: ``users_file``, it cannot be read or contains no users.
    """

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._polled_ms = clock.monotonic_ms()
        self._stamp = _stamp(file)
        self._users = _read(file)
        self._secret = secrets.token_bytes(_TOKEN_BYTES)
        self._known: dict[bytes, tuple[Caller, int]] = {}  # and until when
        self._lock = threading.Lock()

    @property
    def challenge(self) -> str:
        """The challenge of a 401; it names passwords only if a user has one, or browsers ask."""
        basic = 'Basic realm="icefloe", ' if any(u.password for u in self._users) else ""
        return f'{basic}Bearer realm="icefloe"'

    @property
    def is_due(self) -> bool:
        """Whether the file has to be checked for changes."""
        return self._clock.monotonic_ms() - self._polled_ms >= _FILE_POLL_MS

    def caller(self, authorization: str | None, certificate: str | None) -> Caller | Login | None:
        """Return the caller of a request; None when it is unknown.

        Args:
            authorization: the header ``Authorization``.
            certificate: common name of the client's certificate, checked by TLS.

        Returns:
            A ``Login`` when a password has to be checked (``check``).
        """
        users = self._users
        if authorization is None and certificate is not None:
            return next((u.caller for u in users if u.certificate == certificate), None)
        scheme, _, credentials = (authorization or "").partition(" ")
        if scheme.lower() == "bearer":
            digest = hashlib.sha256(credentials.strip().encode()).digest()
            matches = [u.caller for u in users if u.token and hmac.compare_digest(u.token, digest)]
            return matches[0] if matches else None
        if scheme.lower() == "basic":
            return self._by_password(credentials.strip())
        return None

    def _by_password(self, credentials: str) -> Caller | Login | None:
        try:
            pair = base64.b64decode(credentials, validate=True)
            name, _, password = pair.decode().partition(":")
        except (binascii.Error, ValueError):
            return None
        digest = hmac.digest(self._secret, pair, "sha256")
        with self._lock:
            remembered = self._known.get(digest)
        if remembered is not None and self._clock.monotonic_ms() < remembered[1]:
            return remembered[0]
        return Login(name, password, digest, is_familiar=remembered is not None)

    def check(self, login: Login) -> Caller | None:
        """Hash a password and compare it; None when it is wrong. Takes about 50 ms of a core.

        The users may change while it is hashed: the result is that of the users afterwards.
        """
        user = self._with_password(login.name)
        salt, expected = user.password if user and user.password else (b"unknown", b"")
        digest = hashlib.scrypt(login.password.encode(), salt=salt, **_SCRYPT)
        is_right = hmac.compare_digest(digest, expected)
        with self._lock:
            now = self._with_password(login.name)
            if not is_right or user is None or now is None or now.password != user.password:
                self._known.pop(login.digest, None)
                return None
            if len(self._known) >= _KNOWN_MAX:
                del self._known[next(iter(self._known))]
            self._known[login.digest] = now.caller, self._clock.monotonic_ms() + KNOWN_MS
            return now.caller

    def _with_password(self, name: str) -> _User | None:
        return next((u for u in self._users if u.caller.name == name and u.password), None)

    def refresh(self) -> None:
        """Read the file again when it has changed; an invalid file does not change the users."""
        with self._lock:
            if not self.is_due:
                return
            self._polled_ms = self._clock.monotonic_ms()
            stamp, before = _stamp(self._file), self._stamp
            self._stamp = stamp
        if stamp == before:
            return
        try:
            users = _read(self._file)
        except ConfigError as e:
            _log.error("users file is not valid; the users do not change", error=str(e))
            return
        with self._lock:
            self._users = users
            self._known.clear()
        _log.info("users file read again", users=len(users))


def hashed_password(password: str, salt: bytes | None = None) -> str:
    """Return a password in the form of the users file."""
    salt = salt or secrets.token_bytes(16)
    digest = hashlib.scrypt(password.encode(), salt=salt, **_SCRYPT)
    return f"scrypt:{salt.hex()}:{digest.hex()}"


def new_token() -> tuple[str, str]:
    """Return a new bearer token, and its form in the users file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return token, f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(file: Path) -> tuple[_User, ...]:
    try:
        if file.stat().st_size > _FILE_BYTES_MAX:
            raise _wrong(file, f"it is larger than {_FILE_BYTES_MAX} bytes")
        content = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as e:
        raise _wrong(file, f"it cannot be read: {e}") from e
    except yaml.YAMLError:
        raise _wrong(file, "it is not YAML") from None  # the parser's text would show the content
    listed = content.get("users") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not listed:
        raise _wrong(file, "it has no list `users`")
    users = tuple(_user(file, number, item) for number, item in enumerate(listed, 1))
    names = [user.caller.name for user in users]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise _wrong(file, f"it has the user {twice!r} twice")
    return users


def _user(file: Path, number: int, item: Any) -> _User:
    name = item.get("name") if isinstance(item, dict) else None
    if not isinstance(name, str) or not name or ":" in name:
        raise _wrong(file, f"user {number} has no name (text without a colon)")
    _refuse_unknown(file, f"user {name!r}", item, _USER_KEYS)
    grants = item.get("grants")
    if not isinstance(grants, list) or not grants:
        raise _wrong(file, f"user {name!r} has no list `grants`")
    caller = Caller(name, tuple(_grant(file, name, grant) for grant in grants))
    password, token = item.get("password"), item.get("token")
    certificate = item.get("certificate")
    if password is None and token is None and certificate is None:
        raise _wrong(file, f"user {name!r} has neither password, token nor certificate")
    return _User(
        caller,
        None if password is None else _digest(file, name, password, "scrypt", 2),
        None if token is None else _digest(file, name, token, "sha256", 1)[0],
        None if certificate is None else str(certificate),
    )


def _grant(file: Path, user: str, item: Any) -> Grant:
    role = item.get("role") if isinstance(item, dict) else None
    if role not in _RANKS:
        raise _wrong(file, f"user {user!r}: a grant's role is one of {', '.join(_RANKS)}")
    _refuse_unknown(file, f"a grant of user {user!r}", item, _GRANT_KEYS)
    patterns = item.get("connectors", "*")
    listed = [patterns] if isinstance(patterns, str) else patterns
    if not isinstance(listed, list) or not listed or not all(isinstance(p, str) for p in listed):
        raise _wrong(file, f"user {user!r}: connectors are a pattern or a list of patterns")
    return Grant(role, tuple(listed))


def _digest(file: Path, user: str, text: Any, kind: str, parts: int) -> Any:
    fields = str(text).split(":")
    is_hex = all(_HEX.fullmatch(part) for part in fields[1:])
    if fields[0] != kind or len(fields) != parts + 1 or not is_hex:
        command = "icefloe user password" if kind == "scrypt" else "icefloe user token"
        raise _wrong(file, f"user {user!r}: use the output of `{command}`, not plain text")
    return tuple(bytes.fromhex(part) for part in fields[1:])


def _refuse_unknown(
    file: Path, subject: str, item: Mapping[str, Any], allowed: Iterable[str]
) -> None:
    unknown = sorted(set(map(str, item)) - set(allowed))
    if unknown:
        raise _wrong(file, f"{subject} has an unknown key {unknown[0]!r}")


def _wrong(file: Path, why: str) -> ConfigError:
    return ConfigError(f"users file {file}: {why}", code="users_file")
