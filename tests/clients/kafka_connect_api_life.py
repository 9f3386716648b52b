"""kafka-connect-api drives a connector through its life: ``… URL NAME CONFIG``.

Runs in the environment of ``requirements/clients.lock``. Prints one JSON object with what it saw.
"""

import json
import sys
import time

from kafka_connect_api.errors import GenericNotFound
from kafka_connect_api.kafka_connect_api import Api, Cluster, Connector

PAUSE_S = 0.5  # between polls


def exists(connector: Connector) -> bool:
    """Whether it is there; the client turns 404 into an exception."""
    try:
        return connector.exists()
    except GenericNotFound:
        return False


def wait_until(connector: Connector, state: str) -> None:
    """Wait for the connector and its tasks; the caller's timeout bounds it."""
    while True:
        status = connector.status
        states = {status["connector"]["state"], *(task["state"] for task in status["tasks"])}
        if states == {state} and status["tasks"]:
            return
        time.sleep(PAUSE_S)


def life(url: str, name: str, config: dict[str, str]) -> None:
    """Create by configuration, pause, resume, restart in every way, delete."""
    cluster = Cluster(Api(url=url))
    seen = {"version": cluster.version, "cluster": cluster.kafka_cluster}
    connector = Connector(cluster, name)
    seen["existed"] = exists(connector)
    connector.config = config
    seen["exists"] = exists(connector)
    while not connector.tasks:
        time.sleep(PAUSE_S)
    wait_until(connector, "RUNNING")
    seen["tasks"] = len(connector.tasks)
    seen["listed"] = name in cluster.connectors
    seen["config"] = connector.config
    connector.pause()
    wait_until(connector, "PAUSED")
    connector.resume()
    wait_until(connector, "RUNNING")
    connector.restart()
    connector.restart_all_tasks()
    wait_until(connector, "RUNNING")
    connector.cycle_connector()
    wait_until(connector, "RUNNING")
    while not connector.tasks[0].is_running():  # a restart that is only seen now
        time.sleep(PAUSE_S)
    seen["loggers"] = "root" in cluster.loggers
    connector.delete()
    seen["deleted"] = not exists(connector)
    print(json.dumps(seen))


life(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
