"""The class data archive of the Kafka brokers that tests start: it saves a third of each start.

``python -m tests.support.class_archives`` makes the archive if none is current. ``tests.lanes``
runs it next to the first tests. JVMs get the archive as an option, and ignore it until it exists.

Rules of this file:
- The archive appears complete, by one rename.
- It belongs to one Java and to the jars of the broker; both are part of its name. A JVM ignores an
  archive that does not fit: all other JVMs of the tests do.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from connect.embedded.broker import Broker
from connect.errors import ConfigError
from connect.jvm.jars import cache_dir, read_lock, resolve
from connect.jvm.java import find_java
from tests.support.stack import Topics

OPTIONS = "JDK_JAVA_OPTIONS"
END_TIMEOUT_MS = 300_000
# no message about an archive that does not fit
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def broker_archive() -> Path:
    """Return the path of the archive for this Java and this Kafka; it need not exist."""
    jars = json.dumps(read_lock()["kafka"], sort_keys=True)
    identity = hashlib.sha256(f"{find_java().resolve()}\0{jars}".encode()).hexdigest()[:16]
    return cache_dir() / "classes" / f"kafka-{identity}.jsa"


def archive_options() -> str:
    """Return the JVM options that use the archive when it exists; empty without a Java."""
    try:
        file = broker_archive()
    except ConfigError:
        return ""
    return f"-Xshare:auto -XX:SharedArchiveFile={file} {_SILENT}"


def is_current(archive: Path) -> bool:
    """Return whether the archive exists, and is newer than the installed Java and the jars."""
    if not archive.exists():
        return False
    installed = (find_java().resolve(), *resolve("kafka"))
    return archive.stat().st_mtime > max(file.stat().st_ctime for file in installed)


class ArchivingBroker(Broker):
    """A broker whose JVM writes an archive of its classes when it ends.

    Args:
        folder: its state folder.
        archive: the file to write.
    """

    def __init__(self, folder: Path, archive: Path) -> None:
        super().__init__(folder)
        self._archive = archive

    def _format(self, java: list[str | Path]) -> None:
        super()._format(java)
        more = f"-XX:ArchiveClassesAtExit={self._archive} {_SILENT}"
        os.environ[OPTIONS] = f"{os.environ.get(OPTIONS, '')} {more}"

    def end(self) -> None:
        """Stop the broker, and wait until the archive is written."""
        assert self._child is not None
        self._child.stop(timeout_ms=END_TIMEOUT_MS)
        self.stop()


def make_archive() -> Path:
    """Make the archive from a broker that serves a transaction and a consumer group."""
    target = broker_archive()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=target.parent) as folder:
        archive = Path(folder, "kafka.jsa")
        broker = ArchivingBroker(Path(folder, "broker"), archive)
        broker.start()
        try:
            _use(broker)
        finally:
            broker.end()
        archive.rename(target)
    return target


def _use(broker: Broker) -> None:
    servers = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    topic = Topics(broker).create("archived")
    producer = Producer({**servers, "transactional.id": "archived"})
    producer.init_transactions(120)
    reader = Consumer({**servers, "group.id": "archived", "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    producer.begin_transaction()
    producer.produce(topic, b"value", b"key")
    place = TopicPartition(topic, 0, 0)
    producer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 120)
    producer.commit_transaction(120)
    assert reader.poll(120) is not None
    reader.close()


if __name__ == "__main__":
    existing = broker_archive()
    sys.stdout.write(f"{existing if is_current(existing) else make_archive()}\n")
