"""Keys and certificates of TLS: from PEM, PKCS12 and JKS to what librdkafka and Java read.

Rules of this file:
- librdkafka gets PEM texts or PEM files. PKCS12 is converted in memory. JKS is first converted to
  PKCS12 by Java's ``keytool``, into a private folder that exists only meanwhile, under a random
  password.
- Passwords reach ``keytool`` through its environment, never through arguments.
- Java gets PKCS12 and JKS unchanged, and PEM as texts, its keys without encryption.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.jvm.java import find_java

KEYTOOL_TIMEOUT_S: Final = 60
STORE_BYTES_MAX: Final = 4 * 1024 * 1024
_PEM = serialization.Encoding.PEM
_FILE = re.compile(r"(?:(?:consumer|producer|admin)\.)?ssl\..+\.location")
_DER = b"0"  # the first byte of PKCS12
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_ALIAS = re.compile(r"^(.+?), .*, PrivateKeyEntry", re.MULTILINE)
_LIBRDKAFKA = tuple(
    f"ssl.{part}.{form}" for part in ("ca", "certificate", "key") for form in ("location", "pem")
)


class KeyMaterial(NamedTuple):
    """PEM texts of a store: its private key, not encrypted, and all certificates, own first."""

    key: str
    certificates: str


def librdkafka_tls(properties: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's properties of keys and certificates.

    Raises:
        ConfigError: ``kafka_store``: a store cannot be read; ``kafka_store_type``: its type is
            unknown.
    """
    tls = {name: value for name, value in properties.items() if name in _LIBRDKAFKA}
    tls.update(_trusted(properties))
    tls.update(_own(properties))
    return tls


def java_tls(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties with Java's form of keys and certificates.

    PEM keys become PKCS8 without encryption: Java reads no other form, and Java 17 not every
    encryption.

    Raises:
        ConfigError: as ``librdkafka_tls``.
    """
    tls = {name: value for name, value in properties.items() if name not in _LIBRDKAFKA}
    trusted = properties.get("ssl.truststore.certificates") or _text(properties, "ssl.ca")
    if trusted:
        tls["ssl.truststore.certificates"] = wrapped_pem(trusted)
        tls["ssl.truststore.type"] = "PEM"
    chain = properties.get("ssl.keystore.certificate.chain") or _text(properties, "ssl.certificate")
    key = properties.get("ssl.keystore.key") or _text(properties, "ssl.key")
    if "ssl.keystore.location" in properties and _kind(properties, "keystore") == "PEM":
        chain = key = _text(properties, "ssl.keystore")
    if chain and key:
        for name in ("ssl.keystore.location", "ssl.keystore.password", "ssl.key.password"):
            tls.pop(name, None)
        tls["ssl.keystore.certificate.chain"] = _blocks(chain, "CERTIFICATE")
        tls["ssl.keystore.key"] = _plain_key(key, properties.get("ssl.key.password"))
        tls["ssl.keystore.type"] = "PEM"
    return tls


def _blocks(text: str, kind: str) -> str:
    blocks = _BLOCK.finditer(wrapped_pem(text))
    return "".join(f"{block[0]}\n" for block in blocks if block[1].endswith(kind))


def _plain_key(text: str, password: str | None) -> str:
    data = _blocks(text, "PRIVATE KEY").encode()
    is_encrypted = b"ENCRYPTED" in data
    try:
        key = serialization.load_pem_private_key(
            data, (password or "").encode() if is_encrypted else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(
            "the private key of ssl.keystore.* cannot be read: the text or ssl.key.password is "
            "wrong",
            code="kafka_store",
        ) from None
    plain = serialization.NoEncryption()
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain).decode()


def trusted_pem(options: Mapping[str, str]) -> str:
    """Return the trusted certificates of ``ssl.truststore.*`` as PEM text; empty without any."""
    trusted = _trusted(options)
    if location := trusted.get("ssl.ca.location"):
        return _read(location, "ssl.truststore.location").decode("utf-8", "replace")
    return trusted.get("ssl.ca.pem", "")


def versions(properties: Mapping[str, str]) -> tuple[tuple[int, int, int], ...]:
    """Return a value that changes when a file of keys or certificates is replaced.

    Args:
        properties: of the node, also with prefixes of roles.
    """
    stamps = []
    for name, location in sorted(properties.items()):
        if _FILE.fullmatch(name):
            try:
                status = Path(location).stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(stamps)


def wrapped_pem(text: str) -> str:
    """Return PEM text with line breaks, which texts of one line from the environment lack."""
    return _BLOCK.sub(_wrapped, text.replace("\\n", "\n"))


def _wrapped(block: re.Match[str]) -> str:
    name, body = block.groups()
    if ":" not in body:  # else it has headers: keys that are encrypted the old way
        whole = "".join(body.split())
        body = "\n" + "".join(f"{whole[n : n + 64]}\n" for n in range(0, len(whole), 64))
    return f"-----BEGIN {name}-----{body}-----END {name}-----\n"


def _trusted(properties: Mapping[str, str]) -> dict[str, str]:
    if text := properties.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": wrapped_pem(text)}
    location = properties.get("ssl.truststore.location")
    if not location:
        return {}
    kind = _kind(properties, "truststore")
    if kind == "PEM":
        return {"ssl.ca.location": location}
    password = properties.get("ssl.truststore.password")
    return {"ssl.ca.pem": _material(kind, location, password, None, "truststore").certificates}


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    chain, key = (
        properties.get("ssl.keystore.certificate.chain"),
        properties.get("ssl.keystore.key"),
    )
    if chain and key:
        return {"ssl.certificate.pem": wrapped_pem(chain), "ssl.key.pem": wrapped_pem(key)}
    location = properties.get("ssl.keystore.location")
    if not location:
        return {}
    kind = _kind(properties, "keystore")
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location}
    password = properties.get("ssl.keystore.password")
    material = _material(kind, location, password, properties.get("ssl.key.password"), "keystore")
    if not material.key:
        raise _unreadable("keystore", location, "it has no private key")
    return {"ssl.certificate.pem": material.certificates, "ssl.key.pem": material.key}


def _kind(properties: Mapping[str, str], store: str) -> str:
    kind = properties.get(f"ssl.{store}.type", "JKS").upper()
    if kind not in {"PEM", "PKCS12", "JKS"}:
        raise ConfigError(
            f"ssl.{store}.type {kind} is not supported; use PEM, PKCS12 or JKS",
            code="kafka_store_type",
        )
    return kind


def _text(properties: Mapping[str, str], name: str) -> str:
    """Return PEM text of librdkafka's ``<name>.pem`` or ``<name>.location``; empty without any."""
    if text := properties.get(f"{name}.pem"):
        return text
    location = properties.get(f"{name}.location")
    return _read(location, f"{name}.location").decode("utf-8", "replace") if location else ""


def _material(
    kind: str, location: str, password: str | None, key_password: str | None, store: str
) -> KeyMaterial:
    data = _read(location, f"ssl.{store}.location")
    try:
        return _converted(kind, data, password or "", key_password)
    except _UnreadableStore as error:
        raise _unreadable(store, location, str(error)) from None


class _UnreadableStore(Exception):  # noqa: N818 - says what is wrong, without the store
    """A store cannot be converted."""


@lru_cache(maxsize=32)
def _converted(kind: str, data: bytes, password: str, key_password: str | None) -> KeyMaterial:
    # Java reads each of the two formats under each of the two names
    if kind == "JKS" and not data.startswith(_DER):
        data, password = _as_pkcs12(data, password, key_password)
    try:
        store = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError:
        raise _UnreadableStore("the password or the file is wrong") from None
    key = b""
    if store.key is not None:
        plain = serialization.NoEncryption()
        key = store.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, plain)
    own: list[x509.Certificate] = [store.cert.certificate] if store.cert is not None else []
    more = [each.certificate for each in store.additional_certs]
    whole = b"".join(each.public_bytes(_PEM) for each in [*own, *more]).decode()
    return KeyMaterial(key.decode(), whole)


