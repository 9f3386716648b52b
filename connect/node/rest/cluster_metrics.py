"""Figures of connectors, wherever in the cluster their parts run.

Rules of this file:
- A node has figures of what runs on it. Of the others it asks those that run something the caller
  may read, all at once, in bounded time; nobody asks further, and Kafka is not asked at all.
- A sum that lacks a part is null, never the rest of it; whose part it is is said.
- A node that gave no answer is left alone for a while, so that it holds up one request, not all.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from connect.clock import Clock
from connect.errors import IcefloeError
from connect.node.herder_api import HerderApi, ReportedStatus, UnavailableError
from connect.node.rest.access import Credentials
from connect.node.rest.peers import Peers

ASK_S: Final = 2.0
ASKING_MAX: Final = 8
SILENT_MS: Final = 10_000
REASON_CHARS: Final = 300
OVERVIEW: Final = "/icefloe/v1/overview"
OF_TASKS: Final = {"not_in_files": "lag_records", "dead_letters": "records_dead_lettered"}
OF_COORDINATOR: Final = {
    "in_files_not_committed": "records_uncommitted",
    "tables_failed": "tables_failed",
}
OF_TIME: Final = {
    "valid_through_ms": "valid_through_timestamp_seconds",
    "valid_through_age_ms": "valid_through_age_seconds",
}
FIGURES: Final = (*OF_TASKS, *OF_COORDINATOR, *OF_TIME)

Figures: TypeAlias = Mapping[str, int | None]
"""By the names of ``FIGURES``; None is not heard of."""


@dataclass(frozen=True, slots=True)
class CollectedMetrics:
    """What was found.

    Attributes:
        by_connector: connector -> figures.
        missing: node -> why its figures are not among them.
    """

    by_connector: Mapping[str, Figures]
    missing: Mapping[str, str]


class ClusterMetrics:
    """Asks the nodes that run something. Thread-safe.

    Args:
        herder: knows who runs what, and this node's own figures.
        peers: the other nodes.
        clock: for how long a silent node is left alone.
    """

    def __init__(self, herder: HerderApi, peers: Peers, clock: Clock) -> None:
        self._herder = herder
        self._peers = peers
        self._clock = clock
        self._pool = ThreadPoolExecutor(ASKING_MAX, thread_name_prefix="figures")
        self._silent_until_ms: dict[str, int] = {}
        self._lock = threading.Lock()

    def own(self) -> dict[str, Figures]:
        """This node's figures, by connector; of those with any."""
        names = {**OF_TASKS, **OF_COORDINATOR, **OF_TIME}
        received = self._herder.measurements(tuple(names.values()))
        return {connector: _measurements(found) for connector, found in received.items()}

    def of(
        self,
        credentials: Credentials,
        statuses: Sequence[ReportedStatus],
        *,
        is_alone: bool = False,
    ) -> CollectedMetrics:
        """Figures of connectors.

        Args:
            credentials: the caller's; they go along.
            statuses: of the connectors; they say which node runs what.
            is_alone: ask no other node.
        """
        own = self.own()
        if is_alone:
            return CollectedMetrics({s.name: own.get(s.name, _NOTHING) for s in statuses}, {})
        urls = self._herder.nodes()
        wanted = {node for status in statuses for node in _nodes(status)}
        received: dict[str, Mapping[str, Figures]] = {
            n: own for n in wanted if urls.get(n, "") is None
        }
        missing: dict[str, str] = {}
        asked = self._ask(credentials, {n: urls.get(n) for n in wanted if n not in received})
        for node, answer in asked.items():
            if isinstance(answer, str):
                missing[node] = answer
            else:
                received[node] = answer
        by_connector = {status.name: _together(status, received) for status in statuses}
        return CollectedMetrics(by_connector, dict(sorted(missing.items())))

    def _ask(
        self, credentials: Credentials, urls: Mapping[str, str | None]
    ) -> dict[str, Mapping[str, Figures] | str]:
        """Each node's figures, or why there are none."""
        found: dict[str, Mapping[str, Figures] | str] = {}
        asked: dict[str, Future[Mapping[str, Figures]]] = {}
        for node, url in urls.items():
            if url is None:
                found[node] = "it is not there any more"
            elif self._is_silent(node):
                found[node] = f"it did not answer, and is asked again after {SILENT_MS // 1000} s"
            else:
                asked[node] = self._pool.submit(self._measurements_of, url, credentials)
        wait(asked.values(), timeout=ASK_S)
        for node, future in asked.items():
            if not future.done():
                if not future.cancel():  # else it was never asked, for others that ask
                    self._was_silent(node)
                found[node] = f"no answer within {ASK_S:g} s"
                continue
            try:
                found[node] = future.result()
            except UnavailableError as e:
                self._was_silent(node)
                found[node] = e.message[:REASON_CHARS]
            except IcefloeError as e:
                found[node] = e.message[:REASON_CHARS]
        return found

    def _measurements_of(self, url: str, credentials: Credentials) -> Mapping[str, Figures]:
        url = f"{url}{OVERVIEW}?forward=false"
        answer = self._peers.ask("GET", url, credentials, timeout_s=ASK_S)
        if answer.status_code != 200:
            raise IcefloeError(f"it answered with HTTP {answer.status_code}")
        try:
            return {one["name"]: one for one in answer.json()["connectors"]}
        except (ValueError, KeyError, TypeError) as e:
            raise IcefloeError("it answered with something else than an overview") from e

    def _is_silent(self, node: str) -> bool:
        with self._lock:
            return self._silent_until_ms.get(node, 0) > self._clock.monotonic_ms()

    def _was_silent(self, node: str) -> None:
        with self._lock:
            self._silent_until_ms[node] = self._clock.monotonic_ms() + SILENT_MS


def _measurements(received: Mapping[str, float]) -> Figures:
    found: dict[str, int | None] = dict(_NOTHING)
    for names, factor in ((OF_TASKS, 1), (OF_COORDINATOR, 1), (OF_TIME, 1000)):
        for field, metric in names.items():
            if metric in received:
                found[field] = int(received[metric] * factor)
    return found


def _nodes(status: ReportedStatus) -> set[str]:
    return {status.worker_id, *(task.worker_id for task in status.tasks)}


def _together(
    status: ReportedStatus, received: Mapping[str, Mapping[str, Figures]]
) -> dict[str, int | None]:
    """A connector's figures from those of the nodes that run its parts."""

    def of(node: str) -> Mapping[str, Any]:
        return received.get(node, {}).get(status.name, _NOTHING)

    found: dict[str, int | None] = {f: of(status.worker_id).get(f) for f in _OF_ITS_COORDINATOR}
    nodes = {task.worker_id for task in status.tasks}
    for field in OF_TASKS:
        found[field] = (
            _sum(of(node).get(field) for node in nodes) if nodes <= set(received) else None
        )
    return found


def _sum(numbers: Iterable[int | None]) -> int | None:
    known: Collection[int] = [number for number in numbers if number is not None]
    return sum(known) if known else None


_OF_ITS_COORDINATOR: Final = (*OF_COORDINATOR, *OF_TIME)
_NOTHING: Final[Figures] = dict.fromkeys(FIGURES)
