"""A connector takes over the topic and the table of a Spark streaming job.

The steps are those of ``docs/how-to/move-from-spark-streaming.md``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connect.jvm import jars
from tests.support.running_stack import RunningStack, numbered
from tests.support.stack import RestCatalog, unique_name
from worker.spark.class_archive import archive_options

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

# reads to the present end of a topic, in batches of some records. It uses the class archive of
# workers and compiles no query: that would take longer than the work
JOB = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

class_path, libraries, options, uri, servers, topic, table, checkpoint = sys.argv[1:]
lake = "spark.sql.catalog.lake"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.driver.extraClassPath", class_path)
    .config("spark.jars", libraries)
    .config("spark.driver.extraJavaOptions", options)
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .config("spark.ui.enabled", "false")
    .config(lake, "org.apache.iceberg.spark.SparkCatalog")
    .config(f"{lake}.type", "rest")
    .config(f"{lake}.uri", uri)
    .getOrCreate()
)
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 8)
    .load()
)
values = from_json(col("value").cast("string"), "id BIGINT, name STRING")
query = (
    records.select(values.alias("v")).select("v.*")
    .writeStream.format("iceberg")
    .option("checkpointLocation", checkpoint)
    .trigger(availableNow=True)
    .toTable(f"lake.{table}")
)
query.awaitTermination()
"""


def last_offsets(checkpoint: Path) -> str:
    """Return the last line of the newest offsets; its batch must have ended."""
    batches = [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")]
    assert (checkpoint / "commits" / str(max(batches))).is_file()
    return (checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1]


def test_a_connector_continues_where_the_job_stopped(
    running: RunningStack, rest_catalog: RestCatalog, tmp_path: Path
) -> None:
    """Each record is in the table once, also if the job's first snapshot is expired."""
    name, topic = unique_name("moved"), running.topic("moved", 2)
    table = f"moved.{unique_name('t').replace('-', '_')}"
    catalog = load_catalog("rest", **rest_catalog.properties)
    running.table(table, catalog)
    running.produce(topic, *numbered(0, 10), partition=0)
    running.produce(topic, *numbered(100, 6), partition=1)
    checkpoint = tmp_path / "checkpoint"
    java = (
        os.pathsep.join(map(str, jars.resolve("spark-kafka"))),
        ",".join(map(str, jars.resolve("iceberg-spark"))),
        " ".join(["-XX:+UseSerialGC", *archive_options()]),
    )
    arguments = (rest_catalog.uri, running.stack.bootstrap_servers, topic, table)
    command = [sys.executable, "-c", JOB, *java, *arguments, str(checkpoint)]
    job = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert job.returncode == 0, job.stderr
    opened = catalog.load_table(table)
    assert len(opened.metadata.snapshots) > 1
    oldest = opened.metadata.snapshots[0].snapshot_id
    opened.maintenance.expire_snapshots().by_id(oldest).commit()
    running.produce(topic, *numbered(10, 5), partition=0)
    config = running.connector(topics=topic, iceberg__tables=table)
    config |= {f"iceberg.catalog.{key}": value for key, value in rest_catalog.properties.items()}
    config["icefloe.start.offsets"] = last_offsets(checkpoint)
    running.create(name, config)
    ids = sorted(row["id"] for row in running.rows(table, 21, name, catalog))
    assert ids == [*range(15), *range(100, 106)]
    running.delete(name)
