"""Access rules: which callers may use a path operation. Checked before the body is read.

Rules of this file:
- Every path operation has exactly one rule (``rule``, ``open_to_all``); ``ApiRoute`` requires it.
- ``read`` only reads, ``operate`` acts on existing connectors (pause, restart, offsets), ``admin``
  creates, changes and deletes them. Validating a configuration needs ``admin``: it resolves secrets
  and calls the systems that the configuration names.
- Without a users file there is no authentication; the node then listens on loopback only.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, cast
from urllib.parse import unquote

from fastapi import Depends, Request

from connect.errors import InvariantViolation
from connect.node.rest.api_errors import ApiError
from connect.node.rest.auth import EVERYBODY, Caller, Role
from connect.node.rest.connections import source_of
from connect.node.rest.limits import ORDINARY, RequestLimits, SignIn

Scope: TypeAlias = Literal["connector", "any", "node"]
"""The scope that a grant must cover: the connector of the path, any connector, or the node."""
Answering: TypeAlias = Literal["this node", "leader", "coordinator"]

CERTIFICATE: Final = "icefloe.certificate"  # in the ASGI scope: common name, checked by TLS
FOR_CERTIFICATE: Final = "icefloe-for-certificate"
"""Header in which a node that forwards a request names the caller's certificate."""
CALLER: Final = "icefloe.caller"  # in the ASGI scope: the admitted caller
_PASSED_ON: Final = ("authorization", "accept", "content-type")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The caller's credentials, for a request to another node.

    Attributes:
        certificate: the caller's certificate, if nothing else identifies the caller.
    """

    headers: Mapping[str, str] = field(default_factory=dict)
    certificate: str | None = None


class Rule:
    """The dependency that defines who may call a path operation, and which node answers.

    Args:
        role: role that a caller needs; None is open to all.
        of: scope that the caller's grant must cover.
        at: the node that answers.
        turns: how many of these requests a caller may have at a time.
    """

    def __init__(self, role: Role | None, of: Scope, at: Answering, turns: RequestLimits) -> None:
        self.role = role
        self.of = of
        self.at = at
        self.turns = turns

    async def __call__(self, request: Request) -> Caller:
        """Return the caller who was admitted before the body was read."""
        caller = request.scope.get(CALLER)
        if caller is None:
            raise InvariantViolation(f"{request.url.path} was reached without a check of its rule")
        return cast("Caller", caller)

    async def admit(self, request: Request) -> Caller:
        """Authenticate and authorise the caller.

        Raises:
            ApiError: 401 unknown, 403 without the role, 429 after too many wrong passwords.
        """
        caller = await self._known(request)
        request.scope[CALLER] = caller
        return caller

    async def _known(self, request: Request) -> Caller:
        certificate = certificate_of(request)
        sign_in: SignIn | None = request.app.state.sign_in
        if sign_in is None or self.role is None:
            return EVERYBODY
        authorization = request.headers.get("authorization")
        source = source_of(request.client.host) if request.client else ""
        caller = await sign_in.caller(authorization, certificate, source)
        if caller is None:
            challenge = {"www-authenticate": sign_in.users.challenge}
            raise ApiError(401, "User cannot access the resource.", challenge)
        name = request.path_params.get("name") if self.of == "connector" else None
        is_any = self.of == "any"
        if caller.may_somewhere(self.role) if is_any else caller.may(self.role, name):
            return caller
        scope = "the whole node" if name is None else f"connector {name}"
        raise ApiError(403, f"{caller.name} lacks the role {self.role} for {scope}")


def rule(
    role: Role, of: Scope, *, at: Answering = "this node", turns: RequestLimits = ORDINARY
) -> Any:  # as ``Depends``
    """Return the rule of a path operation: who may call it, and which node answers."""
    return Depends(Rule(role, of, at, turns))


def open_to_all() -> Any:  # as ``Depends``
    """Return a rule without authentication: for health, and static files."""
    return Depends(Rule(None, "any", "this node", ORDINARY))


def certificate_of(request: Request) -> str | None:
    """Return the common name of the certificate that identifies the caller.

    Returns:
        None when the caller sends a password or token: a node that forwards a request presents
        its own certificate in addition to them.

    Raises:
        ApiError: 403, a client that is not a node names the certificate of another client.
    """
    if "authorization" in request.headers:
        return None
    presented: str | None = request.scope.get(CERTIFICATE)
    named = request.headers.get(FOR_CERTIFICATE)
    if named is None:
        return presented
    nodes: frozenset[str] = request.app.state.node_certificates
    if presented in nodes:
        return unquote(named)
    _LOG.warning("a client with the certificate %r named the certificate of another", presented)
    raise ApiError(403, f"Only nodes of icefloe.rest.node.certificates may send {FOR_CERTIFICATE}")


def credentials_of(request: Request) -> Credentials:
    """Return the credentials that identify the caller to another node."""
    caller = request.scope.get(CALLER, EVERYBODY)
    headers = request.headers
    return Credentials(
        {name: headers[name] for name in _PASSED_ON if name in headers},
        None if caller is EVERYBODY else certificate_of(request),
    )
