"""Whether the executors of Spark run in the worker's process or on other machines."""

from __future__ import annotations

import re
from typing import Final

MASTER: Final = "spark.master"
_LOCAL: Final = re.compile(r"local(\[[^]]*\])?")


def is_local(master: str | None) -> bool:
    """Return whether a value of ``spark.master`` runs executors in the worker's own process.

    The default master is a local one.
    """
    return master is None or _LOCAL.fullmatch(master.strip()) is not None
