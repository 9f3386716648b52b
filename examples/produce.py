"""Writes lines to a topic, one record each: python produce.py TOPIC < FILE.

With --key-separator, the text before the separator is the key. A key without a value is a
tombstone.
"""

from __future__ import annotations

import argparse
import sys

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def main() -> None:
    """Create the topic if it does not exist, and write standard input to it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("topic")
    options.add_argument("--bootstrap-server", default="127.0.0.1:9092")
    options.add_argument("--key-separator", default="")
    given = options.parse_args()
    kafka = {"bootstrap.servers": given.bootstrap_server}
    admin = AdminClient(kafka)
    if given.topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(given.topic, num_partitions=1)])[given.topic].result(30)
    errors: list[str] = []
    producer = Producer(kafka)
    count = 0
    for line in map(str.strip, sys.stdin):
        key, separator, value = (
            line.partition(given.key_separator) if given.key_separator else ("", "", line)
        )
        producer.produce(
            given.topic,
            value or None,
            key if separator else None,
            on_delivery=lambda error, _: error and errors.append(str(error)),
        )
        producer.poll(0)
        count += 1
    if producer.flush(60) or errors:
        sys.exit(f"the broker has not acknowledged all records: {errors[:1]}")
    print(f"{count} records in {given.topic}")


if __name__ == "__main__":
    main()
