"""Where the REST API listens: the socket is taken before anything else is started."""

from __future__ import annotations

import os
import socket

from connect.config.node.node_config import NodeConfig
from connect.errors import ConfigError


def listen(config: NodeConfig) -> socket.socket:
    """The listening socket of the first of ``listeners``.

    Raises:
        ConfigError: ``listener``, the address cannot be taken.
    """
    host, port, _ = config.listener
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        made = socket.create_server((host, port), family=family, backlog=512)
        # what is accepted inherits it; without it each answer waits 40 ms for the client's ACK,
        # as head and body are two writes
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as e:
        why = os.strerror(e.errno) if e.errno else str(e)
        raise ConfigError(
            f"cannot listen at {config.listener.url}: {why}; choose another address in listeners, "
            "or end the process that has it",
            code="listener",
        ) from e
    return made
