"""Runs checks against brokers, catalog and registries in parallel with timeouts.

Rules of this file:
- The message of a check contains the request and its target.
- A timeout is an error. Answers after the timeout are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from connect.clock import Clock
from connect.errors import IcefloeError
from connect.logs import logger
from connect.redaction.secret_values import KNOWN

_MESSAGE_CHARACTERS_MAX = 300

Found = Iterable[tuple[str, str]]

_log = logger("preflight")


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        key: key for the error if there is no answer.
        asked: the request and its target, as the beginning of a message.
        run: runs the check with its timeout; returns keys and errors.
    """

    key: str
    asked: str
    run: Callable[[], Found]


def reported(error: IcefloeError) -> str:
    """Return an error message as one line of bounded length."""
    return " ".join(KNOWN.mask(error.message).split())[:_MESSAGE_CHARACTERS_MAX]


def run_checks(checks: Iterable[Check], *, whole_s: float, clock: Clock) -> dict[str, list[str]]:
    """Run checks in parallel.

    Args:
        checks: the checks.
        whole_s: timeout of all checks in seconds.
        clock: monotonic clock.

    Returns:
        Error messages by key, in the order of the checks.
    """
    listed = tuple(checks)
    start_ms = clock.monotonic_ms()
    pool = ThreadPoolExecutor(max(1, len(listed)), thread_name_prefix="preflight")
    futures = [pool.submit(_answered, check) for check in listed]
    wait(futures, timeout=whole_s)
    pool.shutdown(wait=False, cancel_futures=True)
    errors: dict[str, list[str]] = {}
    for check, future in zip(listed, futures, strict=True):
        silence = [(check.key, f"{check.asked}: no answer within {whole_s:g} s")]
        for key, sentence in future.result() if future.done() else silence:
            if sentence not in errors.setdefault(key, []):
                errors[key].append(sentence)
    took_ms = clock.monotonic_ms() - start_ms
    _log.info(
        "configuration checked against other systems",
        checks=len(listed),
        wrong=len(errors),
        took_ms=took_ms,
    )
    return errors


def _answered(check: Check) -> list[tuple[str, str]]:
    """Return keys and complete messages. A failed request has one message."""
    try:
        return [(key, f"{check.asked}: {finding}") for key, finding in check.run()]
    except IcefloeError as error:
        return [(check.key, f"{check.asked}: {reported(error)}")]
    except TimeoutError:
        return [(check.key, f"{check.asked}: no answer")]
