"""The limit of open files of this process, which its child processes inherit.

A connector needs about 70 file handles: sockets of Kafka clients and event pipes. Many systems
start programs with a soft limit of 1,024, which 15 to 25 connectors reach.
"""

from __future__ import annotations

import resource
from typing import Final

from connect.logs import logger

OPEN_FILES: Final = 65_536
"""What a process asks for: room for several hundred connectors."""

_log = logger("node")


def raise_open_files_limit() -> int:
    """Raise the soft limit to ``OPEN_FILES``, or to the hard limit if that is lower.

    A higher soft limit stays. Needs no privilege.

    Returns:
        The soft limit that holds now.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_unlimited = hard == resource.RLIM_INFINITY
    raised = OPEN_FILES if is_unlimited else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= raised:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError) as e:
        _log.warning("limit of open files not raised", limit=soft, error=str(e))
        return soft
    _log.info("limit of open files raised", limit=raised, before=soft)
    return raised
