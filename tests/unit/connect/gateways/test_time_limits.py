"""Every client of another system has a time limit, and the documentation names it."""

from __future__ import annotations

import re
from pathlib import Path

from connect.cli import rest_client
from connect.config.node.lineage_keys import LINEAGE_KEYS
from connect.gateways import webhook
from connect.gateways.access_policy import ANSWER_MS_DEFAULT
from connect.gateways.catalog import hive_sockets, postgres_wait
from connect.gateways.catalog_properties import client_config
from connect.gateways.kafka import group_membership, kafka_clients, kafka_errors
from connect.gateways.kafka.kafka_clients import librdkafka_config
from connect.gateways.schema_registry import registry_client
from connect.gateways.storage import store_file_io
from connect.node.rest import cluster_metrics, forwarding, peers
from coordinator.commit.iceberg import table_expiry
from worker.spark.source_options import FETCH

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs/reference/time-limits.md"
CLIENTS = re.compile(
    r"\bhttpx\.(?:Client|AsyncClient|get|post|put|delete|request|stream)\(|\brequests\.\w+\("
    r"|\bHTTPAdapter\(|(?<!Transactional)(?<!Bulk)\b(?:Producer|Consumer|AdminClient)\("
    r"|\burlopen\(|\bcreate_engine\(|\bcreate_connection\(|\bset_wait_callback\("
    r"|\bload_file_io\(|\bRestCatalog\)|\bimport_module\(module\)|\bsession\.client\(|\(TSocket\)"
)
# Who opens clients. A new one comes with a row in the page.
OPENERS = {
    "connect/cli/main.py": "imports a command, opens nothing",
    "connect/gateways/catalog/catalog_clients.py": "REST and SQL catalogs",
    "connect/gateways/catalog/rest_commits.py": "commits of the REST client, opens nothing",
    "connect/gateways/catalog/folder_tables.py": "logs of tables without a catalog",
    "connect/gateways/parquet/s3_store.py": "logs of Parquet folders on S3",
    "connect/gateways/kafka/kafka_clients.py": "producers and readers",
    "connect/gateways/kafka/group_admin.py": "admin clients",
    "connect/gateways/kafka/bulk_producer.py": "the demo's producer",
    "connect/gateways/kafka/group_membership.py": "a node's membership",
    "connect/gateways/catalog/postgres_wait.py": "PostgreSQL",
    "connect/gateways/catalog/hive_sockets.py": "Hive metastores",
    "connect/gateways/schema_registry/registry_client.py": "schema registries",
    "connect/gateways/storage/object_store.py": "object stores",
    "connect/gateways/webhook.py": "webhooks of outputs and of the operator",
    "connect/gateways/openlineage.py": "the receiver of lineage events",
    "connect/node/rest/peers.py": "other nodes",
    "connect/cli/rest_client.py": "the command line",
}
LINEAGE_TIMEOUT = "icefloe.lineage.transport.timeout"
REST = {"type": "rest", "uri": "http://c"}
SQL = {"type": "sql", "warehouse": "/w"}


