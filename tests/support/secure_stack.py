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


class SecureStack(Stack):
    """A stack with a secure broker; subclasses have the logins of the node.

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

    def start_broker(self) -> None:
        """The secure broker takes the place of the open one."""
        self._lock.acquire(self.state_dir)
        self._rest_port = free_port()
        (self.state_dir / "warehouse").mkdir()
        self.broker = self.secure.start()
        self.prepare()
        self._node_properties.update(
            {
                "config.providers": "env,dir",
                "config.providers.dir.class": "DirectoryConfigProvider",
                "config.providers.dir.param.allowed.paths": str(self.folder),
                "icefloe.secrets.refresh.ms": "1000",
                "icefloe.validate.remote.ms": "25000",
                "spark.driver.memory": "1g",
                "spark.master": "local[2]",
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
                **self.logins(),
            }
        )

    def prepare(self) -> None:
        """Called when the broker runs: create users."""

    def logins(self) -> dict[str, str]:
        """Return how the node's roles log in."""
        raise NotImplementedError


@contextmanager
def flowing_records(running: RunningStack, topic: str, first: int) -> Iterator[list[int]]:
    """Numbered records are written during the block; the list's last item is the next number."""
    sent, ends = [first], threading.Event()

    def write() -> None:
        while not ends.wait(0.1):
            running.produce(topic, *numbered(sent[-1], 5))
            sent.append(sent[-1] + 5)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            yield sent
        finally:
            ends.set()
        writer.result()
