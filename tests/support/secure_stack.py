"""The embedded stack with a secure broker, for tests of logins and of secrets that change."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from connect.embedded.stack import Stack
from connect.processes.child_process import free_port
from tests.support.running_stack import RunningStack, numbered
from tests.support.secure_broker import CertificateFiles, OAuthServer, SecureBroker

STOP_TIMEOUT_MS = 40_000
FLOW_S = 0.4  # between records: each batch takes processor time
_PROPERTIES: Mapping[str, str] = {
    "config.providers": "env,dir",
    "config.providers.dir.class": "DirectoryConfigProvider",
    "icefloe.secrets.refresh.ms": "1000",
    "icefloe.validate.remote.ms": "25000",
    "spark.driver.memory": "1g",
    "spark.master": "local[2]",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


class SecureStack(Stack):
    """A stack with a secure broker; one node after the other logs in to it.

    Args:
        folder: everything of it.
        oauth: a running OAuth2 server, for the listener ``OAUTH``.
        settings: more settings of the broker.
    """

    def __init__(
        self,
        folder: Path,
        oauth: OAuthServer | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder / "stack")
        self.folder = folder
        self.state_dir.mkdir()
        self.keys = CertificateFiles(folder / "keys")
        self.secure = SecureBroker(self.state_dir / "broker", self.keys, oauth, settings=settings)
        self._running: RunningStack | None = None
        self._logins: dict[str, str] = {}

    def start_broker(self) -> None:
        """The secure broker takes the place of the open one."""
        self._lock.acquire(self.state_dir)
        self._rest_port = free_port()
        (self.state_dir / "warehouse").mkdir()
        self.broker = self.secure.start()

    def node(self, logins: Mapping[str, str]) -> RunningStack:
        """Return a node whose roles log in so: the present one, or another one in its place."""
        if self._running is None or logins != self._logins:
            self.stop_node()
            self._logins = dict(logins)
            self._node_properties = {**_PROPERTIES, **logins}
            self._node_properties["config.providers.dir.param.allowed.paths"] = str(self.folder)
            self.start_node()
            self.wait_for_node()
            self._running = RunningStack(self)
        return self._running

    def stop_node(self) -> None:
        """Stop the node; the broker continues."""
        if self._running is not None:
            self._running.close()
            self._running = None
        if self._node is not None:
            self._node.stop(timeout_ms=STOP_TIMEOUT_MS)
            self._node = None

    def stop(self) -> None:
        """Stop node and broker."""
        self.stop_node()
        super().stop()


@contextmanager
def flowing_records(running: RunningStack, topic: str, first: int) -> Iterator[list[int]]:
    """Numbered records are written during the block; the list's last item is the next number."""
    sent, ends = [first], threading.Event()

    def write() -> None:
        while not ends.wait(FLOW_S):
            running.produce(topic, *numbered(sent[-1], 5))
            sent.append(sent[-1] + 5)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            yield sent
        finally:
            ends.set()
        writer.result()
