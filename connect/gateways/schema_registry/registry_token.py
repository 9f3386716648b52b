"""Bearer tokens for the schema registry: static, or from an OAuth token endpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

import httpx

from connect.clock import SystemClock
from connect.errors import ConfigError
from connect.gateways.access_policy import access_policy
from connect.gateways.answer_limits import TOKEN_BYTES_MAX, body_within

_RENEW_SHARE: Final = 0.8
_LIFE_S_DEFAULT: Final = 300


@dataclass(slots=True)
class TokenSource:
    """Source of bearer tokens.

    Attributes:
        token: a static token, or the current token from the endpoint.
        endpoint: URL of the token endpoint; None for a static token.
        form: form fields of the token request.
        extra: additional headers for the registry.
    """

    token: str
    endpoint: str | None = None
    form: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, str] = field(default_factory=dict)
    _until_ms: int = 0

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TokenSource | None:
        """Return the source that the options configure; None without one.

        Raises:
            ConfigError: an option is missing, or the source is not supported.
        """
        source = options.get("bearer.auth.credentials.source", "").strip().upper()
        if not source and options.get("bearer.auth.token"):
            source = "STATIC_TOKEN"
        extra = {
            header: options[key]
            for header, key in (
                ("target-sr-cluster", "bearer.auth.logical.cluster"),
                ("Confluent-Identity-Pool-Id", "bearer.auth.identity.pool.id"),
            )
            if options.get(key)
        }
        if not source:
            return None
        if source == "STATIC_TOKEN":
            return cls(_needed(options, "bearer.auth.token"), extra=extra)
        if source != "OAUTHBEARER":
            raise ConfigError(
                f"bearer.auth.credentials.source {source!r} is not supported; use STATIC_TOKEN or "
                "OAUTHBEARER",
                code="converter_option",
            )
        form = {
            "grant_type": "client_credentials",
            "client_id": _needed(options, "bearer.auth.client.id"),
            "client_secret": _needed(options, "bearer.auth.client.secret"),
        }
        if options.get("bearer.auth.scope"):
            form["scope"] = options["bearer.auth.scope"]
        return cls("", _needed(options, "bearer.auth.issuer.endpoint.url"), form, extra)

    def headers(self, client: httpx.Client, clock: SystemClock) -> dict[str, str]:
        """Return the headers of a request; requests a new token before the current one expires.

        Raises:
            ConfigError: the token endpoint refuses the client.
            httpx.HTTPError: the token endpoint does not answer.
            AnswerLimitError: its answer is too large.
        """
        now_ms = clock.monotonic_ms()
        if self.endpoint is not None and (not self.token or now_ms >= self._until_ms):
            access_policy().check_host(urlsplit(self.endpoint).hostname or "")
            form = dict(self.form)
            with client.stream("POST", self.endpoint, data=form, auth=httpx.Auth()) as answer:
                content = body_within(answer, TOKEN_BYTES_MAX)
            if answer.status_code in (400, 401, 403):
                raise ConfigError(
                    f"the token endpoint answers {answer.status_code}: check bearer.auth.client.id "
                    "and bearer.auth.client.secret of the converter",
                    code="registry_denied",
                )
            answer.raise_for_status()
            try:
                body = json.loads(content)
                self.token, life_s = str(body["access_token"]), int(body.get("expires_in") or 0)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise httpx.RemoteProtocolError("no token in the answer") from error
            self._until_ms = now_ms + int((life_s or _LIFE_S_DEFAULT) * 1000 * _RENEW_SHARE)
        return {"Authorization": f"Bearer {self.token}", **self.extra}

    def forget(self) -> None:
        """Request a new token for the next request."""
        self._until_ms = 0


def _needed(options: Mapping[str, str], key: str) -> str:
    value = options.get(key)
    if not value:
        raise ConfigError(f"{key} is missing: set it", code="converter_option")
    return value
