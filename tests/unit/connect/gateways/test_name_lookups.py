"""Lookups of host names that take longer than a request of a webhook may."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from connect.backoff import BackoffPolicy
from connect.clock import SystemClock
from connect.errors import RetriableError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.webhook import Webhook, WebhookAddress


def test_a_lookup_without_end_holds_one_thread() -> None:
    """The caller continues after the time of a request; until the lookup ends, no other begins."""
    is_over, real = threading.Event(), socket.getaddrinfo
    lookups: list[Any] = []

    def resolve(*arguments: Any, **_: Any) -> Any:
        lookups.append(arguments)
        is_over.wait(60)
        raise OSError

    vars(socket)["getaddrinfo"] = resolve
    install(AccessPolicy(is_guarded=True))
    address = WebhookAddress("http://hook.example.org/rows", None, "key", is_of_operator=False)
    webhook = Webhook(address, SystemClock(), BackoffPolicy(1, 2), timeout_s=0.2)
    try:
        for _ in range(3):
            with pytest.raises(RetriableError) as refused:
                webhook.post(b"[]")
            assert refused.value.code == "webhook_unavailable"
        assert len(lookups) == 1
    finally:
        is_over.set()
        vars(socket)["getaddrinfo"] = real
        install(AccessPolicy())
        webhook.close()
