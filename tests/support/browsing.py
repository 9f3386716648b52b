"""A headless browser for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
NONE = (
    f"no browser: none of {', '.join(NAMES)} is on the PATH and BROWSER_PATH names none; "
    "Debian and Ubuntu: apt-get install chromium"
)
FLAGS = (
    "--no-sandbox",  # it shows nothing but the pages of this node, and tests may run as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def browser_path() -> str | None:
    """The browser of this machine: ``BROWSER_PATH``, or the first of ``NAMES``."""
    named = os.environ.get("BROWSER_PATH")
    return named or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Start the machine's browser, or skip the test."""
    path = browser_path()
    if path is None:
        pytest.skip(NONE)
    expect.set_options(timeout=120_000)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=180_000)
        yield browser
        browser.close()


class BrowserVisit:
    """A browser page, with its requests and errors.

    Args:
        browser: started.
        more: settings of the browser's context.

    Attributes:
        page: the open page of the browser.
        asked: every request: method and path with query.
        complaints: errors of the page, of its console and of its policy.
    """

    def __init__(self, browser: Browser, **more: Any) -> None:
        settings = {"viewport": {"width": 1400, "height": 900}, **more}
        self.context = browser.new_context(**settings)
        self.page: Page = self.context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda r: self.asked.append(f"{r.method} {_path(r.url)}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._received)
        self.page.set_default_timeout(120_000)

    def _received(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    def decline_passwords(self) -> None:
        """Answer the browser's password dialog with Cancel, as a user does."""
        devtools = self.context.new_cdp_session(self.page)

        def answer(event: dict[str, Any]) -> None:
            declined = {"response": "CancelAuth"}
            answer_of_dialog = {"requestId": event["requestId"], "authChallengeResponse": declined}
            devtools.send("Fetch.continueWithAuth", answer_of_dialog)

        def pass_on(event: dict[str, Any]) -> None:
            devtools.send("Fetch.continueRequest", {"requestId": event["requestId"]})

        devtools.on("Fetch.authRequired", answer)
        devtools.on("Fetch.requestPaused", pass_on)
        devtools.send("Fetch.enable", {"handleAuthRequests": True})

    def close(self) -> None:
        """Close the page; passwords and tokens are deleted."""
        self.context.close()


def _path(url: str) -> str:
    return "/" + url.partition("://")[2].partition("/")[2]
