"""``/connector-plugins``: what is installed, its keys, and validation."""

from __future__ import annotations

import dataclasses

from connect.config import versions
from connect.config.keys import Key
from connect.config.plugins import Plugin, Plugins
from connect.config.validate import definition
from connect.errors import ConfigError
from connect.rest.bodies import as_config
from connect.rest.errors import ApiError
from connect.rest.judging import Judge
from connect.rest.routes import Answer, Call

REMOTE = "icefloe.remote"


class PluginList:
    """Endpoints of plugins."""

    def __init__(self, plugins: Plugins, judge: Judge) -> None:
        self._plugins = plugins
        self._judge = judge

    def list(self, call: Call) -> Answer:
        """``GET /connector-plugins``; without ``connectorsOnly=false`` connectors alone."""
        given = call.values("connectorsOnly")
        is_short = not given or given[0] == "" or given[0].lower() == "true"
        shown = self._plugins.of("sink", "source") if is_short else self._plugins.all()
        return Answer(200, [_entry(plugin) for plugin in shown])

    def keys(self, call: Call) -> Answer:
        """``GET /connector-plugins/<class>/config``."""
        name = call.path["plugin"]
        plugin = self._plugins.find(name)
        if plugin is None:
            raise ApiError(404, f"Unknown plugin {name}.")
        wanted = call.values("version")
        if wanted and plugin.version is not None:
            try:
                why = versions.mismatch(plugin.class_name, wanted[0], plugin.version)
            except ConfigError:
                raise ApiError(400, f"Invalid version specification: {wanted[0]}") from None
            if why is not None:
                raise ApiError(400, why)
        return Answer(200, [definition(key) for key in _keys(plugin)])

    def validate(self, call: Call) -> Answer:
        """``PUT /connector-plugins/<class>/config/validate``: 200 also with errors."""
        asked = call.path["plugin"]
        config = as_config(call.json())
        given = config.get("connector.class")
        if given is not None and not _full(given).endswith(_full(asked)):
            raise ApiError(
                400, f"Included connector type {given} does not match request type {asked}"
            )
        plugin = self._judge.plugin_of(config)
        is_whole = call.flag(REMOTE, default=True)
        judge = self._judge.whole if is_whole else self._judge.quick
        return Answer(200, judge(plugin, config, call.caller).to_json())


def _full(name: str) -> str:
    return name if name.endswith("Connector") else name + "Connector"


def _keys(plugin: Plugin) -> list[Key]:
    """The plugin's keys; the defaults of converters are the node's, so none is shown."""
    found = list(plugin.keys)
    if plugin.type in {"sink", "source"}:
        for key in plugin.framework:
            if key.name == "connector.plugin.version":
                found.append(dataclasses.replace(key, default=plugin.version))
            elif key.name.endswith(".converter"):
                found.append(dataclasses.replace(key, default=None))
            else:
                found.append(key)
    return found


def _entry(plugin: Plugin) -> dict[str, str]:
    entry = {"class": plugin.class_name, "type": plugin.type}
    return entry if plugin.version is None else {**entry, "version": plugin.version}
