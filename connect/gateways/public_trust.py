"""The trust of HTTP clients without TLS settings of their own, loaded once for each process.

Loading the public authorities takes 35 ms of processor time, for clients of plain HTTP as well.
"""

from __future__ import annotations

import os
import ssl
from functools import cache, lru_cache
from pathlib import Path

import httpx


def public_trust(*, trust_env: bool = False) -> ssl.SSLContext:
    """Return the trust in public authorities. Clients share it and do not change it.

    Args:
        trust_env: ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` replace the authorities. A changed file is
            read again.

    Raises:
        OSError: the file cannot be read.
    """
    if trust_env and (file := os.environ.get("SSL_CERT_FILE")):
        state = Path(file).stat()
        return _authorities_of(file, state.st_mtime_ns, state.st_size)
    if trust_env and os.environ.get(
        "SSL_CERT_DIR"
    ):  # OpenSSL reads single files when it needs them
        return httpx.create_ssl_context()
    return _authorities()


@cache
def _authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


@lru_cache(maxsize=1)
def _authorities_of(file: str, _changed_ns: int, _size: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file)
