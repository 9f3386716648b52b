"""Nodes with every login on a secure broker: exact ACLs, and secrets that change while they run.

The tests share the broker. One node has a login of each kind. Another one, of ``make matrix``, has
tokens and certificates for all its clients: their connections need both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.support.loopback_proxy import HOP_BY_HOP, LoopbackProxy, send
from tests.support.running_stack import RunningStack, numbered, pick
from tests.support.secure_broker import (
    AUDIENCE,
    CLIENT_SECRET,
    STORE_PASSWORD,
    USER,
    OAuthServer,
)
from tests.support.secure_stack import SecureStack, flowing_records

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
VALIDATE = "/connector-plugins/IcebergSinkConnector/config/validate"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "secure-kafka.md"
REAUTHENTICATION_MS = "10000"
SECRETS = ("first-canary-51", "second-canary-52", CLIENT_SECRET)
TOKEN_LIFE_S = 10
PRODUCERS = 2  # of a task and of a coordinator; each gets a token in each life of one
CHANGE_S = 2.5 * TOKEN_LIFE_S  # the token of the beginning, and its successor, have ended


class TokenRequests(LoopbackProxy):
    """Stands before the OAuth2 server.

    Attributes:
        count: requests for tokens so far.
    """

    count = 0

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.count += 1
        answer = self._forward(request, body, "host")  # the issuer of a token is the server's name
        headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_BY_HOP}
        send(request, answer.status_code, headers, answer.content)


class LoginsStack(SecureStack):
    """A stack whose node logs in in several ways.

    Args:
        folder: everything of it.
        oauth: a running OAuth2 server, whose tokens end after ``TOKEN_LIFE_S``.
    """

    def __init__(self, folder: Path, oauth: OAuthServer) -> None:
        scram = "listener.name.scram.scram-sha-512.connections.max.reauth.ms"
        # the broker ends connections whose token has ended
        token = "listener.name.oauth.oauthbearer.connections.max.reauth.ms"
        settings = {
            scram: REAUTHENTICATION_MS,
            token: str(1000 * TOKEN_LIFE_S),
            "listener.name.oauth.ssl.client.auth": "required",
        }
        super().__init__(folder, oauth, settings)
        self.tokens = TokenRequests(oauth.issuer.removesuffix("/default"))
        self.secrets = folder / "secrets"
        self.secrets.mkdir()

    def replace_passwords(self, password: str) -> None:
        """Give both SCRAM users a new password, at the broker and in the node's files."""
        for user in ("consumer", "coordinator"):
            self.secure.set_password(user, password)
            new = self.secrets / f"{user}.new"
            new.write_text(password)
            new.rename(self.secrets / user)

    def roles(self) -> dict[str, str]:
        """SCRAM, a certificate for ``admin.`` and a token for ``producer.``."""
        secure, folder = self.secure, self.secrets
        self.keys.client("admin")

        def scram(user: str) -> str:
            return f"{SCRAM} required username='{user}' password='${{dir:{folder}:{user}}}';"

        trust = secure.client("SCRAM", sasl_mechanism="SCRAM-SHA-512")
        own = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keys.folder / "admin.pem"),
        }
        mutual = {
            **own,
            "bootstrap.servers": secure.servers("MTLS"),
            "security.protocol": "SSL",
        }
        bearer = {
            **own,
            "bootstrap.servers": secure.servers("OAUTH"),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.uri}/default/token",
            "sasl.jaas.config": f'{OAUTH} required clientId="producer" '
            f'clientSecret="{CLIENT_SECRET}" scope="{AUDIENCE}";',
        }
        return {
            **trust,
            "sasl.jaas.config": scram("coordinator"),
            "consumer.sasl.jaas.config": scram("consumer"),
            **{f"admin.{name}": value for name, value in mutual.items()},
            **{f"producer.{name}": value for name, value in bearer.items()},
        }

    def tokens_and_certificates(self) -> dict[str, str]:
        """Tokens for all roles, and certificates: PKCS12 for consumers, PEM for the others."""
        self.keys.client(USER)
        self.keys.stores()
        folder = self.keys.folder
        stores = {"keystore": folder / "client.p12", "truststore": folder / "trust.p12"}
        pkcs12 = {}
        for store, file in stores.items():
            pkcs12[f"consumer.ssl.{store}.type"] = "PKCS12"
            pkcs12[f"consumer.ssl.{store}.location"] = str(file)
            pkcs12[f"consumer.ssl.{store}.password"] = STORE_PASSWORD
        pem = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / f"{USER}.pem")}
        bearer = {
            **self.secure.client("OAUTH", sasl_mechanism="OAUTHBEARER"),
            "sasl.oauthbearer.token.endpoint.url": f"{self.tokens.uri}/default/token",
            "sasl.jaas.config": f'{OAUTH} required clientId="{USER}" '
            f'clientSecret="{CLIENT_SECRET}" scope="{AUDIENCE}";',
        }
        return {**bearer, **pem, **pkcs12}

    def replace_certificates(self) -> None:
        """Replace the authority, and what it signed, while the broker is stopped."""
        self.secure.stop()
        self.keys.replace_authority()
        for name in ("admin", USER):
            self.keys.client(name)
        self.keys.stores()  # of the last one
        self.secure.start()


