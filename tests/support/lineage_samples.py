"""Events of a coordinator process, and a receiver of the lineage events that follow from them."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.support.http_receiver import HttpReceiver

SNAPSHOT_ID = 8_123_456_789_012_345_678
COMMIT_ID = "0b54a2b7-9d0c-4c9a-8f2e-51a6d1a0c3e4"
VALID_THROUGH_US = 1_767_323_045_678_000


class LineageReceiver(HttpReceiver):
    """Keeps the lineage events that it accepts.

    Attributes:
        events: every accepted event, decoded.
        paths: of all requests.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.paths: list[str] = []
        super().__init__()
        self.status = 201

    def kinds(self, job: str) -> list[str]:
        """Return the types of a job's events, in order."""
        return [event["eventType"] for event in self.events if event["job"]["name"] == job]

    def _keep(self, path: str, body: bytes) -> None:
        self.paths.append(path)
        if self.status < 300:
            is_packed = self.headers[-1].get("content-encoding") == "gzip"
            self.events.append(json.loads(gzip.decompress(body) if is_packed else body))


def described(table: str = "db.t", **more: Any) -> dict[str, Any]:
    """Return the report of a table in S3 with two columns."""
    return {
        "event": "table_described",
        "connector": "c",
        "table": table,
        "format": "iceberg",
        "location": f"s3://lake/warehouse/{table.replace('.', '/')}",
        "catalog": "http://catalog:8181",
        "columns": [
            {"name": "id", "type": "long", "doc": "of the order"},
            {
                "name": "items",
                "type": "array",
                "doc": None,
                "fields": [{"name": "_element", "type": "string", "doc": None}],
            },
        ],
        **more,
    }


def round_ended(records: int = 5, table: str = "db.t", **more: Any) -> dict[str, Any]:
    """Return the report of a round that committed to a table."""
    done = {"table": table, "snapshot_id": SNAPSHOT_ID, "files": 2, "records": records}
    return {
        "event": "round",
        "connector": "c",
        "commit_id": COMMIT_ID,
        "partial": False,
        "valid_through_us": VALID_THROUGH_US,
        "duration_ms": 1,
        "records": records,
        "topics": ["orders"],
        "topic_records": {"orders": records},
        "tables": [{**done, "bytes": 100 * records, "duration_ms": 1}],
        **more,
    }


def state(name: str, generation: int = 1, **more: Any) -> dict[str, Any]:
    """Return the report of a coordinator's state."""
    return {
        "event": "state",
        "connector": "c",
        "task": None,
        "generation": generation,
        "sequence": 1,
        "state": name,
        "ended": name == "STOPPED",
        "trace": None,
        **more,
    }