def _documented() -> dict[str, str]:
    rows = re.findall(r"^\|[^|]+\| `([^`]+)` \| (\d+) (?:ms|s) \|", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def _in_use() -> dict[str, str]:
    rest = client_config(REST)
    sqlite = client_config({**SQL, "uri": "sqlite:///x"}).properties["uri"]
    postgres = client_config({**SQL, "uri": "postgresql://h/d"}).properties["uri"]

    def number(pattern: str, text: str) -> str:
        found = re.search(pattern, text)
        assert found, text
        return found[1]

    registry = (
        (ROOT / "connect/gateways/schema_registry/registry_client.py").read_text().replace("_", "")
    )
    return {
        "socket.timeout.ms": str(librdkafka_config({}, "consumer")["socket.timeout.ms"]),
        "REQUEST_TIMEOUT_S": f"{kafka_clients.REQUEST_TIMEOUT_S:.0f}",
        "transaction.timeout.ms": str(kafka_clients.TRANSACTION_TIMEOUT_MS),
        "OFFSETS_TIMEOUT_S": f"{kafka_clients.OFFSETS_TIMEOUT_S:.0f}",
        "REFUSAL_CHECK_S": f"{kafka_errors.REFUSAL_CHECK_S:.0f}",
        "REFUSAL_TIMEOUT_S": f"{kafka_clients.REFUSAL_TIMEOUT_S:.0f}",
        "request.timeout.ms": FETCH["request.timeout.ms"],
        "default.api.timeout.ms": FETCH["default.api.timeout.ms"],
        "rest.client.connection-timeout-ms": str(rest.connect_timeout_ms),
        "rest.client.socket-timeout-ms": str(rest.read_timeout_ms),
        "icefloe.catalog.answer.ms.max": str(ANSWER_MS_DEFAULT),
        "ANSWER_S": f"{registry_client.ANSWER_S:.0f}",
        "timeout": number(r"\?timeout=(\d+)", sqlite),
        "connect_timeout": number(r"connect_timeout=(\d+)", postgres),
        "statement_timeout": number(r"statement_timeout%3D(\d+)", postgres),
        "GRACE_MS": str(postgres_wait.GRACE_MS),
        "CONNECT_TIMEOUT_MS": str(hive_sockets.CONNECT_TIMEOUT_MS),
        "READ_TIMEOUT_MS": str(hive_sockets.READ_TIMEOUT_MS),
        "s3.connect-timeout": f"{float(rest.properties['s3.connect-timeout']):.0f}",
        "s3.request-timeout": f"{float(rest.properties['s3.request-timeout']):.0f}",
        "GCS_RETRY_S": str(store_file_io.GCS_RETRY_S),
        "http.connect.timeout.ms": number(r'"http.connect.timeout.ms", (\d+)', registry),
        "http.read.timeout.ms": number(r'"http.read.timeout.ms", (\d+)', registry),
        "TIMEOUT_S": f"{rest_client.TIMEOUT_S:.0f}",
        "WEBHOOK_TIMEOUT_S": f"{webhook.WEBHOOK_TIMEOUT_S:.0f}",
        LINEAGE_TIMEOUT: next(
            key.default or "" for key in LINEAGE_KEYS if key.name == LINEAGE_TIMEOUT
        ),
        "FORWARD_TIMEOUT_S": f"{forwarding.FORWARD_TIMEOUT_S:.0f}",
        "READ_TIMEOUT_S": f"{forwarding.READ_TIMEOUT_S:.0f}",
        "CONNECT_S": f"{peers.CONNECT_S:.0f}",
        "ASK_S": f"{cluster_metrics.ASK_S:.0f}",
        "LEAVE_TIMEOUT_S": f"{group_membership.LEAVE_TIMEOUT_S:.0f}",
        "CLEANER_TIMEOUT_S": f"{table_expiry.CLEANER_TIMEOUT_S:.0f}",
    }


def test_the_page_has_the_limits_of_the_code() -> None:
    """All of them, with their values."""
    assert _documented() == _in_use()


def test_only_listed_modules_open_clients() -> None:
    """Each module that opens a client of another system is listed, and its limits documented.

    The embedded stack, which starts its own servers on the same machine, is left out.
    """
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("connect", "worker", "coordinator")
        for path in (ROOT / folder).rglob("*.py")
        if "embedded" not in path.parts and CLIENTS.search(path.read_text("utf-8"))
    }
    assert found == OPENERS.keys()


def test_the_request_limit_is_above_the_time_of_a_fetch() -> None:
    """The client refuses a lower request limit."""
    patient = librdkafka_config({"fetch.max.wait.ms": "45000"}, "consumer")
    assert patient["socket.timeout.ms"] > 45_000
    assert "socket.timeout.ms" not in librdkafka_config({}, "producer")
    assert registry_client.__doc__