NODE_TOPICS = ("icefloe-configs", "icefloe-status")
CONTROL, SOURCES, LETTERS = "control-secure", "orders-*", "letters-secure"
RESET = ("Delete", "Group", "connect-secure*")
"""The ACL of admin that only a reset of source offsets needs."""
Acl = tuple[str, str, str]


def acls(source: str, connector: str) -> dict[str, list[Acl]]:
    """The table of the page for this node and one connector: the ACLs of each principal.

    Args:
        source: the source topic, or the prefix of them with ``*``.
        connector: its name.
    """
    group = f"connect-{connector}"
    return {
        "admin": [
            *(
                (operation, "Topic", topic)
                for operation in ("Create", "Describe", "DescribeConfigs")
                for topic in (*NODE_TOPICS, CONTROL, LETTERS)
            ),
            ("Describe", "Topic", source),
            *(("Describe", "Group", name) for name in ("icefloe", group, f"{group}-coord")),
        ],
        "consumer": [
            *(("Read", "Topic", topic) for topic in (*NODE_TOPICS, CONTROL, source)),
            ("Read", "Group", "icefloe"),
        ],
        "producer": [
            *(("Write", "Topic", topic) for topic in (*NODE_TOPICS, CONTROL, LETTERS)),
            *(("Read", "Topic", topic) for topic in (source, CONTROL)),
            *(("Write", "TransactionalId", i) for i in ("connect-cluster-icefloe", "icefloe-*")),
            ("Read", "Group", f"{group}*"),
        ],
        "coordinator": [
            ("Read", "Topic", "icefloe-configs"),
            *((operation, "Topic", CONTROL) for operation in ("Read", "Write", "DescribeConfigs")),
            ("Describe", "Topic", source),
            ("Write", "TransactionalId", "icefloe-*"),
            ("Read", "Group", f"{group}*"),
        ],
    }


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginsStack]:
    """A running broker, and its OAuth2 server."""
    folder = tmp_path_factory.mktemp("secure")
    oauth = OAuthServer(folder, lifetime_s=TOKEN_LIFE_S)
    oauth.start()
    stack = LoginsStack(folder, oauth)
    try:
        stack.start_broker()
        yield stack
    finally:
        stack.stop()
        stack.tokens.close()
        oauth.stop()


@pytest.fixture(scope="module")
def role_logins(stack: LoginsStack) -> dict[str, str]:
    """The logins of the roles, whose principals have exactly the documented ACLs."""
    stack.replace_passwords(SECRETS[0])
    for user, granted in acls(SOURCES, "secure").items():
        stack.secure.grant(user, *granted)
    return stack.roles()


@pytest.fixture
def secure(stack: LoginsStack, role_logins: dict[str, str]) -> RunningStack:
    """A running node whose roles have the documented ACLs."""
    return stack.node(role_logins)


@pytest.fixture(scope="module")
def ending_logins(stack: LoginsStack) -> dict[str, str]:
    """The logins with tokens and certificates."""
    return stack.tokens_and_certificates()


