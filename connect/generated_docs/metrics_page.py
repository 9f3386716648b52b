"""``docs/reference/metrics.md`` from the catalogues; written by ``make docs``."""

from __future__ import annotations

from connect.metrics import metric_catalogue
from connect.node.metrics import connect_metrics

_HEAD = """\
# Metrics

Made by `make docs` from the catalogues `connect/metrics/metric_catalogue.py` and
`connect/node/metrics/connect_metrics.py`. All are exposed by each node at `/metrics` in Prometheus'
text format. Those of Icefloe also go to statsd when `icefloe.statsd.address` is set, as
`<prefix>.<metric>.<label values>`: counters as what was added since the last report; whatever is no
letter, digit, `_` or `-` in a label value as `_`.

The commit path: `icefloe_round_duration_ms`, `icefloe_commit_duration_ms`,
`icefloe_table_commits_total`. The two lags: `icefloe_lag_records` (not yet in files) and
`icefloe_records_uncommitted` (in files, in no table yet).

| metric | kind | unit | labels | meaning |
|---|---|---|---|---|
"""
_CONNECT = """\

## Kafka Connect's own

With Kafka Connect's meaning, under the names that the JMX exporter's usual rules give them.

| metric | kind | labels | meaning |
|---|---|---|---|
"""
_NOT_GIVEN = """\

## Not given

Kafka Connect's attributes that have no metric here, and where to look instead.

| group | attributes | why |
|---|---|---|
"""


def documentation() -> str:
    """The page."""
    own = "".join(
        f"| `{m.exposed_name}` | {m.kind} | {m.unit} | {', '.join(m.labels)} | {m.doc} |\n"
        for m in sorted(metric_catalogue.CATALOGUE, key=lambda m: m.name)
    )
    theirs = "".join(
        f"| `{m.name}` | {m.kind} | {', '.join(m.labels)} | {m.doc} |\n"
        for m in connect_metrics.CATALOGUE
    )
    left_out = "".join(
        f"| {m.group} | {', '.join(f'`{name}`' for name in m.names)} | {m.why} |\n"
        for m in connect_metrics.NOT_GIVEN
    )
    return _HEAD + own + _CONNECT + theirs + _NOT_GIVEN + left_out


if __name__ == "__main__":
    print(documentation(), end="")  # noqa: T201 - the document is this program's output
