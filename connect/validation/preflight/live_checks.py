"""Checks of a configuration against broker and catalog: side by side, each within its time.

Rules of this file:
- A check says what it asked and of whom.
- No answer in time is an error that says so; an answer that comes later is thrown away.
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
    """One question.

    Attributes:
        key: where it is told that it was not answered.
        asked: what is asked of whom, as the beginning of a sentence.
        run: asks, within its own time limits; gives keys and what is wrong with them.
    """

    key: str
    asked: str
    run: Callable[[], Found]


def reported(error: IcefloeError) -> str:
    """An error's message in one line of bounded length."""
    return " ".join(KNOWN.mask(error.message).split())[:_MESSAGE_CHARACTERS_MAX]


def run_checks(checks: Iterable[Check], *, whole_s: float, clock: Clock) -> dict[str, list[str]]:
    """Ask everything at the same time.

    Args:
        checks: what to ask.
        whole_s: how long to wait for all of them.
        clock: monotonic time.

    Returns:
        Sentences by key, in the order of the checks.
    """
    listed = tuple(checks)
    start_ms = clock.monotonic_ms()
    pool = ThreadPoolExecutor(max(1, len(listed)), thread_name_prefix="preflight")
    asked = [pool.submit(_answered, check) for check in listed]
    wait(asked, timeout=whole_s)
    pool.shutdown(wait=False, cancel_futures=True)
    found: dict[str, list[str]] = {}
    for check, future in zip(listed, asked, strict=True):
        silence = [(check.key, f"{check.asked}: no answer within {whole_s:g} s")]
        for key, sentence in future.result() if future.done() else silence:
            if sentence not in found.setdefault(key, []):
                found[key].append(sentence)
    took_ms = clock.monotonic_ms() - start_ms
    _log.info("configuration checked", checks=len(listed), wrong=len(found), took_ms=took_ms)
    return found


def _answered(check: Check) -> list[tuple[str, str]]:
    """Keys and whole sentences; a question that is refused gives one."""
    try:
        return [(key, f"{check.asked}: {what}") for key, what in check.run()]
    except IcefloeError as error:
        return [(check.key, f"{check.asked}: {reported(error)}")]
    except TimeoutError:
        return [(check.key, f"{check.asked}: no answer")]