def test_the_page_has_these_acls() -> None:
    """Each role's operations on kinds of resources are those of the page's table."""
    table = PAGE.read_text("utf-8").partition("| role (properties)")[2].partition("\n\n")[0]
    found, role = set(), ""
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        role = cells[0].partition(" ")[0] or role
        if "only to reset" in cells[2]:
            assert (role, cells[1]) == ("admin", RESET[0])
        elif "only for" not in cells[2]:
            kind = cells[2].partition(" ")[0].removesuffix(":")
            found |= {(role, operation, kind) for operation in cells[1].split(", ")}
    expected = acls(SOURCES, "secure").items()
    assert found == {(user, acl[0], acl[1]) for user, granted in expected for acl in granted}


def test_exact_acls_and_a_replaced_password(secure: RunningStack) -> None:
    """A connector runs with the documented ACLs, and loses no record when passwords change.

    Meanwhile the producers' tokens end, and they get new ones.
    """
    stack, name, table = secure.stack, "secure", "secure.orders"
    assert isinstance(stack, LoginsStack)
    topic = secure.topic("orders")
    secure.table(table)
    config = secure.connector(
        topics=topic,
        iceberg__tables=table,
        iceberg__control__topic=CONTROL,
        iceberg__control__commit__timeout_ms="5000",  # Spark starts after the first commit
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=LETTERS,
        errors__deadletterqueue__topic__replication__factor="1",
    )
    checked = secure.api.put(VALIDATE, json=config | {"name": name})
    assert checked.json()["error_count"] == 0, checked.text
    secure.create(name, config)
    secure.produce(topic, *numbered(0, 100), b"{not json")
    secure.rows(table, 100, name)
    with flowing_records(secure, topic, 100) as sent:
        requested = stack.tokens.count
        stack.replace_passwords(SECRETS[1])
        logs = [stack.state_dir / "node" / f"{child}.log" for child in ("worker", "coordinator")]
        secure.wait_until(
            lambda: all("secrets were replaced" in log.read_text() for log in logs),
            lambda: "new secrets of task and coordinator",
        )
        # the broker refuses the old password when a connection of the node logs in again
        secure.wait_until(
            lambda: "the broker refuses the login" in stack.node_log_file.read_text(),
            lambda: "the end of the old password",
        )
        secure.wait_until(
            lambda: stack.tokens.count >= requested + PRODUCERS, lambda: "new tokens of producers"
        )
    assert pick(secure.rows(table, sent[-1], name), "id") == [(n,) for n in range(sent[-1])]
    assert len(secure.records(LETTERS)) == 1
    # the node's own clients: a change is written, read again and run
    secure.request_state(name, "pause")
    secure.wait_until(
        lambda: secure.status(name)["connector"]["state"] == "PAUSED", lambda: "the pause"
    )
    secure.request_state(name, "resume")
    secure.produce(topic, *numbered(sent[-1], 100))
    count = sent[-1] + 100
    assert pick(secure.rows(table, count, name), "id") == [(n,) for n in range(count)]
    secure.stop(name)
    change_and_reset_offsets(secure, name, topic, count + 1)  # with the dead letter
    secure.request_state(name, "resume")
    secure.produce(topic, *numbered(count, 50))
    count += 50
    assert pick(secure.rows(table, count, name), "id") == [(n,) for n in range(count)]
    secure.delete(name)
    for log, text in secure.logs().items():
        assert not any(secret in text for secret in SECRETS), log


def change_and_reset_offsets(secure: RunningStack, name: str, topic: str, end: int) -> None:
    """A change needs the ACLs of a running connector; a reset needs one more, which is named."""
    stack, offsets = secure.stack, f"/connectors/{name}/offsets"
    assert isinstance(stack, LoginsStack)
    secure.set_offset(name, (topic, 0), end)
    refused = secure.api.delete(offsets)
    assert not refused.is_success
    assert f"on Group connect-{name}" in refused.text
    stack.secure.grant("admin", RESET)
    secure.wait_until(lambda: secure.api.delete(offsets).is_success, lambda: "the reset")
    secure.set_offset(name, (topic, 0), end)


