"""Result of a catalog check: whether commits to one table, and to several, are atomic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from connect.clock import Clock
from connect.config.connector import ConnectorConfig
from connect.errors import ConfigError
from connect.gateways.catalog.catalog import CatalogGateway, open_catalog
from connect.java_compat.java_regex import compile_java_regex
from connect.operations.catalog_check import WRITERS, CatalogCheck, RaceFinding, Scratch
from connect.operations.connector_clients import refuse_without_snapshots

TIME_OVER: Final = "the time limit of the check was reached before the first race"


@dataclass(slots=True)
class CatalogReport:
    """Everything that a check found.

    Attributes:
        connector: whose catalog it is.
        catalog: the catalog's name.
        kind: of catalog, as ``iceberg.catalog.type`` names it.
        scratch_table: the first scratch table.
        one_table: whether commits to one table are atomic; None: not known.
        several_tables: whether commits to several tables are; None: not known or not offered.
        is_several_offered: whether the catalog offers commits to several tables.
        refusal: the last answer of the catalog if no commit succeeded.
        not_removed: scratch tables and namespaces that are still there.
        checks: each kind of race.
    """

    connector: str
    catalog: str
    kind: str
    scratch_table: str
    one_table: bool | None = None
    several_tables: bool | None = None
    is_several_offered: bool = True
    refusal: str | None = None
    not_removed: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)

    def add(self, check: str, finding: RaceFinding) -> None:
        """Add the result of one kind of race."""
        self.checks.append(
            {
                "check": check,
                "races": finding.races,
                "landed": finding.landed,
                "violations": len(finding.violations),
                "examples": list(finding.examples),
            }
        )

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {
            "connector": self.connector,
            "catalog": self.catalog,
            "kind": self.kind,
            "scratch_table": self.scratch_table,
            "one_table_atomic": self.one_table,
            "several_tables_atomic": self.several_tables,
            "several_tables_offered": self.is_several_offered,
            "refusal": self.refusal,
            "not_removed": self.not_removed,
            "checks": self.checks,
        }


def check_catalog_commits(
    config: ConnectorConfig,
    clock: Clock,
    *,
    races: int,
    namespace: str | None = None,
    time_ms_max: int | None = None,
) -> CatalogReport:
    """Race commits on scratch tables of a connector's catalog.

    Args:
        config: the connector, placeholders resolved.
        clock: time and identities.
        races: of each kind.
        namespace: existing namespace for the scratch tables; None creates and removes one.
        time_ms_max: time limit of all races; None is no limit.

    Raises:
        ConfigError: the namespace does not exist, or a grant of the operator excludes the tables.
        CommitError, RetriableError: the scratch tables cannot be created.
    """
    refuse_without_snapshots(config)
    gateway = open_catalog(config.catalog_name, config.catalog_properties, config.locations)
    try:
        levels = None if namespace is None else tuple(namespace.split("."))
        check = CatalogCheck(gateway, clock, namespace=levels, time_ms_max=time_ms_max)
        _refuse_not_granted(config, check)
        if levels is not None and not gateway.has_namespace(levels):
            raise ConfigError(f"namespace {namespace} does not exist", code="namespace_missing")
        report = CatalogReport(
            config.name,
            config.catalog_name,
            gateway.config.kind,
            ".".join(check.identifiers[0]),
            not_removed=check.not_removed,
        )
        with check.scratch() as scratch:
            _run(report, check, scratch, gateway, races)
        return report
    finally:
        gateway.close()


def _refuse_not_granted(config: ConnectorConfig, check: CatalogCheck) -> None:
    if config.granted_tables is None:
        return
    granted = compile_java_regex(config.granted_tables)
    if not all(granted.fullmatch(".".join(name)) for name in check.identifiers):
        raise ConfigError(
            f"connector {config.name} may not write the scratch tables: the operator grants it "
            "tables by icefloe.grants.<connector>; name a namespace that the grant covers",
            code="not_granted",
        )


def _run(
    report: CatalogReport,
    check: CatalogCheck,
    scratch: Scratch,
    gateway: CatalogGateway,
    races: int,
) -> None:
    single = check.single(scratch, races)
    report.add(f"one table, {WRITERS} writers from one snapshot", single)
    if single.violations:
        report.one_table = False
        return
    if not single.landed:
        report.refusal = single.refusal or TIME_OVER
        return
    report.one_table = True
    report.is_several_offered = gateway.has_transactions
    if not report.is_several_offered:
        return
    kinds: dict[str, Callable[[], RaceFinding]] = {
        "several tables, two requests in opposite order": lambda: check.opposite(scratch, races),
        "several tables against a commit to the last": lambda: check.against_single(scratch, races),
    }
    findings = {"several tables, one of them stale": check.stale(scratch)}
    idle = []
    for race, run in kinds.items():
        findings[race] = run()
        if not findings[race].landed:
            idle.append(findings[race])
    for race, finding in findings.items():
        report.add(race, finding)
    if any(finding.violations for finding in findings.values()):
        report.several_tables = False
    elif idle:
        report.refusal = idle[0].refusal or TIME_OVER
    else:
        report.several_tables = True
