"""Generate cases that are not recorded, from a seed: recorded cases changed, and new cases.

A generated case has every field of a recorded case except ``expected``.
``tests/contract/test_java_records.py`` asks the Java libraries for the expected result.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.golden import generated_avro, generated_literals
from tests.golden import generated_converters as converters
from tests.golden import generated_tables as tables
from tests.golden import generated_transforms as transforms
from tests.golden.generated_records import Case

GENERATORS: dict[str, tuple[str, str, Callable[[Random], Case]]] = {
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
    "header": ("converters", "SimpleHeaderConverter", generated_literals.header),
    "avro": ("converters", "AvroData", generated_avro.avro),
}


def generated_cases(kind: str, seed: int, count: int) -> list[Case]:
    """Return cases of a kind; a smaller ``count`` gives the first ones."""
    rng = Random(f"{seed}:{kind}")
    return [
        {**GENERATORS[kind][2](rng), "name": f"{kind} {i} of seed {seed}"} for i in range(count)
    ]
