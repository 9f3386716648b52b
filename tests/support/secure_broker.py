"""A broker with a listener for each way to log in, and an OAuth2 server for one of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from connect.embedded.broker import Broker
from connect.gateways.public_trust import public_trust
from connect.jvm import jars
from connect.jvm.java import find_java
from connect.processes.child_process import ChildProcess, free_port
from tests.support.certificates import certificate
from tests.support.stack import answers

START_TIMEOUT_MS = 180_000
STORE_PASSWORD = "store-canary-41"
KEY_PASSWORD = "key-canary-42"
PASSWORD = "password-canary-43"
CLIENT_SECRET = "oauth-canary-44"
AUDIENCE = "kafka-records"
USER = "alice"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SCRAM_MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "PLAIN": "SASL_SSL",
    "SCRAM": "SASL_SSL",
    "OAUTH": "SASL_SSL",
}


class OAuthServer:
    """An OAuth2 server whose access tokens have the requested scope as their audience.

    Args:
        state_dir: for its log.
        lifetime_s: of its tokens.
    """

    def __init__(self, state_dir: Path, *, lifetime_s: int = 3600) -> None:
        self.port = free_port()
        self._state_dir = state_dir
        self._lifetime_s = lifetime_s
        self._child: ChildProcess | None = None

    @property
    def issuer(self) -> str:
        """Issuer of its tokens."""
        return f"http://127.0.0.1:{self.port}/default"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            *(find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", jars.class_path("oauth-server")),
            "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt",
        ]
        claims = {"sub": "${clientId}", "aud": ["${scope}"]}
        mapping = {"requestParam": "grant_type", "match": "*", "claims": claims}
        token = {
            "issuerId": "default",
            "tokenExpiry": self._lifetime_s,
            "requestMappings": [mapping],
        }
        environ = {
            **os.environ,
            "SERVER_PORT": str(self.port),
            "SERVER_HOSTNAME": "127.0.0.1",
            "JSON_CONFIG": json.dumps({"tokenCallbacks": [token]}),
        }
        self._child = ChildProcess(
            "the OAuth2 server",
            command,
            log_file=self._state_dir / "oauth.log",
            environ=environ,
        )
        self._child.wait_until(
            lambda: answers(f"{self.issuer}/.well-known/openid-configuration"),
            timeout_ms=START_TIMEOUT_MS,
        )

    def token(self, scope: str) -> str:
        """Return an access token."""
        form = {"grant_type": "client_credentials", "scope": scope}
        login = (USER, CLIENT_SECRET)
        answer = httpx.post(
            f"{self.issuer}/token", data=form, auth=login, timeout=60, verify=public_trust()
        )
        return str(answer.json()["access_token"])

    def stop(self) -> None:
        """Stop it."""
        if self._child:
            self._child.stop(timeout_ms=10_000)


class CertificateFiles:
    """An authority, and keys and certificates that it signed, in every format.

    Args:
        folder: where the files are put.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.other = certificate(folder, "other")
        self.replace_authority()
        other = folder / "other-ca.pem"
        other.write_bytes(self.other[1].public_bytes(serialization.Encoding.PEM))
        self.client(USER)

    def replace_authority(self) -> None:
        """Make a new authority, and a certificate of the broker that it signed."""
        self.authority = certificate(self.folder, "authority")
        certificate(self.folder, "broker", self.authority)
        self.ca.write_bytes(self.authority[1].public_bytes(serialization.Encoding.PEM))

    @property
    def ca(self) -> Path:
        """PEM file of the authority."""
        return self.folder / "ca.pem"

    def client(self, name: str, *, days: int = 1) -> Path:
        """Make a key and certificate of a client; return its PEM file."""
        self.key, self.certificate = certificate(self.folder, name, self.authority, days=days)
        return self.folder / f"{name}.pem"

    def text(self, name: str) -> tuple[str, str]:
        """Return certificate and key of a client as PEM texts."""
        pem = (self.folder / f"{name}.pem").read_text()
        at = pem.index("-----BEGIN CERTIFICATE")
        return pem[at:], pem[:at]

    def encrypted_key(self) -> str:
        """Return the last client's key, encrypted with a password."""
        encryption = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
        text: bytes = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )
        return text.decode()

    def stores(self) -> tuple[Path, Path]:
        """Return a key store of the last client and a trust store, as PKCS12."""
        encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        own, trusted = self.folder / "client.p12", self.folder / "trust.p12"
        own.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"client", self.key, self.certificate, [self.authority[1]], encryption
            )
        )
        entry = pkcs12.PKCS12Certificate(self.authority[1], b"authority")
        trusted.write_bytes(
            pkcs12.serialize_java_truststore([entry], encryption),
        )
        return own, trusted


