"""``/icefloe/v1/connectors/<name>``: dead letters, preview, migration check and catalog check.

Rules of this file:
- A path operation asks the broker or the catalog with the connector's configuration: it runs on a
  thread, and a caller has a few of them at a time (``ASKING_OTHERS``).
- A stored connector was validated. The checks take a configuration that may not be stored; it is
  validated first, as one that the caller creates.
- Dead letters of other connectors in the same topic are not part of an answer. The content of a
  record needs the role ``admin``: it may hold personal data.
- Secrets are masked by value, in names of tables and groups too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeAlias

from fastapi import APIRouter, Path

from connect.errors import CommitError, DataLost, Fenced
from connect.node.rest import models as m
from connect.node.rest import operation_models as o
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError, not_found
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.auth import Caller
from connect.node.rest.dependencies import CallerDep, ConnectorName, Services, ServicesDep
from connect.node.rest.limits import ASKING_OTHERS
from connect.operations.dead_letter_replay import ReplayChoice
from connect.operations.dead_letter_topic import NoDeadLetterError
from connect.redaction.secret_values import KNOWN

router = APIRouter(
    prefix="/icefloe/v1/connectors/{name}", route_class=ApiRoute, tags=["operations"]
)

_READ: Final = rule("read", "connector", turns=ASKING_OTHERS)
_OPERATE: Final = rule("operate", "connector", turns=ASKING_OTHERS)
_ADMIN: Final = rule("admin", "connector", turns=ASKING_OTHERS)
_KEPT_NAMES: Final = frozenset({"connector"})

Partition: TypeAlias = Annotated[int, Path(ge=0, le=o.PARTITION_MAX)]
Offset: TypeAlias = Annotated[int, Path(ge=0, le=o.OFFSET_MAX)]


@router.get("/dead-letters/kinds", dependencies=[_READ], responses=errors(404, 503))
def read_dead_letter_kinds(name: ConnectorName, services: ServicesDep) -> o.DeadLetterKinds:
    """Count dead letters by stage, exception, table and source topic; reads the newest offsets."""
    with _errors():
        kinds = services.operations.dead_letter_kinds(_stored(services, name))
    return o.DeadLetterKinds.model_validate(_masked(kinds))


@router.get("/dead-letters/{partition}/{offset}", dependencies=[_READ], responses=errors(404, 503))
def read_dead_letter(
    name: ConnectorName, partition: Partition, offset: Offset, services: ServicesDep
) -> o.StoredDeadLetter:
    """Show one dead letter: its error headers and sizes, without its content."""
    letter = _dead_letter(services, name, partition, offset, with_content=False)
    return o.StoredDeadLetter.model_validate(letter)


@router.get(
    "/dead-letters/{partition}/{offset}/content",
    dependencies=[_ADMIN],
    responses=errors(404, 503),
)
def read_dead_letter_content(
    name: ConnectorName, partition: Partition, offset: Offset, services: ServicesDep
) -> o.DeadLetterContent:
    """Show one dead letter with its key, value and headers as text."""
    letter = _dead_letter(services, name, partition, offset, with_content=True)
    return o.DeadLetterContent.model_validate(letter)


@router.post("/dead-letters/replay", dependencies=[_OPERATE], responses=errors(404, 409, 503))
def replay_dead_letters(
    name: ConnectorName, body: o.ReplayRequest, services: ServicesDep
) -> o.Replayed:
    """Produce dead letters to the topics that they came from, each once, or plan that."""
    choice = ReplayChoice(
        frozenset(body.codes),
        frozenset(body.tables),
        body.topic,
        {end.partition: end.offset for end in body.ends} or None,
    )
    with _errors():
        replayed = services.operations.replay(
            _stored(services, name), choice, is_applied=body.apply
        )
    return o.Replayed.model_validate(_masked(replayed))


@router.post("/migration/check", dependencies=[_ADMIN], responses=errors(503))
def check_migration(
    name: ConnectorName, body: m.Configuration, caller: CallerDep, services: ServicesDep
) -> o.MigrationChecked:
    """Show what another sink left of a connector, and whether a start is safe."""
    config = _valid(services, caller, name, body.root)
    with _errors():
        report = services.operations.migration(config)
    return o.MigrationChecked.model_validate(_masked(report))


@router.post("/catalog/check", dependencies=[_ADMIN], responses=errors(503))
def check_catalog(
    name: ConnectorName, body: o.CatalogCheckRequest, caller: CallerDep, services: ServicesDep
) -> o.CatalogChecked:
    """Race commits on scratch tables of the catalog that a configuration names."""
    config = _valid(services, caller, name, body.config)
    with _errors():
        report = services.operations.catalog_check(
            config, races=body.races, namespace=body.namespace
        )
    return o.CatalogChecked.model_validate(_masked(report))


@router.post("/preview", dependencies=[_ADMIN], responses=errors(503))
def preview_connector(
    name: ConnectorName, body: o.PreviewRequest, caller: CallerDep, services: ServicesDep
) -> o.Previewed:
    """Show what a connector would make of a few records; nothing is written."""
    config = _valid(services, caller, name, body.config)
    with _errors():
        report = services.operations.preview(config, count=body.records, start=body.start)
    return o.Previewed.model_validate(_masked(report))


def _dead_letter(
    services: Services, name: str, partition: int, offset: int, *, with_content: bool
) -> Any:
    with _errors():
        config = _stored(services, name)
        return _masked(
            services.operations.dead_letter(config, partition, offset, with_content=with_content)
        )


def _stored(services: Services, name: str) -> dict[str, str]:
    with not_found(f"Connector {name} not found"):
        return {**services.handlers.connectors.definition(name).config, "name": name}


def _valid(
    services: Services, caller: Caller, name: str, config: Mapping[str, str | None]
) -> dict[str, str]:
    """Return the configuration if the caller could create it.

    Raises:
        ApiError: 400, with every error.
        UnavailableError: the node is starting and does not know the other connectors yet.
    """
    services.handlers.connectors.names()
    if config.get("name", name) != name:
        raise ApiError(
            400,
            f"Connector name configuration ({config['name']}) doesn't match connector name in the "
            f"URL ({name})",
        )
    return services.validator.valid({**config, "name": name}, caller)


def _masked(report: Mapping[str, Any]) -> Any:
    return KNOWN.masked(report, kept=_KEPT_NAMES)


@contextmanager
def _errors() -> Iterator[None]:
    """Map errors of an operation to answers."""
    try:
        yield
    except NoDeadLetterError as e:
        raise ApiError(404, e.message) from None
    except (Fenced, DataLost) as e:
        raise ApiError(409, str(e)) from None
    except CommitError as e:  # the catalog refuses: the check has no result
        raise ApiError(503, str(e)) from None
