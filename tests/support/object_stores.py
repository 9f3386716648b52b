"""Servers of object stores that tests start; those that are not installed skip the test."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import hashlib
import hmac
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12
from pyarrow.fs import S3FileSystem

from connect.gateways.public_trust import public_trust
from connect.gateways.storage.store_file_io import azure_client
from connect.jvm import jars
from connect.jvm.java import find_java
from connect.processes.child_process import ChildProcess, free_port
from tests.support.certificates import certificate
from tests.support.stack import S3_BUCKET, START_TIMEOUT_MS, STOP_TIMEOUT_MS, listens

AZURITE_ACCOUNT: Final = "devstoreaccount1"
AZURITE_KEY: Final = (  # of every emulator, published by its makers
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
S3_SECRET: Final = "a-secret-that-is-checked"
PASSWORD: Final = "changeit"


class ObjectStore:
    """A server in a child process, with one bucket or container.

    Attributes:
        port: of its API.
        warehouse: a location in the bucket.
        properties: what opens it, in Iceberg's names.
    """

    warehouse: str

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self._child: ChildProcess | None = None

    @property
    def properties(self) -> dict[str, str]:
        """File IO properties in Iceberg's names."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it and create the bucket."""
        name = type(self).__name__
        child = ChildProcess(name, self.command(), log_file=self.folder / f"{name}.log")
        self._child = child
        child.wait_until(self._has_bucket, timeout_ms=START_TIMEOUT_MS)

    def _has_bucket(self) -> bool:
        """Whether the bucket exists now: a server that has just begun to listen may refuse it."""
        if not listens(self.port):
            return False
        try:
            self.make_bucket()
        except (OSError, httpx.HTTPError):
            return False
        return True

    def stop(self) -> None:
        """Stop it."""
        if self._child:
            self._child.stop(timeout_ms=STOP_TIMEOUT_MS)

    def command(self) -> list[str | Path]:
        """Program and arguments."""
        raise NotImplementedError

    def make_bucket(self) -> None:
        """Create the bucket, if it does not exist.

        Raises:
            OSError, httpx.HTTPError: the server does not create it now.
        """
        raise NotImplementedError


class S3Proxy(ObjectStore):
    """S3Proxy, which checks every signature; with TLS it has a certificate of a private authority.

    Attributes:
        ca_file: certificate to trust, for a server with TLS.
    """

    warehouse = f"s3://{S3_BUCKET}/warehouse"

    def __init__(self, folder: Path, *, has_tls: bool = False) -> None:
        super().__init__(folder)
        self.has_tls = has_tls
        self.ca_file = folder / "ca.pem"

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"{'https' if self.has_tls else 'http'}://localhost:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """File IO properties in Iceberg's names."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "local",
            "s3.secret-access-key": S3_SECRET,
            "s3.region": "us-east-1",
            "s3.path-style-access": "true",
        }

    def command(self) -> list[str | Path]:
        """Program and arguments."""
        data, settings = self.folder / "data", self.folder / "s3proxy.conf"
        data.mkdir()
        given = {
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": "local",
            "s3proxy.credential": S3_SECRET,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(data),
        }
        if self.has_tls:
            given |= {
                "s3proxy.secure-endpoint": f"https://127.0.0.1:{self.port}",
                "s3proxy.keystore-path": str(self._key_store()),
                "s3proxy.keystore-password": PASSWORD,
            }
        else:
            given["s3proxy.endpoint"] = f"http://127.0.0.1:{self.port}"
        settings.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        (jar,) = jars.resolve("s3proxy")
        small = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [find_java(), *small, "-jar", jar, "--properties", settings]

    def make_bucket(self) -> None:
        """Create the bucket."""
        S3FileSystem(
            access_key="local",
            secret_key=S3_SECRET,
            region="us-east-1",
            endpoint_override=self.endpoint,
            allow_bucket_creation=True,
            tls_ca_file_path=str(self.ca_file) if self.has_tls else "",
        ).create_dir(S3_BUCKET)

    def _key_store(self) -> Path:
        ca_key, ca = certificate(self.folder, "a-private-ca")
        key, own = certificate(self.folder, "localhost", (ca_key, ca))
        self.ca_file.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        file = self.folder / "store.p12"
        locked = serialization.BestAvailableEncryption(PASSWORD.encode())
        file.write_bytes(pkcs12.serialize_key_and_certificates(b"s", key, own, [ca], locked))
        return file


