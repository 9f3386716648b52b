"""A running stack with tenants, and canary secrets that no output may contain.

Rules of this file:
- Every answer to a caller is kept, and searched for the secrets that this caller may not read.
- ``begin`` forgets what earlier tests left behind: a leak fails the test that caused it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from connect.embedded.stack import Stack
from connect.node.rest.auth import hashed_password, new_token
from tests.support.patient_client import patient_client
from tests.support.running_stack import RunningStack

CANARIES = {
    name: f"canary-{name}-4b81d0"
    for name in (
        "kafka",  # the node's Kafka password, in its properties
        "spark",  # a storage key of the node's Spark session, in its properties
        "aws",  # the node's AWS session token, in its environment
        "env",  # a value that the provider `env` gives, for configurations of all tenants
        "hidden",  # a value in the environment that no provider gives
        "file",  # a value that the provider `file` gives
        "shadow",  # a file of the node next to the allowed folder
        "tenant",  # written into a configuration of bob's connector
    )
}
FROM_ENVIRONMENT = "${env:ICEFLOE_CATALOG_CANARY}"
BOB = "bob-orders"
GRANTS: Mapping[str, list[dict[str, str]]] = {
    "root": [{"role": "admin", "connectors": "*"}],
    "alice": [{"role": "admin", "connectors": "alice-*"}],
    "bob": [{"role": "admin", "connectors": "bob-*"}],
    "guest": [{"role": "read", "connectors": "guest-*"}],
}
PASSWORDS = {name: f"password-of-{name}" for name in GRANTS}
VALIDATE = "/connector-plugins/IcebergSinkConnector/config/validate"
_OWNERS = {"tenant": frozenset({"root", "bob"})}
_LOG_LINE_BYTES_MAX = 2_000


@dataclass
class Tenant:
    """A caller of the API and all answers since the test began.

    Attributes:
        name: in the users file; ``anonymous`` sends no credentials.
        api: the client.
        answers: request line and whole answer.
    """

    name: str
    api: httpx.Client
    answers: list[tuple[str, str]] = field(default_factory=list)

    def keep(self, response: httpx.Response) -> None:
        """Record an answer."""
        response.read()
        request = f"{response.request.method} {response.request.url.path}"
        heads = "\n".join(f"{key}: {value}" for key, value in response.headers.items())
        self.answers.append((request, f"{response.status_code}\n{heads}\n{response.text}"))

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Send a request."""
        return self.api.request(method, path, **more)

    def create(self, name: str, config: Mapping[str, str]) -> httpx.Response:
        """``POST /connectors``."""
        return self.call("POST", "/connectors", json={"name": name, "config": dict(config)})

    def validate(self, config: Mapping[str, str], **query: str) -> httpx.Response:
        """``PUT .../config/validate``; it asks brokers and catalogs, too."""
        return self.call("PUT", VALIDATE, json=dict(config), params=query)


