"""Secrets that are replaced while a process runs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.validation.providers import Providers
from connect.validation.secret_renewal import LiveProperties, SecretRenewal

RAW = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
    "iceberg.catalog.token": "${dir:FOLDER:token}",
}
INTERVAL_MS = 10_000


class ManualClock(SystemClock):
    """A clock that only the test moves."""

    now = 0

    def monotonic_ms(self) -> int:
        """What the test has set."""
        return self.now


class RenewalCase:
    """A renewal over files of secrets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        (folder / "token").write_text("first")
        (folder / "password").write_text("p1")
        (folder / "key.pem").write_text("key 1")
        node = {
            "config.providers": "dir",
            "config.providers.dir.param.allowed.paths": str(folder),
            "sasl.password": f"${{dir:{folder}:password}}",
            "consumer.ssl.keystore.location": str(folder / "key.pem"),
        }
        self.providers = Providers(node, {})
        raw = {name: value.replace("FOLDER", str(folder)) for name, value in RAW.items()}
        self.node = node
        self.renewal = SecretRenewal(raw, node, self.providers, self.clock, interval_ms=INTERVAL_MS)

    def is_outdated(self) -> bool:
        """Ask when the interval is over."""
        self.clock.now += INTERVAL_MS
        return self.renewal.are_outdated()


@pytest.fixture
def case(tmp_path: Path) -> RenewalCase:
    """Secrets in files."""
    return RenewalCase(tmp_path)


def test_each_kind_of_secret_is_renewed(case: RenewalCase) -> None:
    """A connector's token, the node's password and a replaced key file."""
    first = case.renewal.latest()
    assert not case.is_outdated()
    assert case.renewal.latest() is first
    (case.folder / "token").write_text("second")
    assert not case.renewal.are_outdated()  # before the interval is over
    assert case.is_outdated()
    second = case.renewal.latest()
    assert second.config.catalog_properties["token"] == "second"
    assert not case.is_outdated()
    (case.folder / "password").write_text("p2")
    assert case.is_outdated()
    assert case.renewal.latest().node["sasl.password"] == "p2"
    (case.folder / "new.pem").write_text("key 2")
    os.replace(case.folder / "new.pem", case.folder / "key.pem")  # noqa: PTH105 - as tools do it
    assert case.is_outdated()
    assert case.renewal.latest() is not second
    assert not case.is_outdated()


def test_a_missing_secret_file_keeps_the_last_secrets(case: RenewalCase) -> None:
    """While the file is missing the last secrets are kept."""
    first = case.renewal.latest()
    (case.folder / "password").unlink()
    assert not case.is_outdated()
    assert case.renewal.latest() is first


def test_new_clients_get_the_present_secrets(case: RenewalCase) -> None:
    """If the file is missing, the last ones."""
    live = LiveProperties(lambda: case.providers.resolve_all(case.node))
    assert dict(live)["sasl.password"] == "p1"
    (case.folder / "password").write_text("p2")
    assert dict(live)["sasl.password"] == "p2"
    (case.folder / "password").unlink()
    assert dict(live)["sasl.password"] == "p2"
    with pytest.raises(ConfigError):
        LiveProperties(lambda: case.providers.resolve_all(case.node))
