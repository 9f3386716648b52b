"""Limits of the API per caller and per address.

Rules of this file:
- A caller's requests wait for requests of that caller only. A few of them are served at a time,
  some more wait, and the rest get 429.
- Wrong passwords use up the attempts of their address. Attempts come back with time. Without
  attempts the address gets 429, and no password is hashed. A known password needs no attempt.
- All state belongs to the event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Self

from anyio import CapacityLimiter
from anyio.to_thread import run_sync

from connect.clock import Clock
from connect.node.rest.api_errors import TooManyError
from connect.node.rest.auth import Caller, Login, Users

HASHES_AT_ONCE: Final = 2
ATTEMPTS_MAX: Final = 10
ATTEMPT_BACK_MS: Final = 5_000
SOURCES_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many requests of one caller are served at a time, and how many may wait."""

    served: int
    waiting: int


ORDINARY: Final = RequestLimits(served=8, waiting=92)
ASKING_OTHERS: Final = RequestLimits(served=4, waiting=8)
"""For requests that call brokers, catalogs and registries, and hold threads meanwhile."""


class CallerTurns:
    """The turns of all callers."""

    def __init__(self) -> None:
        self._limiters: dict[tuple[str, RequestLimits], CapacityLimiter] = {}
        self._held: dict[tuple[str, RequestLimits], int] = {}

    def turn(self, caller: Caller, turns: RequestLimits) -> RequestSlot:
        """Return a place among the caller's requests, for the block.

        Entering the block raises ``TooManyError`` when the caller has too many requests.
        """
        return RequestSlot(self._limiters, self._held, (caller.name, turns))


class RequestSlot(AbstractContextManager["RequestSlot"]):
    """One request's place among those of its caller.

    Every request has one. It is a class because a generator takes five times as long.
    """

    __slots__ = ("_held", "_key", "_limiters")

    def __init__(
        self,
        limiters: dict[tuple[str, RequestLimits], CapacityLimiter],
        held: dict[tuple[str, RequestLimits], int],
        key: tuple[str, RequestLimits],
    ) -> None:
        self._limiters = limiters
        self._held = held
        self._key = key

    def threads(self) -> CapacityLimiter:
        """Return the limit of the caller's threads, to be used within the block."""
        limiter = self._limiters.get(self._key)
        if limiter is None:
            limiter = self._limiters[self._key] = CapacityLimiter(self._key[1].served)
        return limiter

    def __enter__(self) -> Self:
        name, turns = key = self._key
        held = self._held.get(key, 0)
        if held >= turns.served + turns.waiting:
            raise TooManyError(
                f"{name} has {held} requests of this kind at a time: send the next one when "
                "one of them is answered",
                retry_after_s=1,
            )
        self._held[key] = held + 1
        return self

    def __exit__(self, *_: object) -> None:
        held = self._held[self._key] - 1
        if held:
            self._held[self._key] = held
        else:
            del self._held[self._key]
            self._limiters.pop(self._key, None)


class Attempts:
    """How many wrong passwords each address may still send.

    Args:
        sources_max: how many addresses are remembered.
    """

    def __init__(self, clock: Clock, sources_max: int = SOURCES_MAX) -> None:
        self._clock = clock
        self._sources_max = sources_max
        self._spent: dict[str, tuple[float, int]] = {}  # attempts, and as of when

    def spend(self, source: str) -> None:
        """Take an attempt.

        Raises:
            TooManyError: there is none.
        """
        spent = self._now_spent(source)
        if spent > ATTEMPTS_MAX - 1:
            back_ms = (spent - (ATTEMPTS_MAX - 1)) * ATTEMPT_BACK_MS
            raise TooManyError(
                "Too many wrong passwords came from this address: try again later",
                retry_after_s=max(1, round(back_ms / 1000)),
            )
        self._set(source, spent + 1)

    def give_back(self, source: str) -> None:
        """Return an attempt after a right password."""
        self._set(source, max(0.0, self._now_spent(source) - 1))

    def _now_spent(self, source: str) -> float:
        spent, at_ms = self._spent.get(source, (0.0, 0))
        return max(0.0, spent - (self._clock.monotonic_ms() - at_ms) / ATTEMPT_BACK_MS)

    def _set(self, source: str, spent: float) -> None:
        self._spent.pop(source, None)
        if len(self._spent) >= self._sources_max:
            del self._spent[next(iter(self._spent))]  # the address with the oldest attempt
        self._spent[source] = spent, self._clock.monotonic_ms()


class SignIn:
    """Authenticates callers; no caller waits for the password check of another one."""

    def __init__(self, users: Users, clock: Clock) -> None:
        self.users = users
        self._attempts = Attempts(clock)
        self._hashing = CapacityLimiter(HASHES_AT_ONCE)
        self._reading = CapacityLimiter(1)
        self._refreshing: asyncio.Future[None] | None = None
        self._checks: dict[bytes, asyncio.Future[Caller | None]] = {}

    async def caller(
        self, authorization: str | None, certificate: str | None, source: str
    ) -> Caller | None:
        """Return the caller of a request; None when it is unknown.

        Args:
            authorization: the header ``Authorization``.
            certificate: common name of the client's certificate, checked by TLS.
            source: address that the request comes from (``connections.source_of``).

        Raises:
            TooManyError: too many wrong passwords came from that address.
        """
        if self.users.is_due:
            await self._refresh()
        identity = self.users.caller(authorization, certificate)
        if not isinstance(identity, Login):
            return identity
        check = self._checks.get(identity.digest)
        if check is None:
            if not identity.is_familiar:
                self._attempts.spend(source)
            check = asyncio.ensure_future(self._check(identity, source))
            self._checks[identity.digest] = check
        return await asyncio.shield(check)

    async def _refresh(self) -> None:
        """Check the users file for changes; requests that arrive meanwhile wait for it."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(
                run_sync(self.users.refresh, limiter=self._reading)
            )
            self._refreshing.add_done_callback(self._refreshed)
        await asyncio.shield(self._refreshing)

    def _refreshed(self, done: asyncio.Future[None]) -> None:
        del done
        self._refreshing = None

    async def _check(self, login: Login, source: str) -> Caller | None:
        try:
            caller = await run_sync(self.users.check, login, limiter=self._hashing)
        finally:
            del self._checks[login.digest]
        if caller is not None and not login.is_familiar:
            self._attempts.give_back(source)
        return caller
