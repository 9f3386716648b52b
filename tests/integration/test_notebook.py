"""The notebook of the container stack, run without a container: real catalog, DuckDB and Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.support.stack import RestCatalog

# the default suite reads such tables with DuckDB and Spark in ``test_readers.py``
pytestmark = [pytest.mark.spark, pytest.mark.java, pytest.mark.matrix]

NOTEBOOK = Path(__file__).parents[2] / "compose" / "notebooks" / "payments.ipynb"
PROGRAM = """
import ast, json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] != "code":
        continue
    *body, last = ast.parse("".join(cell["source"])).body
    exec(compile(ast.Module(body, []), "cell", "exec"))
    if isinstance(last, ast.Expr):  # a notebook shows the value of the last line
        print(eval(compile(ast.Expression(last.value), "cell", "eval")))
    else:
        exec(compile(ast.Module([last], []), "cell", "exec"))
"""


def test_every_cell_of_the_notebook_runs(rest_catalog: RestCatalog) -> None:
    """DuckDB and Spark read the table of the demonstration through the catalog."""
    catalog = load_catalog("rest", **rest_catalog.properties)
    rows = pa.table(
        {
            "kind": ["payment", "payment", "refund"],
            "amount": [1.5, 2.25, 4.0],
            "country": ["DE", "DE", "FR"],
        }
    )
    catalog.create_namespace_if_not_exists("bank")
    catalog.create_table("bank.payments", rows.schema).append(rows)
    environ = {
        **os.environ,
        "CATALOG_URI": rest_catalog.uri,
        "STORE_ENDPOINT": "http://127.0.0.1:1",
        "STORE_USER": "unused",
        "STORE_PASSWORD": "none",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(NOTEBOOK)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    catalog.drop_table("bank.payments")
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [[cell.strip() for cell in line.split("|")] for line in done.stdout.splitlines()]
    assert ["", "DE", "2", ""] in printed  # of Spark
    assert "3.75" in done.stdout  # of DuckDB
    assert json.loads(NOTEBOOK.read_text())["nbformat"] == 4
