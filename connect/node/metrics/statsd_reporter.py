"""Sends the node's metrics to a statsd server over UDP; the server need not be reachable.

Rules of this file:
- A counter is sent as its increase since the last report. A lower value means that the counter
  started again at zero, so all of it is the increase.
- A gauge is sent when it is new or has changed.
- A histogram is not sent: statsd has no buckets, and gauges have the last durations.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence

from statsd import StatsClient

from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError
from connect.logs import logger
from connect.metrics.metric_catalogue import CATALOGUE
from connect.metrics.process_metrics import Exposition, Sample

INTERVAL_S = 10.0
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")

_log = logger("statsd")


class StatsdReporter:
    """Sends every metric of a node.

    Args:
        address: ``host:port``.
        prefix: prefix of every name.
        samples: the node's values.

    Raises:
        ConfigError: the address is not ``host:port``.
    """

    def __init__(self, address: str, prefix: str, samples: Callable[[], Sequence[Sample]]) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise ConfigError(
                f"icefloe.statsd.address is {address!r}; it must be <host>:<port>", code="statsd"
            )
        self._address = (host.strip("[]"), int(port))
        self._prefix = prefix
        self._samples = samples
        self._kinds = {m.name: m.kind for m in CATALOGUE}
        self._sent: dict[str, float] = {}
        self._stopping = threading.Event()

    @classmethod
    def of(cls, config: NodeConfig, exposition: Exposition) -> StatsdReporter | None:
        """Return the reporter of a node's properties; None when they have no statsd address."""
        address = config.values["icefloe.statsd.address"]
        if not address:
            return None
        return cls(address, config.values["icefloe.statsd.prefix"], exposition.samples)

    def start(self) -> None:
        """Report on a separate thread until ``stop``."""
        threading.Thread(target=self._run, name="statsd", daemon=True).start()

    def stop(self) -> None:
        """Stop reporting."""
        self._stopping.set()

    def report(self) -> None:
        """Send new and changed values.

        Raises:
            OSError: the host has no address.
        """
        host, port = self._address
        client = StatsClient(host, port, prefix=self._prefix, ipv6=":" in host)
        try:
            with client.pipeline() as batch:
                for name, labels, number in self._samples():
                    if self._kinds[name] == "histogram":
                        continue
                    self._put(batch, name, [*labels.values()], number)
        finally:
            client.close()

    def _put(self, batch: StatsClient, name: str, labels: Sequence[str], number: float) -> None:
        full = ".".join([name, *(_UNFIT.sub("_", label) or "_" for label in labels)])
        before = self._sent.get(full)
        self._sent[full] = number
        if self._kinds[name] == "counter":
            added = number if before is None or number < before else number - before
            if added:
                batch.incr(full, added)
        elif number != before:
            batch.gauge(full, number)

    def _run(self) -> None:
        while not self._stopping.wait(INTERVAL_S):
            try:
                self.report()
            except OSError as e:
                _log.warning(
                    "metrics not sent", address=":".join(map(str, self._address)), error=str(e)
                )
