"""``/connector-plugins``: installed plugins, their keys, and validation."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query, Response

from connect.config import version_range
from connect.config.key import Key
from connect.errors import ConfigError
from connect.node.rest import models as m
from connect.node.rest.access import rule
from connect.node.rest.api_errors import ApiError
from connect.node.rest.api_route import ApiRoute, errors
from connect.node.rest.dependencies import CallerDep, JavaFlag, ServicesDep
from connect.node.rest.limits import ASKING_OTHERS
from connect.validation.plugins import Plugin
from connect.validation.validate import definition

WARNINGS_MAX = 20
_WARNING_CHARACTERS_MAX = 300

router = APIRouter(prefix="/connector-plugins", route_class=ApiRoute, tags=["plugins"])


@router.get("", dependencies=[rule("read", "any")], response_model_exclude_none=True)
def list_plugins(
    services: ServicesDep,
    connectors_only: Annotated[
        str, Query(alias="connectorsOnly", description="false lists every plugin")
    ] = "true",
) -> m.PluginInfos:
    """List the installed plugins; without ``connectorsOnly=false`` connectors alone."""
    is_short = connectors_only.lower() in {"", "true"}
    listed = services.plugins.of("sink", "source") if is_short else services.plugins.all()
    return m.PluginInfos([_info(plugin) for plugin in listed])


@router.get("/{plugin}/config", dependencies=[rule("read", "any")], responses=errors(404))
def read_plugin_keys(
    plugin: str,
    services: ServicesDep,
    version: Annotated[str | None, Query(description="the required version")] = None,
) -> m.KeyDefinitions:
    """List the configuration keys of a plugin."""
    installed = services.plugins.find(plugin)
    if installed is None:
        raise ApiError(404, f"Unknown plugin {plugin}.")
    if version is not None and installed.version is not None:
        try:
            why = version_range.mismatch(installed.class_name, version, installed.version)
        except ConfigError:
            raise ApiError(400, f"Invalid version specification: {version}") from None
        if why is not None:
            raise ApiError(400, why)
    return m.KeyDefinitions.model_validate([definition(key) for key in _keys(installed)])


@router.put("/{plugin}/config/validate", dependencies=[rule("admin", "any", turns=ASKING_OTHERS)])
def validate_config(  # noqa: PLR0917 - FastAPI passes all by name
    plugin: str,
    body: m.Configuration,
    response: Response,
    caller: CallerDep,
    services: ServicesDep,
    is_remote: Annotated[
        JavaFlag,
        Query(alias="icefloe.remote", description="false asks no broker, catalog or registry"),
    ] = True,
) -> m.ValidationResult:
    """Validate a configuration; the answer is 200 with errors, too. Warnings are headers."""
    name = body.root.get("name")
    # the operator grants locations, tables and topics by the connector's name
    if name and not caller.may("admin", name):
        raise ApiError(403, f"{caller.name} lacks the role admin for connector {name}")
    class_name = body.root.get("connector.class")
    if class_name is not None and not _full(class_name).endswith(_full(plugin)):
        raise ApiError(
            400, f"Included connector type {class_name} does not match request type {plugin}"
        )
    plugin_class = services.validator.plugin_of(body.root)
    validate = services.validator.whole if is_remote else services.validator.quick
    result = validate(plugin_class, body.root, caller)
    for warning in result.warnings[:WARNINGS_MAX]:
        response.headers.append("warning", warning_header(warning))
    return m.ValidationResult.model_validate(result.to_json())


def warning_header(text: str) -> str:
    """Return a value of the header ``Warning`` (RFC 7234, 5.5), as Kubernetes' API sends it.

    The body of the answer is Kafka's and has no place for a warning.
    """
    ascii_text = text.encode("ascii", "backslashreplace").decode()
    printable = "".join(c if c.isprintable() else " " for c in ascii_text)
    escaped = printable[:_WARNING_CHARACTERS_MAX].replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def _full(name: str) -> str:
    return name if name.endswith("Connector") else name + "Connector"


def _keys(plugin: Plugin) -> list[Key]:
    """The plugin's keys; the defaults of converters are the node's, so none is shown."""
    keys = list(plugin.keys)
    if plugin.type in {"sink", "source"}:
        for key in plugin.framework:
            if key.name == "connector.plugin.version":
                keys.append(dataclasses.replace(key, default=plugin.version))
            elif key.name.endswith(".converter"):
                keys.append(dataclasses.replace(key, default=None))
            else:
                keys.append(key)
    return keys


def _info(plugin: Plugin) -> m.PluginInfo:
    info = {"class": plugin.class_name, "type": plugin.type, "version": plugin.version}
    return m.PluginInfo.model_validate(info)
