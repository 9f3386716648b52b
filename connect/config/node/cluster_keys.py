"""Keys of the node's properties about Kafka and the cluster of nodes, by Kafka Connect's names."""

from __future__ import annotations

from connect.config.key import REQUIRED, Key, between

_KAFKA = "Kafka cluster"

CLUSTER_KEYS: tuple[Key, ...] = (
    Key("bootstrap.servers", "LIST", "Brokers of the cluster.", REQUIRED, "HIGH", _KAFKA),
    Key(
        "group.id",
        "STRING",
        "Name of the cluster of nodes, and of Kafka's group in which they find each other.",
        REQUIRED,
        "HIGH",
        _KAFKA,
    ),
    Key(
        "session.timeout.ms",
        "INT",
        "A node that gives no sign of life for so long counts as dead: others take its work over.",
        "10000",
        "HIGH",
        _KAFKA,
        unit="ms",
        check=between(1_000, 1_800_000),
    ),
    Key(
        "heartbeat.interval.ms",
        "INT",
        "How often a node gives a sign of life, and how soon it learns that another came or left.",
        "3000",
        "HIGH",
        _KAFKA,
        unit="ms",
        check=between(100, 600_000),
    ),
    Key(
        "rebalance.timeout.ms",
        "INT",
        "How long nodes may take to join again when one comes or goes.",
        None,
        "HIGH",
        _KAFKA,
        java_only="a node has nothing to finish before it joins again",
    ),
    Key(
        "scheduled.rebalance.max.delay.ms",
        "INT",
        "For so long after a node has gone a connector keeps its number of tasks, so that a node "
        "that comes back finds the layout it left; its work is taken over at once all the same.",
        "300000",
        "LOW",
        _KAFKA,
        unit="ms",
        check=between(0, 2_147_483_647),
    ),
)