class SecureBroker(Broker):
    """A broker with the listeners of ``LISTENERS`` besides its open one, and with ACLs.

    Clients of the open listener may do everything, as may ``alice`` and the other users of PLAIN.

    Args:
        state_dir: its folder.
        keys: its own certificate, and the authority of clients.
        oauth: the server whose tokens it accepts.
        settings: more broker settings.
        users: passwords of more users of PLAIN, by name.
    """

    def __init__(
        self,
        state_dir: Path,
        keys: CertificateFiles,
        oauth: OAuthServer | None = None,
        settings: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(state_dir, settings=settings)
        self.keys = keys
        self.oauth = oauth
        self._users = {USER: PASSWORD, **(users or {})}
        self._ports = {name: free_port() for name in LISTENERS if name != "OAUTH" or oauth}

    def servers(self, listener: str) -> str:
        """Value for ``bootstrap.servers`` of one listener."""
        return f"127.0.0.1:{self._ports[listener]}"

    def client(self, listener: str, **more: str) -> dict[str, str]:
        """Java-named properties of a client that trusts the broker; ``_`` for a dot."""
        return {
            "bootstrap.servers": self.servers(listener),
            "security.protocol": LISTENERS[listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.keys.ca),
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def scram(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        """Properties of a client that logs in with SCRAM."""
        jaas = f'{_SCRAM} required username="{user}" password="{password}";'
        return self.client("SCRAM", sasl_mechanism=mechanism, sasl_jaas_config=jaas)

    def set_password(self, user: str, password: str) -> None:
        """Set the SCRAM password of a user."""
        changes = [
            UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            for mechanism in _SCRAM_MECHANISMS.values()
        ]
        admin = self.admin()
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(60)

    def grant(self, user: str, *acls: tuple[str, str, str]) -> None:
        """Allow a user operations: (operation, resource type, name; ``*`` at its end: a prefix)."""
        bindings = []
        for operation, kind, name in acls:
            prefix = name != "*" and name.endswith("*")
            bindings.append(
                AclBinding(
                    ResourceType[{"TransactionalId": "TRANSACTIONAL_ID"}.get(kind, kind.upper())],
                    name.removesuffix("*") if prefix else name,
                    ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL,
                    f"User:{user}",
                    "*",
                    AclOperation[_snake(operation)],
                    AclPermissionType.ALLOW,
                )
            )
        admin = self.admin()
        for done in admin.create_acls(bindings).values():
            done.result(60)

    def admin(self) -> AdminClient:
        """A client of the open listener."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def _choose_ports(self) -> None:
        super()._choose_ports()
        hosts = {
            "PLAINTEXT": self.bootstrap_servers,
            **{name: self.servers(name) for name in self._ports},
        }
        addresses = [f"{name}://{address}" for name, address in hosts.items()]
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **LISTENERS}
        # quoted, because a name may have characters that JAAS does not allow in a key
        passwords = " ".join(f'"user_{user}"="{text}"' for user, text in self._users.items())
        self._settings.update(
            {
                "advertised.listeners": ",".join(addresses),
                "listeners": ",".join(
                    [*addresses, f"CONTROLLER://127.0.0.1:{self._controller_port}"]
                ),
                "listener.security.protocol.map": ",".join(
                    f"{name}:{protocol}" for name, protocol in protocols.items()
                ),
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.keys.folder / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.keys.ca),
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.plain.plain.sasl.jaas.config": f"{_PLAIN} required {passwords};",
                "listener.name.scram.sasl.enabled.mechanisms": ",".join(_SCRAM_MECHANISMS),
                **{
                    f"listener.name.scram.{name.lower()}.sasl.jaas.config": f"{_SCRAM} required;"
                    for name in _SCRAM_MECHANISMS
                },
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": ";".join(f"User:{user}" for user in ("ANONYMOUS", *self._users)),
                **self._oauth_settings(),
            }
        )

    def _oauth_settings(self) -> dict[str, str]:
        if self.oauth is None:
            return {}
        prefix = "listener.name.oauth."
        validator = f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
        return {
            f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": validator,
            "sasl.oauthbearer.clock.skew.seconds": "0",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.oauth.issuer}/jwks",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": self.oauth.issuer,
        }

    def _start(self, java: list[str | Path]) -> None:
        urls = f"{self.oauth.issuer}/jwks" if self.oauth else ""
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}"
        super()._start([java[0], allowed, *java[1:]])


@contextmanager
def secure_broker(folder: Path) -> Iterator[SecureBroker]:
    """A running broker with every listener, and its OAuth2 server."""
    oauth = OAuthServer(folder)
    oauth.start()
    try:
        with SecureBroker(folder / "broker", CertificateFiles(folder / "keys"), oauth) as broker:
            broker.set_password(USER, PASSWORD)
            yield broker
    finally:
        oauth.stop()


def _snake(operation: str) -> str:
    return "".join(f"_{c}" if c.isupper() else c for c in operation).lstrip("_").upper()