class AttackedStack(RunningStack):
    """The embedded stack with a users file; ``api`` is root's client.

    Args:
        stack: started.
        tokens: of the users.
        secrets: file of the provider ``file``.
    """

    def __init__(self, stack: Stack, tokens: Mapping[str, str], secrets: Path) -> None:
        super().__init__(stack)
        self.from_file = f"${{file:{secrets}:password}}"
        self.tenants = {name: self._tenant(name, token) for name, token in tokens.items()}
        self.tenants["anonymous"] = self._tenant("anonymous", None)
        self.api.close()
        self.root, self.alice = self.tenants["root"], self.tenants["alice"]
        self.bob, self.guest = self.tenants["bob"], self.tenants["guest"]
        self.anonymous = self.tenants["anonymous"]
        self.api = self.root.api
        self._log_sizes: dict[str, int] = {}
        self._status_ends: dict[int, int] = {}

    def _tenant(self, name: str, token: str | None) -> Tenant:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        client = patient_client(self.stack.rest_url, **headers)
        tenant = Tenant(name, client)
        client.event_hooks = {"response": [tenant.keep]}
        return tenant

    def close(self) -> None:
        """Close all clients."""
        for tenant in self.tenants.values():
            tenant.api.close()
        super().close()

    def begin(self) -> None:
        """Drop answers, log lines and states of earlier tests."""
        for tenant in self.tenants.values():
            tenant.answers.clear()
        self._log_sizes = {file: len(text) for file, text in self.logs().items()}
        self._status_ends = self._ends("icefloe-status")

    def _ends(self, topic: str) -> dict[int, int]:
        known = self._admin.list_topics(topic, timeout=60).topics[topic].partitions
        requests = {TopicPartition(topic, number): OffsetSpec.latest() for number in known}
        answers = self._admin.list_offsets(requests)
        return {place.partition: answer.result(120).offset for place, answer in answers.items()}

    def assert_canaries_nowhere(self, *more: str, names: tuple[str, ...] = ()) -> None:
        """No secret in answers, log lines, the status topic, metrics or process arguments.

        Args:
            more: further texts to search, such as rows that an attacker can read.
            names: connectors of the test whose views are asked for before the search.
        """
        self._ask_for_everything(names)
        for tenant in self.tenants.values():
            own = {kind for kind, owners in _OWNERS.items() if tenant.name in owners}
            for request, answer in tenant.answers:
                _clean(answer, f"{tenant.name}'s {request}", own)
        for file, text in self.logs().items():
            for line in text[self._log_sizes.get(file, 0) :].splitlines():
                _clean(line, file)
        for record in self.records("icefloe-status"):
            if record.offset() < self._status_ends.get(record.partition(), 0):
                continue
            _clean(repr((record.key(), record.value(), record.headers())), "the status topic")
        for process, arguments in self.processes():
            _clean("\0".join(arguments), f"arguments of {process.pid}")
        for text in more:
            _clean(text, "what an attacker can read")

    def _ask_for_everything(self, names: tuple[str, ...]) -> None:
        paths = ("/connectors?expand=status&expand=info", "/metrics", "/icefloe/v1/overview")
        for tenant in self.tenants.values():
            for path in paths:
                tenant.call("GET", path)
            for name in names:
                for part in ("", "/config", "/status", "/tasks", "/topics"):
                    tenant.call("GET", f"/connectors/{name}{part}")
                for view in ("tables", "rounds", "lag", "dead-letters"):
                    tenant.call("GET", f"/icefloe/v1/connectors/{name}/{view}")


def _clean(text: str, where: str, allowed: frozenset[str] | set[str] = frozenset()) -> None:
    for kind, canary in CANARIES.items():
        if kind not in allowed:
            assert canary not in text, f"{kind} in {where}: {text[:_LOG_LINE_BYTES_MAX]}"


@contextmanager
def attacked_stack(folder: Path, **more: str) -> Iterator[AttackedStack]:
    """Start broker and node with users root, alice, bob and guest, and bob's stopped connector.

    Args:
        folder: everything of it.
        more: further properties of the node; ``__`` for a dot, ``_`` for a dash.
    """
    secrets = folder / "secrets" / "secrets.properties"
    secrets.parent.mkdir(parents=True)
    secrets.write_text(f"password={CANARIES['file']}\n")
    (folder / "shadow.properties").write_text(f"password={CANARIES['shadow']}\n")
    tokens, users = {}, []
    for name, grants in GRANTS.items():
        tokens[name], entry = new_token()
        password = hashed_password(PASSWORDS[name])
        users.append({"name": name, "token": entry, "password": password, "grants": grants})
    (folder / "users.yaml").write_text(yaml.safe_dump({"users": users}))
    properties = {
        "icefloe.rest.users.file": str(folder / "users.yaml"),
        "icefloe.local.paths.allowed": str(folder / "stack"),
        "icefloe.output.topics.alice-topics": "*",
        "icefloe.output.topics.alice-out-*": "alice-out-*",
        "config.providers": "env,file",
        "config.providers.file.class": "FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(secrets.parent),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.secret.key": CANARIES["spark"],
        # the broker asks for no login: the clients carry the password and never send it to it
        "sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="node" password="{CANARIES["kafka"]}";'
        ),
        **{key.replace("__", ".").replace("_", "-"): value for key, value in more.items()},
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ICEFLOE_CATALOG_CANARY", CANARIES["env"])
        environment.setenv("NODE_HIDDEN_CANARY", CANARIES["hidden"])
        environment.setenv("AWS_SESSION_TOKEN", CANARIES["aws"])
        with Stack(folder / "stack", node_properties=properties) as stack:
            attacked = AttackedStack(stack, tokens, secrets)
            try:
                _create_bobs(attacked)
                yield attacked
            finally:
                attacked.close()


def _create_bobs(attacked: AttackedStack) -> None:
    topic = attacked.topic("bob-source")
    config = attacked.connector(topics=topic, iceberg__tables="bob.orders")
    config |= {"iceberg.catalog.credential": f"client:{CANARIES['tenant']}"}
    answer = attacked.bob.call(
        "POST", "/connectors", json={"name": BOB, "config": config, "initial_state": "STOPPED"}
    )
    assert answer.status_code == 201, answer.text
