"""The embedded broker: life, death and what it says when it cannot start."""

from __future__ import annotations

import multiprocessing
import random
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from connect.embedded.broker import Broker
from connect.errors import ConfigError, RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.kafka_clients import ProducerMessage, TransactionalProducer
from connect.model.layout import TopicPartition
from connect.processes.child_process import free_port
from tests.support.processes import still_running
from tests.support.stack import Topics, unique_name

pytestmark = pytest.mark.kafka

TIMEOUT_S = 150
CALL_TIMEOUT_S = 2.0
SETTLED_S = 3.0


def topic_names(broker: Broker) -> set[str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return set(admin.list_topics(timeout=60).topics)


def ask_for_members(servers: str, pipe: Connection) -> None:
    """A process of its own, as a fault of librdkafka ends it: one question for each message."""
    admin = KafkaAdmin({"bootstrap.servers": servers}, timeout_s=CALL_TIMEOUT_S)
    held = []
    while pipe.recv():
        try:
            pipe.send(str(admin.members("g")))
        except RetriableError as e:
            held.append(e)  # with its frames, and so the client that it was asked with
            pipe.send(e.code)


class Asking:
    """A process that asks the coordinator of a group, over outages of its broker."""

    def __init__(self, servers: str) -> None:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=ask_for_members, args=(servers, theirs), daemon=True
        )
        self._process.start()

    def answer(self) -> str:
        """Ask once."""
        self._ours.send("ask")
        assert self._ours.poll(TIMEOUT_S), f"no answer; exit code {self._process.exitcode}"
        return str(self._ours.recv())

    def wait_until_answered(self) -> None:
        """A broker that has just started may not answer within the limit of a call."""
        while (reported := self.answer()) != "[]":
            assert reported == "broker_unavailable"

    def end(self) -> None:
        """End it, after the answers to all that it asked."""
        self._process.join(SETTLED_S)  # what was asked before may be answered only now
        assert self._process.exitcode is None
        self._ours.send("")
        self._process.join(TIMEOUT_S)
        assert self._process.exitcode == 0


def test_a_broker_keeps_data_and_port_after_a_stop_and_a_kill(tmp_path: Path) -> None:
    """A topic exists after both, at the same address.

    The first transactions wait for their coordinators. Requests to the broker while it is absent
    end in time, each with an error, and it is asked again when it is back.
    """
    broker = Broker(tmp_path / "state").start()
    try:
        address, name = broker.bootstrap_servers, Topics(broker).create()
        # a new broker answers at first that a coordinator is not there, or loads
        for number in range(4):
            producer = TransactionalProducer({"bootstrap.servers": address}, f"first-{number}")
            producer.init()
            producer.close()
        asking = Asking(address)
        asking.wait_until_answered()
        broker.stop()
        assert not broker.is_running
        assert [asking.answer() for _ in range(2)] == ["broker_unavailable"] * 2
        broker.start()
        asking.wait_until_answered()
        asking.end()
        assert name in topic_names(broker)
        left = tmp_path / "state" / "tmp" / "library.so"
        left.touch()
        broker.kill()
        broker.start()
        assert not left.exists()
        assert broker.pid is not None
        assert f"-Djava.io.tmpdir={left.parent}" in psutil.Process(broker.pid).cmdline()
        assert name in topic_names(broker)
        assert broker.bootstrap_servers == address
    finally:
        broker.stop()


def test_a_paused_broker_continues(broker: Broker) -> None:
    """SIGSTOP freezes it, and SIGCONT lets it answer again."""
    assert broker.pid is not None
    process = psutil.Process(broker.pid)
    broker.pause()
    try:
        while process.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
    finally:
        broker.resume()
    assert topic_names(broker) is not None
    assert process.status() != psutil.STATUS_STOPPED


def test_a_second_broker_with_the_same_folder_is_refused(broker: Broker) -> None:
    """The message names the folder; the first broker continues."""
    with pytest.raises(ConfigError, match="running on") as caught:
        Broker(broker.log_file.parent).start()
    assert caught.value.code == "state_in_use"
    assert broker.is_running


def test_a_port_in_use_is_named(broker: Broker, tmp_path: Path) -> None:
    """A fixed port that another process uses is a configuration error."""
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}") as caught:
        Broker(tmp_path / "state", port=port).start()
    assert caught.value.code == "port_in_use"
    assert "--broker-port" in caught.value.message


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    """A state folder below a file is a configuration error."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        Broker(tmp_path / "file" / "state").start()
    assert caught.value.code == "dir_unwritable"


def test_the_error_of_a_dead_jvm_contains_the_end_of_its_log(tmp_path: Path) -> None:
    """If Kafka refuses a setting, the error contains Kafka's message."""
    broker = Broker(tmp_path / "state", settings={"num.partitions": "none"})
    with pytest.raises(Exception, match=r"num\.partitions"):
        broker.start()
    assert not broker.is_running


def test_a_broker_ends_with_its_parent(tmp_path: Path) -> None:
    """No JVM is left when the parent is killed."""
    code = (
        "import sys, time, pathlib\n"
        "from connect.embedded.broker import Broker\n"
        f"b = Broker(pathlib.Path({str(tmp_path / 'state')!r}), port={free_port()}).start()\n"
        "print(b.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        parent.wait(150)
    assert not still_running([child], 150)


def test_a_message_that_is_too_large_is_a_configuration_error(
    kafka_properties: dict[str, str], topics: Topics
) -> None:
    """The error names the setting of the topic; it is not an outage."""
    topic = topics.create("small", max_message_bytes="1000")
    producer = TransactionalProducer(kafka_properties, f"sends-{topic}")
    producer.init()
    incompressible = random.Random(0).randbytes(5_000)
    with pytest.raises(ConfigError, match=r"raise max\.message\.bytes") as e:
        producer.transact([ProducerMessage(topic, None, incompressible)])
    assert e.value.code == "message_too_large"
    producer.close()


def test_new_partitions_have_offsets_at_once(kafka_properties: dict[str, str]) -> None:
    """A broker describes new partitions before it leads them, and says so when it is asked."""
    admin = KafkaAdmin(kafka_properties)
    client = AdminClient({**kafka_properties, "log_level": 0})
    for _ in range(3):
        topic = unique_name("many")
        admin.ensure_topic(topic, 100)
        partitions = [TopicPartition(topic, number) for number in range(100)]
        assert admin.ends(partitions) == dict.fromkeys(partitions, 0)
        client.delete_topics([topic])[topic].result(60)
    admin.close()


def test_a_partition_that_does_not_exist_is_named(
    kafka_properties: dict[str, str], topics: Topics
) -> None:
    """Of a topic that exists, and of one that does not."""
    admin, topic = KafkaAdmin(kafka_properties), topics.create("two", partitions=2)
    assert admin.ends([TopicPartition(topic, 1)]) == {TopicPartition(topic, 1): 0}
    for absent in (TopicPartition(topic, 2), TopicPartition("not-there", 0)):
        with pytest.raises(RetriableError) as refused:
            admin.ends([TopicPartition(topic, 0), absent])
        assert refused.value.code == "topic_missing"
        assert refused.value.coordinates["topic"] == absent.topic
    admin.close()
