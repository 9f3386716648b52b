"""kpops drives a connector through its life: ``kpops_life.py URL NAME CONFIG UPDATE``.

Runs in the environment of ``requirements/clients.lock``; its models refuse answers that are not
Kafka Connect's. Prints one JSON object with what it saw.
"""

import asyncio
import json
import sys

from kpops.component_handlers.kafka_connect.exception import ConnectorNotFoundException
from kpops.component_handlers.kafka_connect.kafka_connect_api import KafkaConnect
from kpops.component_handlers.kafka_connect.model import (
    ConnectorNewState,
    ConnectorStatusResponse,
    KafkaConnectorConfig,
)
from kpops.config import KafkaConnectConfig

PAUSE_S = 0.5  # between polls


async def wait_until(connect: KafkaConnect, name: str, state: str) -> ConnectorStatusResponse:
    """Wait for the connector and its tasks; the caller's timeout bounds it."""
    is_running = state == "RUNNING"
    while True:
        try:
            found = await connect.get_connector_status(name)
        except ValueError:  # RESTARTING and UNASSIGNED are not in its model
            found = None
        states = {found.connector.state, *(t.state for t in found.tasks)} if found else set()
        if states == {state} and (found.tasks or not is_running):
            return found
        await asyncio.sleep(PAUSE_S)


async def life(url: str, name: str, config: dict[str, str], update: dict[str, str]) -> None:
    """Create paused, resume, change, validate, stop, reset, delete."""
    connect = KafkaConnect(KafkaConnectConfig(url=url))
    seen = {}
    given = KafkaConnectorConfig(**config, name=name)
    created = await connect.create_connector(given, ConnectorNewState.PAUSED)
    seen["created"] = created.name
    await wait_until(connect, name, "PAUSED")
    await connect.resume_connector(name)
    seen["running_tasks"] = len((await wait_until(connect, name, "RUNNING")).tasks)
    await connect.pause_connector(name)
    await wait_until(connect, name, "PAUSED")
    await connect.resume_connector(name)
    changed = KafkaConnectorConfig(**{**config, **update}, name=name)
    await connect.update_connector_config(changed)
    seen["config"] = (await connect.get_connector(name)).config.model_dump()
    seen["valid"] = await connect.validate_connector_config(changed)
    wrong = KafkaConnectorConfig(**{**config, "tasks.max": "none"}, name=name)
    seen["wrong"] = await connect.validate_connector_config(wrong)
    await wait_until(connect, name, "RUNNING")
    await connect.stop_connector(name)
    await wait_until(connect, name, "STOPPED")
    await connect.reset_offset(name)
    await connect.delete_connector(name)
    try:
        await connect.get_connector(name)
    except ConnectorNotFoundException:
        seen["deleted"] = True
    print(json.dumps(seen))


asyncio.run(life(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])))
