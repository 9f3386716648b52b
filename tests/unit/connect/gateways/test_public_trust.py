"""The public authorities that clients trust: read once, and again when their file has changed."""

from __future__ import annotations

import ssl
from pathlib import Path

import certifi
import pytest

from connect.gateways.public_trust import public_trust

AUTHORITY = ssl.DER_cert_to_PEM_cert(
    ssl.create_default_context(cafile=certifi.where()).get_ca_certs(binary_form=True)[0]
)


@pytest.fixture(autouse=True)
def _no_own_authorities(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the machine names no authorities."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("trust_env", [True, False])
def test_all_clients_share_one_trust(trust_env: bool) -> None:
    """Servers are verified against all public authorities."""
    trust = public_trust(trust_env=trust_env)
    assert trust is public_trust()
    assert (trust.verify_mode, trust.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(trust.get_ca_certs()) > 50


def test_the_file_of_the_environment_is_read_once_per_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces the public authorities; clients that ignore the environment do not use it."""
    file = tmp_path / "authorities.pem"
    file.write_text(AUTHORITY)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    first = public_trust(trust_env=True)
    assert len(first.get_ca_certs()) == 1
    assert public_trust(trust_env=True) is first
    assert len(public_trust().get_ca_certs()) > 50
    file.write_text(AUTHORITY + "\n")
    assert public_trust(trust_env=True) is not first


def test_a_file_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As without a shared trust."""
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    with pytest.raises(FileNotFoundError):
        public_trust(trust_env=True)
