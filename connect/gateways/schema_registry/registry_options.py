"""Parses a converter's options for the schema registry client."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from connect.errors import ConfigError
from connect.gateways.access_policy import access_policy


def number(options: Mapping[str, str], key: str, default: int, low: int, high: int) -> int:
    """Return an option as a whole number.

    Raises:
        ConfigError: it is not a whole number, or out of bounds.
    """
    text = options.get(key)
    if text is None:
        return default
    try:
        value = int(str(text).strip())
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ConfigError(f"{key} must be a number from {low} to {high}", code="converter_option")
    return value


def addresses(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], tuple[str, str] | None]:
    """Return the addresses without credentials, and the credentials.

    Raises:
        ConfigError: an address or credential is missing or malformed.
    """
    listed = [u.strip().rstrip("/") for u in options.get("schema.registry.url", "").split(",")]
    urls = [url for url in listed if url]
    if not urls:
        raise ConfigError(
            "schema.registry.url is missing: set it to the converter's schema registry",
            code="converter_option",
        )
    in_url: tuple[str, str] | None = None
    bare: list[str] = []
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"schema.registry.url {without_credentials(url)!r} must begin with http:// or "
                "https:// and name a host",
                code="converter_option",
            )
        if parts.username is not None:
            in_url = in_url or (unquote(parts.username), unquote(parts.password or ""))
        bare.append(without_credentials(url))
    source = options.get("basic.auth.credentials.source", "URL").strip().upper()
    if source == "URL":
        return tuple(bare), in_url
    if source != "USER_INFO":
        raise ConfigError(
            f"basic.auth.credentials.source {source!r} is not supported; use USER_INFO or URL",
            code="converter_option",
        )
    login = options.get("basic.auth.user.info") or options.get(
        "schema.registry.basic.auth.user.info", ""
    )
    user, colon, password = login.partition(":")
    if not colon:
        raise ConfigError("basic.auth.user.info must be <user>:<password>", code="converter_option")
    return tuple(bare), (user, password)


def without_credentials(url: str) -> str:
    """Return an address without its credentials, for display."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def proxy(options: Mapping[str, str]) -> str | None:
    """Return the URL of the HTTP proxy, None without one."""
    host, port = options.get("proxy.host"), options.get("proxy.port")
    return f"http://{host}:{port}" if host and port else None


def tls(options: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Return the TLS context of Java's ``schema.registry.ssl.*`` options; stores are PEM files.

    Raises:
        ConfigError: a store is not PEM, or cannot be read.
    """
    own = {
        key.removeprefix("schema.registry."): value
        for key, value in options.items()
        if key.startswith("schema.registry.ssl.") and value
    }
    if not own:
        return True
    for store in ("truststore", "keystore"):
        kind = own.get(f"ssl.{store}.type", "JKS").upper()
        if f"ssl.{store}.location" in own and kind != "PEM":
            raise ConfigError(
                f"schema.registry.ssl.{store}.type {kind} is not supported: convert the store to "
                f"a PEM file and set schema.registry.ssl.{store}.type=PEM",
                code="converter_option",
            )
    for store in ("truststore", "keystore"):
        if location := own.get(f"ssl.{store}.location"):
            access_policy().check_path(location)
    password = own.get("ssl.key.password") or own.get("ssl.keystore.password")
    try:
        context = ssl.create_default_context(
            cafile=own.get("ssl.truststore.location"), cadata=own.get("ssl.truststore.certificates")
        )
        if "ssl.keystore.location" in own:
            context.load_cert_chain(own["ssl.keystore.location"], password=password)
    except (OSError, ssl.SSLError, ValueError) as error:
        places = [own.get(f"ssl.{store}.location", "") for store in ("truststore", "keystore")]
        raise ConfigError(
            f"schema.registry.ssl.*: certificates cannot be read from "
            f"{' and '.join(str(Path(p)) for p in places if p) or 'the option value'}: "
            f"{type(error).__name__}",
            code="converter_option",
        ) from None
    if own.get("ssl.endpoint.identification.algorithm", "https") == "https":
        return context
    context.check_hostname = False
    return context
