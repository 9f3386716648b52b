"""Generate cases that are not recorded, from a seed: recorded cases changed, and new cases.

A generated case has every field of a recorded case except ``expected``.
``tests/contract/test_java_records.py`` asks the Java libraries for the expected result.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.golden import made_avro, made_literals
from tests.golden import made_converters as converters
from tests.golden import made_tables as tables
from tests.golden import made_transforms as transforms
from tests.golden.made_records import Case

MAKERS: dict[str, tuple[str, str, Callable[[Random], Case]]] = {
    "transform": ("transforms", "a", transforms.transform),
    "chain": ("transforms", "chains", transforms.chain),
    "change event": ("transforms", "a", transforms.change_event),
    "conversion": ("record-conversion", "a", tables.conversion),
    "evolution": ("schema", "evolution", tables.evolution),
    "infer": ("schema", "infer", tables.infer),
    "from-connect": ("schema", "from-connect", tables.from_connect),
    "partition-spec": ("schema", "partition-spec", tables.partition_spec),
    "route": ("routing", "route", tables.route),
    "auto-create": ("routing", "auto-create", tables.auto_create),
    "predicate": ("predicates", "a", transforms.predicate),
    "converter": ("converters", "a", converters.converter),
    "header": ("converters", "SimpleHeaderConverter", made_literals.header),
    "avro": ("converters", "AvroData", made_avro.avro),
}


def made(kind: str, seed: int, count: int) -> list[Case]:
    """Cases of a kind of ``MAKERS``; of a smaller count the first ones."""
    rng = Random(f"{seed}:{kind}")
    return [{**MAKERS[kind][2](rng), "name": f"{kind} {i} of seed {seed}"} for i in range(count)]
