"""The node's access policy in the processes of Spark tasks.

Rules of this file:
- A Spark task runs in a process of its own, which knows nothing of the node. It sends requests to
  schema registries and stores that a tenant names. So each function carries the access policy of
  the driver.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from connect.gateways.access_policy import AccessPolicy, access_policy, install

T = TypeVar("T")


def under_policy(work: Callable[..., T]) -> Callable[..., T]:
    """Return work that runs under the access policy of this process, in any process.

    Args:
        work: picklable.
    """
    return partial(_run, access_policy(), work)


def _run(policy: AccessPolicy, work: Callable[..., T], *arguments: Any) -> T:
    if access_policy() != policy:
        install(policy)
    return work(*arguments)