def test_a_missing_acl_is_named(secure: RunningStack) -> None:
    """Validation and the trace of the task name operation and resource."""
    stack, name, table = secure.stack, "refused", "secure.payments"
    assert isinstance(stack, LoginsStack)
    topic = secure.topic("payments")
    secure.table(table)
    config = secure.connector(topics=topic, iceberg__tables=table, iceberg__control__topic=CONTROL)
    for user, granted in acls(topic, name).items():
        stack.secure.grant(user, *(acl for acl in granted if acl[2] != topic))
    checked = secure.api.put(VALIDATE, json=config | {"name": name})
    assert f"ACL Describe on Topic {topic}" in checked.text
    for user in ("admin", "coordinator"):
        stack.secure.grant(user, ("Describe", "Topic", topic))
    # every ACL is there but Read on the source topic
    secure.create(name, config)
    trace = secure.trace(name)
    assert "kafka_refused" in trace
    assert f"Read on Topic {topic}" in trace
    secure.delete(name)


def _run(running: RunningStack, name: str) -> str:
    """Create a connector with a hundred rows; return its topic."""
    topic = running.topic("orders")
    running.table(f"secure.{name}")
    config = running.connector(
        topics=topic,
        iceberg__tables=f"secure.{name}",
        iceberg__control__topic=CONTROL,
        iceberg__control__commit__timeout_ms="5000",  # Spark starts after the first commit
    )
    running.create(name, config)
    running.produce(topic, *numbered(0, 100))
    running.rows(f"secure.{name}", 100, name)
    return topic


def _count(running: RunningStack, name: str) -> int:
    """Return the number of rows in the connector's table."""
    snapshot = running.catalog.load_table(f"secure.{name}").current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return int(snapshot.summary["total-records"] or 0)


def _end(running: RunningStack, name: str, topic: str, count: int) -> None:
    """Every record is in the table once, more are taken, and the connector can be deleted."""
    assert pick(running.rows(f"secure.{name}", count, name), "id") == pick(numbered(0, count), "id")
    running.produce(topic, *numbered(count, 100))
    rows = running.rows(f"secure.{name}", count + 100, name)
    assert pick(rows, "id") == pick(numbered(0, count + 100), "id")
    # a node that just lost its broker may have no leader yet; it then answers 409
    running.wait_until(
        lambda: running.api.delete(f"/connectors/{name}").status_code in {204, 404},
        lambda: f"{name} to be deleted",
    )
    assert running.api.get(f"/connectors/{name}").status_code == 404
    for log, text in running.logs().items():
        assert not any(secret in text for secret in (CLIENT_SECRET, STORE_PASSWORD)), log


@pytest.mark.parametrize(
    "logins", ["role_logins", pytest.param("ending_logins", marks=pytest.mark.matrix)]
)
def test_a_new_authority_and_new_keys(
    stack: LoginsStack, logins: str, request: pytest.FixtureRequest
) -> None:
    """All certificates are replaced at once; node, task and coordinator use the new ones."""
    running, name = stack.node(request.getfixturevalue(logins)), logins
    for user, granted in acls(SOURCES, name).items():
        stack.secure.grant(user, *granted)
    topic = _run(running, name)
    running.produce(topic, *numbered(100, 50))
    stack.replace_certificates()
    with flowing_records(running, topic, 150) as sent:
        running.wait_until(lambda: _count(running, name) >= 200, lambda: "rows after the change")
    _end(running, name, topic, sent[-1])


@pytest.mark.matrix
def test_tokens_of_ten_seconds(stack: LoginsStack, ending_logins: dict[str, str]) -> None:
    """Records flow for two lives of a token; each client gets new ones, none is restarted."""
    running = stack.node(ending_logins)
    topic = _run(running, "tokens")
    enough = stack.tokens.count + CHANGE_S // TOKEN_LIFE_S
    ends = time.monotonic() + CHANGE_S
    with flowing_records(running, topic, 100) as sent:
        while time.monotonic() < ends or stack.tokens.count <= enough:
            time.sleep(0.5)
            assert [task["state"] for task in running.status("tokens")["tasks"]] == ["RUNNING"]
    _end(running, "tokens", topic, sent[-1])
