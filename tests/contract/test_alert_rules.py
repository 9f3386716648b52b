"""Alert rules evaluated by Prometheus' own ``promtool``: each fires, and is silent when it should.

Source:
    Prometheus, unit testing for rules.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "compose" / "monitoring" / "alerts.yaml"

promtool = shutil.which("promtool")
pytestmark = pytest.mark.skipif(promtool is None, reason="promtool (Prometheus) is not installed")


class Case(NamedTuple):
    """Series that make one alert fire, and series that must not.

    Attributes:
        alert: name of the rule.
        firing: series name with labels -> values, one per minute.
        silent: the same for a healthy or harmless state.
        at: minutes after which the alert is evaluated.
    """

    alert: str
    firing: dict[str, str]
    silent: dict[str, str]
    at: int


STATUS = 'kafka_connect_connector_status{connector="a",task="%s",status="%s"}'
RUNNING = STATUS % ("", "running")
PARTIAL = 'icefloe_rounds_partial_total{connector="a"}'
ROUNDS = 'icefloe_rounds_total{connector="a"}'
RETENTION = 'icefloe_control_retention_left_seconds{connector="a"}'
LAG = 'icefloe_lag_records{connector="a",task="0"}'
COMMIT = 'icefloe_commit_duration_seconds_bucket{connector="a"'
WORK = 'icefloe_maintenance_work_total{connector="a",table="t",work="small-files",outcome="%s"}'
REQUEST = 'icefloe_catalog_request_duration_seconds_bucket{process="worker",operation="load"'


def durations(histogram: str, bound: str, below: str) -> dict[str, str]:
    """Buckets of durations that are all between two bounds."""
    counts = {below: "0x60", bound: "0+5x60", "+Inf": "0+5x60"}
    return {f'{histogram},le="{le}"}}': values for le, values in counts.items()}


CASES = [
    Case(
        "IcefloeNodeDown",
        {'up{job="icefloe",instance="n1"}': "0x10"},
        {'up{job="icefloe",instance="n1"}': "1x10", 'up{job="other",instance="n2"}': "0x10"},
        10,
    ),
    Case(
        "IcefloeLeaderCount",
        {'icefloe_is_leader{instance="n1"}': "0x10", 'icefloe_is_leader{instance="n2"}': "0x10"},
        {'icefloe_is_leader{instance="n1"}': "1x10", 'icefloe_is_leader{instance="n2"}': "0x10"},
        10,
    ),
    Case(
        "IcefloeNoSparkExecutors",
        {'icefloe_spark_executors{process="worker",instance="n1"}': "2x3 0x10"},
        {'icefloe_spark_executors{process="worker",instance="n1"}': "0x1 2x10"},
        8,
    ),
    Case(
        "IcefloeChildProcessRestarts",
        {'icefloe_child_restarts_total{process="worker"}': "0+1x20"},
        {'icefloe_child_restarts_total{process="worker"}': "0 0 0 1x17"},
        20,
    ),
    Case("IcefloeConnectorFailed", {STATUS % ("", "failed"): "1x10"}, {RUNNING: "1x10"}, 10),
    Case(
        "IcefloeTaskFailed",
        {STATUS % ("0", "failed"): "1x10"},
        {STATUS % ("0", "running"): "1x10", STATUS % ("", "failed"): "1x10"},
        10,
    ),
    Case(
        "IcefloeNoCommits",
        {ROUNDS: "7x60", RUNNING: "1x60"},
        {ROUNDS: "0+1x60", RUNNING: "1x60"},
        50,
    ),
    Case(
        "IcefloeValidThroughOld",
        {'icefloe_valid_through_age_seconds{connector="a"}': "4000x20"},
        {'icefloe_valid_through_age_seconds{connector="a"}': "60x20"},
        20,
    ),
    Case(
        "IcefloePartialCommits",
        {PARTIAL: "0+3x60", ROUNDS: "0+4x60"},
        {PARTIAL: "0+1x60", ROUNDS: "0+4x60"},
        55,
    ),
    Case(
        "IcefloeTableFailed",
        {'icefloe_tables_failed{connector="a"}': "2x20"},
        {'icefloe_tables_failed{connector="a"}': "2x5 0x15"},
        18,
    ),
    Case("IcefloeRetentionAtRisk", {RETENTION: "3600x5"}, {RETENTION: "-1x5"}, 3),
    Case(
        "IcefloeDeadLetters",
        {'icefloe_records_dead_lettered_total{connector="a",task="0"}': "0+1x15"},
        {'icefloe_records_dead_lettered_total{connector="a",task="0"}': "7x15"},
        14,
    ),
    Case("IcefloeLagGrows", {LAG: "200000+1000x90"}, {LAG: "300000-1000x90"}, 80),
    Case("IcefloeCommitsSlow", durations(COMMIT, "120", "60"), durations(COMMIT, "60", "30"), 50),
    Case("IcefloeCatalogSlow", durations(REQUEST, "30", "10"), durations(REQUEST, "10", "5"), 50),
    Case(
        "IcefloeReadingStopped",
        {'icefloe_held_back{connector="a",task="0"}': "1x20"},
        {'icefloe_held_back{connector="a",task="0"}': "1x5 0x15"},
        18,
    ),
    Case(
        "IcefloeOpenTransaction",
        {'icefloe_lso_stalled{connector="a",task="0"}': "1x20"},
        {'icefloe_lso_stalled{connector="a",task="0"}': "0x20"},
        18,
    ),
    Case(
        "IcefloeTaskRetries",
        {'icefloe_task_retries_total{connector="a",task="0"}': "0+1x20"},
        {'icefloe_task_retries_total{connector="a",task="0"}': "0 0 1 2 2x16"},
        18,
    ),
    Case(
        "IcefloeBatchTimeouts",
        {'icefloe_batch_timeouts_total{connector="a",task="0"}': "0 0 1x10"},
        {'icefloe_batch_timeouts_total{connector="a",task="0"}': "1x12"},
        8,
    ),
    Case(
        "IcefloeBatchTimeouts",
        {'icefloe_task_stalls_total{connector="a"}': "0 0 1x10"},
        {'icefloe_task_stalls_total{connector="a"}': "1x12"},
        8,
    ),
    Case(
        "IcefloeCoordinatorStalls",
        {'icefloe_coordinator_stalls_total{connector="a"}': "0 0 1x10"},
        {'icefloe_coordinator_stalls_total{connector="a"}': "1x12"},
        8,
    ),
    Case(
        "IcefloeCoordinatorRestarts",
        {'icefloe_coordinator_restarts_total{connector="a",code="unavailable"}': "0+1x20"},
        {'icefloe_coordinator_restarts_total{connector="a",code="unavailable"}': "0 1x20"},
        18,
    ),
    Case(
        "IcefloeRecordsLost",
        {'icefloe_source_offsets_lost_total{connector="a",task="0"}': "0 0 15x30"},
        {'icefloe_source_offsets_lost_total{connector="a",task="0"}': "15x30"},
        20,
    ),
    Case(
        "IcefloeRecordsLost",
        {'icefloe_source_topics_recreated_total{connector="a"}': "0 0 1x30"},
        {'icefloe_source_topics_recreated_total{connector="a"}': "1x30"},
        20,
    ),
    Case(
        "IcefloeRewindUnfinished",
        {'icefloe_rewinds_unfinished{instance="n1"}': "1x60"},
        {'icefloe_rewinds_unfinished{instance="n1"}': "1x20 0x40"},
        50,
    ),
    Case(
        "IcefloeMaintenanceFails",
        {WORK % "maintenance_conflict": "0+1x60"},
        {WORK % "maintenance_conflict": "0+1x60", WORK % "done": "0+1x60"},
        60,
    ),
]


def test_every_alert_has_a_case() -> None:
    """Each rule has a firing and a silent case."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    names = [rule["alert"] for group in groups for rule in group["rules"]]
    assert sorted(names) == sorted({case.alert for case in CASES})


@pytest.mark.parametrize("kind", ["firing", "silent"])
def test_an_alert_fires_for_its_series_only(kind: str, tmp_path: Path) -> None:
    """Each alert fires for its own series and is silent for the others.

    One run of promtool evaluates all cases, each with its series alone.
    """
    path = tmp_path / f"{kind}.yaml"
    tests = [
        expectation(case, case.firing if kind == "firing" else case.silent, int(kind == "firing"))
        for case in CASES
    ]
    path.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "tests": tests}))
    assert promtool is not None
    command = [promtool, "test", "rules", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout


def expectation(case: Case, series: dict[str, str], count: int) -> dict[str, Any]:
    """Return a test of promtool: with these series, ``case.alert`` fires for so many."""
    expression = f'count(ALERTS{{alertname="{case.alert}",alertstate="firing"}}) or vector(0)'
    return {
        "interval": "1m",
        "input_series": [{"series": n, "values": v} for n, v in series.items()],
        "promql_expr_test": [
            {
                "expr": expression,
                "eval_time": f"{case.at}m",
                "exp_samples": [{"labels": "{}", "value": count}],
            }
        ],
    }
