"""Results of the matrix as ratios and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

OURS, JAVA = "icefloe", "java"


def median_run(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the run of median speed, with the median of CPU per record over all runs."""
    ordered = sorted(runs, key=lambda run: float(run["rows_s"]))
    cpu = statistics.median(float(run["cpu_s_per_mrow"]) for run in runs)
    return {**ordered[(len(ordered) - 1) // 2], "cpu_s_per_mrow": round(cpu, 2)}


def with_ratios(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the cells with the ratios of CPU time and duration, Java to Icefloe."""
    appends = {(c["format"], c["shape"], c["tables"]): c[JAVA] for c in cells if JAVA in c}
    for cell in cells:
        java = appends.get((cell["format"], cell["shape"], cell["tables"]))
        if java is not None:
            ours = cell[OURS]
            cell["cpu_ratio"] = round(java["cpu_s_per_mrow"] / ours["cpu_s_per_mrow"], 2)
            cell["speed_ratio"] = round(ours["rows_s"] / java["rows_s"], 2)
            cell["busy_ratio"] = round(ours["busy_rows_s"] / java["busy_rows_s"], 2)
    return cells


def table_of(cells: list[dict[str, Any]]) -> Iterator[str]:
    """Return the cells as lines of a Markdown table."""
    yield (
        "| format | shape | mode | tables | records/s | CPU s per million | files / commits | "
        "Java: records/s | CPU s per million | files / commits | CPU ratio | speed ratio | "
        "busy ratio |"
    )
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for cell in cells:
        ours, java = cell[OURS], cell.get(JAVA)
        figures = (*_figures(ours), *(_figures(java) if java else ("-",) * 3))
        mark = "" if java or "cpu_ratio" not in cell else " (its append)"
        names = ("cpu_ratio", "speed_ratio", "busy_ratio")
        ratios = [f"{cell[name]}{mark}" if name in cell else "-" for name in names]
        yield (
            f"| {cell['format']} | {cell['shape']} | {cell['mode']} | {cell['tables']} "
            f"| {' | '.join((*figures, *ratios))} |"
        )


def _figures(run: dict[str, Any]) -> tuple[str, str, str]:
    return (
        f"{run['rows_s']:,}",
        f"{run['cpu_s_per_mrow']}",
        f"{run['files']} / {run['commits']}",
    )
