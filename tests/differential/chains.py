"""Chains of transformations and values for them."""

from __future__ import annotations

from collections.abc import Mapping

KAFKA = "org.apache.kafka.connect.transforms."


ICEBERG = "org.apache.iceberg.connect.transforms."


def chain(*links: Mapping[str, str]) -> dict[str, str]:
    """Keys of a chain; a link's keys are its own, ``type`` without Kafka's package."""
    keys = {"transforms": ",".join(f"t{i}" for i in range(len(links)))}
    for i, link in enumerate(links):
        for name, value in link.items():
            is_short = name == "type" and "." not in value
            keys[f"transforms.t{i}.{name}"] = KAFKA + value if is_short else value
    return {
        **keys,
        "predicates": "p,tomb",
        "predicates.p.type": f"{KAFKA}predicates.TopicNameMatches",
        "predicates.p.pattern": "u",
        "predicates.tomb.type": f"{KAFKA}predicates.RecordIsTombstone",
    }


def value(kind: str, **keys: str) -> dict[str, str]:
    options = {name.replace("_", "."): text for name, text in keys.items()}
    return {"type": f"{kind}$Value", **options}


EVOLVE = {"iceberg.tables.evolve-schema-enabled": "true"}