def _as_pkcs12(data: bytes, password: str, key_password: str | None) -> tuple[bytes, str]:
    """Convert a JKS store with Java's keytool; return it with its new password."""
    secret = SystemClock().new_uuid().hex
    environ = {**os.environ, "STORE": password, "OWN": key_password or password, "NEW": secret}
    with tempfile.TemporaryDirectory(prefix="icefloe-store-") as folder:  # of mode 0700
        source, target = Path(folder, "store.jks"), Path(folder, "store.p12")
        source.write_bytes(data)
        alias_options: list[str] = []
        if key_password and key_password != password:
            listed = ["-list", "-keystore", str(source), "-storepass:env", "STORE"]
            alias = _ALIAS.search(_keytool(listed, environ))
            if alias is not None:
                alias_options = [
                    "-srcalias",
                    alias[1],
                    "-srckeypass:env",
                    "OWN",
                    "-destkeypass:env",
                    "NEW",
                ]
        source_options = [
            "-srckeystore",
            str(source),
            "-srcstoretype",
            "JKS",
            "-srcstorepass:env",
            "STORE",
        ]
        taken = ["-destkeystore", str(target), "-deststoretype", "PKCS12", "-deststorepass:env"]
        _keytool(
            ["-importkeystore", "-noprompt", *source_options, *taken, "NEW", *alias_options],
            environ,
        )
        return target.read_bytes(), secret


def _keytool(arguments: list[str], environ: Mapping[str, str]) -> str:
    tool = find_java().resolve().with_name("keytool")
    try:
        done = subprocess.run(
            [tool, "-J-Duser.language=en", "-J-XX:TieredStopAtLevel=1", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=KEYTOOL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise _UnreadableStore("Java's keytool cannot be run") from None
    if done.returncode:
        raise _UnreadableStore("the password or the file is wrong")
    return done.stdout


def _read(location: str, name: str) -> bytes:
    try:
        path = Path(location)
        if path.stat().st_size > STORE_BYTES_MAX:
            raise ConfigError(f"{name} {location} is too large for a store", code="kafka_store")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{name} {location} cannot be read: {error.strerror}", code="kafka_store"
        ) from None


def _unreadable(store: str, location: str, why: str) -> ConfigError:
    return ConfigError(
        f"ssl.{store}.location {location} cannot be read: {why}; check ssl.{store}.password, "
        f"ssl.{store}.type and ssl.key.password",
        code="kafka_store",
    )
