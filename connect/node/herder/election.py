"""Whether this node leads, and what it does by the clock while it does.

Rules of this file:
- All methods but ``heard`` run on the herder's thread; whatever asks the broker is a job.
- The group says who is to lead; who leads is who has taken over writing. A node that is fenced
  leads no more until the group says so again.
- A node that finds nobody but itself in the group leads at once: what holds up the group is its own
  killed predecessor, whose session has not ended, or the broker's wait for others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from connect.clock import Clock
from connect.errors import Fenced, RetriableError
from connect.logs import logger
from connect.metrics.process_metrics import gauge
from connect.node.herder.deployer import Deployer
from connect.node.herder.leader import Leading
from connect.state.config_store import ConfigStore

LOOK_MS = 1_000
RETRY_MS = 500
ALONE_LOOK_MS = 250
VANISHED_LOOK_MS = 250
KEEP_MS = 1_800_000  # far below offsets.retention.minutes of any cluster

Job = Callable[[], None]

_log = logger("leader")


class Leadership:
    """This node's part in leading its cluster.

    Args:
        leading: what a leader knows and decides.
        store: told when this node leads no more.
        deployer: knows which layouts are out of date.
        clock: time.
        refresh_ms: how often metadata is looked at.
        submit: runs a job on a thread of its own.
        post: runs something on the herder's thread.
        on_joined: called when this node begins to lead, and when it has joined without leading.
        on_outdated: called with the connectors whose layouts are out of date.
        on_fatal: called with an error that is a bug.
    """

    def __init__(
        self,
        leading: Leading,
        store: ConfigStore,
        deployer: Deployer,
        clock: Clock,
        *,
        refresh_ms: int,
        submit: Callable[[Job], Any],
        post: Callable[[Job], None],
        on_joined: Job,
        on_outdated: Callable[[list[str]], None],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.leading = leading
        self.joined = threading.Event()
        self._store = store
        self._deployer = deployer
        self._clock = clock
        self._refresh_ms = refresh_ms
        self._submit = submit
        self._post = post
        self._on_joined = on_joined
        self._on_outdated = on_outdated
        self._on_fatal = on_fatal
        self._is_chosen = False
        self._is_taken = False  # by the group
        self._is_leading = False
        self._busy: set[str] = set()
        self._at_ms: dict[str, int] = {}
        self._received: tuple[Mapping[str, int], tuple[int, bool]] | None = None

    @property
    def is_leading(self) -> bool:
        """Whether this node leads, as far as it knows."""
        return self._is_leading

    def received(self, is_chosen: bool) -> None:
        """The group has changed; called on the member's thread."""
        if not is_chosen:
            self._store.step_down()
        self._post(lambda: self._changed(is_chosen=is_chosen, is_taken=True))

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        if not self._is_taken and not self._is_chosen:
            self._every("alone", ALONE_LOOK_MS, now_ms, self._check_members)
        if self._is_chosen and not self._is_leading:
            self._every("take-over", RETRY_MS, now_ms, self._take_over)
        if self._is_leading:
            self._every("look", LOOK_MS, now_ms, self.leading.inspect)
            # a task misses a topic that went; another number of nodes may run more or fewer tasks
            if (
                received := (self.leading.misses(), self.leading.nodes_for_layout())
            ) != self._received:
                self._received = received
                self._at_ms.pop("refresh", None)
            self._every("refresh", self._refresh_ms, now_ms, self._refresh)
            self._every("keep-offsets", KEEP_MS, now_ms, self._deployer.keep_offsets)

    def lost(self, error: Fenced) -> None:
        """The store refused: another node leads."""
        if self._is_leading:
            _log.warning("leads no more", error=str(error))
        self._is_leading = False
        self._is_chosen = self._is_chosen and self._is_taken
        self._store.step_down()
        gauge("is_leader").set(0)

    def _changed(self, *, is_chosen: bool, is_taken: bool) -> None:
        if self._is_taken and not is_taken:
            return  # the group has said it meanwhile
        self._is_chosen, self._is_taken = is_chosen, is_taken
        self._at_ms.clear()
        if is_chosen:
            return
        if not self.joined.is_set():
            self.joined.set()
            self._on_joined()
        if self._is_leading:
            self.lost(Fenced("the group has chosen another node"))

    def _every(self, what: str, pause_ms: int, now_ms: int, job: Job) -> None:
        if what in self._busy or now_ms < self._at_ms.get(what, 0):
            return
        self._busy.add(what)
        self._at_ms[what] = now_ms + pause_ms
        self._submit(lambda: self._do(what, job))

    def _do(self, what: str, job: Job) -> None:
        """Job: do it, and tell the herder's thread how it went."""
        lost: Fenced | None = None
        try:
            job()
        except Fenced as e:
            lost = e
        except RetriableError as e:
            _log.warning("the leader cannot do its part", what=what, error=str(e))
        except BaseException as e:
            self._on_fatal(e)
            raise
        self._post(lambda: self._done(what, lost))

    def _done(self, what: str, lost: Fenced | None) -> None:
        self._busy.discard(what)
        if lost is not None:
            self.lost(lost)

    def _check_members(self) -> None:
        if self.leading.is_alone():
            self._post(lambda: self._changed(is_chosen=True, is_taken=False))

    def _take_over(self) -> None:
        self.leading.take_over()
        self._post(self._began)

    def _began(self) -> None:
        if not self._is_chosen or not self._store.is_leading:
            return
        self._is_leading = True
        self._at_ms.clear()
        self.joined.set()
        gauge("is_leader").set(1)
        _log.info("leads")
        self._on_joined()

    def _refresh(self) -> None:
        """Look for topics and partitions that came or went."""
        found, is_open = self._deployer.outdated()
        self._post(lambda: self._refreshed(found, is_open=is_open))

    def _refreshed(self, found: list[str], *, is_open: bool) -> None:
        if is_open:  # the tasks of what has vanished announce nothing until that is decided
            soon_ms = self._clock.monotonic_ms() + VANISHED_LOOK_MS
            self._at_ms["refresh"] = min(soon_ms, self._at_ms.get("refresh", soon_ms))
        self._on_outdated(found)
