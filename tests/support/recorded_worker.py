"""A worker process whose file sinks read for real: for replaying recordings on a real node.

Every task commits what is in its partitions to the connector's group twice a second, as a Java
sink task does, and tells the node which topics had records. A file in a folder that is not there
fails its task.
"""

import itertools
import os
import threading
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from connect.processes.ipc import VERSION, Channel

PAUSE_S = 0.2


class FileSink:
    """One task."""

    def __init__(self, channel: Channel, bootstrap_servers: str, start: dict[str, Any]) -> None:
        self._channel = channel
        self._bootstrap_servers = bootstrap_servers
        self.connector, self.task = start["connector"], start["task"]
        self._start = {"generation": start["generation"], "layout": start["layout"]["layout"]}
        self._sequence = itertools.count(1)
        listed = start["layout"]["tasks"][self.task]
        self._partitions = [TopicPartition(topic, number) for topic, number in listed]
        self._file = start["config"].get("file", "")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop it."""
        self._stopping.set()
        self._thread.join()

    def _tell(self, state: str, trace: str | None = None) -> None:
        reported = {"connector": self.connector, "task": self.task, **self._start}
        more = {"state": state, "code": trace and "config", "trace": trace, "retriable": False}
        order = {"sequence": next(self._sequence), "ended": state in {"FAILED", "STOPPED"}}
        self._channel.send({"event": "state", **reported, **more, **order})

    def _run(self) -> None:
        self._tell("STARTING")
        if not Path(self._file).absolute().parent.is_dir():
            self._tell("FAILED", f"ConfigError: no such folder: {self._file}")
            return
        self._tell("RUNNING")
        reader = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": f"connect-{self.connector}",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        try:
            while not self._stopping.is_set():
                self._commit(reader)
                self._stopping.wait(PAUSE_S)
        finally:
            reader.close()
        self._tell("STOPPED")

    def _commit(self, reader: Consumer) -> None:
        known = reader.list_topics(timeout=60).topics
        there = [
            p
            for p in self._partitions
            if p.topic in known and p.partition in known[p.topic].partitions
        ]
        if not there:
            return
        moved = []
        for held in reader.committed(there, timeout=60):
            end = reader.get_watermark_offsets(held, timeout=60)[1]
            if end > max(0, held.offset):
                moved.append(TopicPartition(held.topic, held.partition, end))
        if moved and not self._stopping.is_set():
            reader.commit(offsets=moved, asynchronous=False)
            topics = sorted({p.topic for p in moved})
            self._channel.send({"event": "round", "connector": self.connector, "topics": topics})


def main() -> None:
    """Follow the node's commands."""
    channel = Channel.inherited(int(os.environ["ICEFLOE_IPC_FD"]))
    running: dict[tuple[str, int], FileSink] = {}
    bootstrap_servers = ""
    for message in channel.receive():
        at = (message.get("connector", ""), message.get("task", -1))
        if message["op"] == "configure":
            bootstrap_servers = message["properties"]["bootstrap.servers"]
            channel.send({"event": "ready", "pid": os.getpid(), "version": VERSION})
        if message["op"] in {"start", "stop"} and at in running:
            running.pop(at).stop()
        if message["op"] == "start":
            running[at] = FileSink(channel, bootstrap_servers, message)
        if message["op"] == "shutdown":
            break


if __name__ == "__main__":
    main()