class Azurite(ObjectStore):
    """Microsoft's emulator of Azure's blob service."""

    warehouse = f"abfss://{S3_BUCKET}@{AZURITE_ACCOUNT}.dfs.core.windows.net/warehouse"

    @property
    def properties(self) -> dict[str, str]:
        """File IO properties in Iceberg's names, for the account's key."""
        return {**self.address, "adls.auth.shared-key.account.key": AZURITE_KEY}

    @staticmethod
    def signature(life: dt.timedelta) -> str:
        """A shared access signature of the container; a negative life has ended."""
        end = (dt.datetime.now(dt.UTC) + life).strftime("%Y-%m-%dT%H:%M:%SZ")
        start, rights, version = "2020-01-01T00:00:00Z", "racwdl", "2020-10-02"
        resource = f"/blob/{AZURITE_ACCOUNT}/{S3_BUCKET}"
        text = "\n".join([rights, start, end, resource, "", "", "", version, "c", *[""] * 6])
        mac = hmac.new(base64.b64decode(AZURITE_KEY), text.encode(), hashlib.sha256)
        signed = {"sp": rights, "st": start, "se": end, "sv": version, "sr": "c"}
        return urlencode({**signed, "sig": base64.b64encode(mac.digest()).decode()})

    @property
    def address(self) -> dict[str, str]:
        """The address of the server."""
        authority = f"127.0.0.1:{self.port}"
        return {
            "adls.auth.shared-key.account.name": AZURITE_ACCOUNT,
            "adls.blob-storage-authority": authority,
            "adls.blob-storage-scheme": "http",
            "adls.dfs-storage-authority": authority,
            "adls.dfs-storage-scheme": "http",
        }

    def command(self) -> list[str | Path]:
        """Program and arguments; it reports nothing to its makers."""
        program = shutil.which("azurite-blob")
        if program is None:
            pytest.skip("azurite-blob is not installed: npm install --global azurite")
        arguments = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port)]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        return [program, *arguments, *quiet, "--inMemoryPersistence"]

    def make_bucket(self) -> None:
        """Create the container."""
        own = {"adls.account-name": AZURITE_ACCOUNT, "adls.account-key": AZURITE_KEY}
        azure_client({**self.address, **own}, "").create_dir(S3_BUCKET)


class FakeGcs(ObjectStore):
    """fake-gcs-server."""

    warehouse = f"gs://{S3_BUCKET}/warehouse"

    @property
    def properties(self) -> dict[str, str]:
        """File IO properties in Iceberg's names."""
        return {
            "gcs.service.host": f"http://127.0.0.1:{self.port}",
            "gcs.oauth2.token": "not-checked",
            "gcs.oauth2.token-expires-at": "4102444800000",
        }

    def command(self) -> list[str | Path]:
        """Program and arguments."""
        program = shutil.which("fake-gcs-server")
        if program is None:
            pytest.skip("fake-gcs-server is not installed: go install github.com/fsouza/…")
        host = f"127.0.0.1:{self.port}"
        where = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(self.port)]
        names = ["-public-host", host, "-external-url", f"http://{host}"]
        return [program, *where, *names, "-backend", "memory"]

    def make_bucket(self) -> None:
        """Create the bucket."""
        url = f"http://127.0.0.1:{self.port}/storage/v1/b?project=test"
        answer = httpx.post(url, json={"name": S3_BUCKET}, timeout=60, verify=public_trust())
        if answer.status_code != httpx.codes.CONFLICT:  # an earlier request created it
            answer.raise_for_status()


@contextlib.contextmanager
def started(store: ObjectStore) -> Iterator[ObjectStore]:
    """Start a store, and end it."""
    store.start()
    try:
        yield store
    finally:
        store.stop()
