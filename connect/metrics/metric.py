"""How a metric is declared: its name, kind, unit, labels and meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

PREFIX: Final = "icefloe_"

BUCKET: Final = "le"
SUM: Final = "sum"
INFINITE: Final = "+Inf"
DURATION_BUCKETS_S: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One declared metric; exposed as ``icefloe_<name>``, counters with ``_total`` behind.

    Attributes:
        prefix: of the exposed name; empty for metrics of others with a usual name.
    """

    name: str
    kind: Kind
    unit: str
    labels: tuple[str, ...]
    doc: str
    prefix: str = PREFIX

    @property
    def exposed_name(self) -> str:
        """The name under which Prometheus sees it."""
        return f"{self.prefix}{self.name}{'_total' if self.kind == 'counter' else ''}"

    @property
    def sample_labels(self) -> tuple[str, ...]:
        """Labels of its samples: a histogram has a sample for each bucket, and one for the sum."""
        return (*self.labels, BUCKET) if self.kind == "histogram" else self.labels
