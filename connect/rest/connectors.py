"""``/connectors``: create, read, change, delete, run, restart.

Sentences and codes are those recorded from Kafka Connect 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from connect.config.plugins import Plugins
from connect.rest.bodies import as_config, as_object, as_text
from connect.rest.errors import ApiError
from connect.rest.herder_api import (
    ConnectorInfo,
    ConnectorStatus,
    HerderApi,
    NodeInfo,
    TargetState,
    TaskStatus,
    UnknownConnectorError,
    UnknownTaskError,
)
from connect.rest.judging import Judge
from connect.rest.routes import Answer, Call
from connect.secret_values import KNOWN

_INITIAL: Mapping[str, TargetState] = {
    "RUNNING": "STARTED",
    "PAUSED": "PAUSED",
    "STOPPED": "STOPPED",
}
_TASK_ID = re.compile(r"[+-]?[0-9]{1,10}")
_JAVA_BLANKS = "".join(map(chr, range(33)))


class Connectors:
    """Endpoints of connectors.

    Args:
        herder: what they act on.
        node: this node.
        plugins: what configurations may name.
        judge: judges configurations.
    """

    def __init__(self, herder: HerderApi, node: NodeInfo, plugins: Plugins, judge: Judge) -> None:
        self._herder = herder
        self._node = node
        self._plugins = plugins
        self._judge = judge

    # ------------------------------------------------------------------ bodies

    def info(self, connector: ConnectorInfo) -> dict[str, Any]:
        """The body of ``GET /connectors/<name>``."""
        return {
            "name": connector.name,
            "config": dict(connector.config),
            "tasks": [{"connector": connector.name, "task": task} for task in connector.task_ids],
            "type": self._type(connector.config),
        }

    def _status(self, status: ConnectorStatus, config: Mapping[str, str]) -> dict[str, Any]:
        version = self._version(config)
        own: dict[str, Any] = {"state": status.state, "worker_id": status.worker_id}
        if version is not None:
            own["version"] = version
        if status.trace is not None:
            own["trace"] = KNOWN.mask(status.trace)
        return {
            "name": status.name,
            "connector": own,
            "tasks": [_task_status(task, version) for task in status.tasks],
            "type": self._type(config),
        }

    def _version(self, config: Mapping[str, str]) -> str | None:
        plugin = self._plugins.connector(config.get("connector.class", ""))
        return None if plugin is None else plugin.version

    def _type(self, config: Mapping[str, str]) -> str:
        plugin = self._plugins.connector(config.get("connector.class", ""))
        return "unknown" if plugin is None else plugin.type

    def _location(self, name: str) -> dict[str, str]:
        path = quote(name, safe="!$&'()*+,;=:@-._~")
        return {"location": f"{self._node.advertised_url}/connectors/{path}"}

    # ------------------------------------------------------------------ endpoints

    def list(self, call: Call) -> Answer:
        """``GET /connectors``, with ``expand``."""
        names = [n for n in self._herder.connectors() if call.caller.may("read", n)]
        if not any(key == "expand" for key, _ in call.query):
            return Answer(200, names)
        wanted = dict.fromkeys(call.values("expand"))
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = self._expanded(name, wanted)
            except UnknownConnectorError:
                continue  # deleted meanwhile
        return Answer(200, found)

    def _expanded(self, name: str, wanted: Mapping[str, None]) -> dict[str, Any]:
        entry: dict[str, Any] = {}
        for what in wanted:
            info = self._herder.connector(name)
            if what == "info":
                entry["info"] = self.info(info)
            elif what == "status":
                entry["status"] = self._status(self._herder.status(name), info.config)
        return entry

    def create(self, call: Call) -> Answer:
        """``POST /connectors``."""
        body = as_object(call.json(), "the request", ("name", "config", "initial_state"))
        name = (as_text(body.get("name"), '"name"') or "").strip(_JAVA_BLANKS)
        if not call.caller.may("admin", name):
            raise ApiError(403, f"{call.caller.name} lacks the role admin for connector {name}")
        config = as_config(body.get("config"), '"config"')
        given = as_text(body.get("initial_state"), '"initial_state"')
        if given is not None and given.upper() not in _INITIAL:
            raise ApiError(400, f"{given!r} is no initial state; known: {', '.join(_INITIAL)}")
        initial = None if given is None else _INITIAL[given.upper()]
        valid = self._judge.valid(_named(config, name), call.caller)
        created = self._herder.create_connector(name, valid, initial_state=initial)
        return Answer(201, self.info(created), self._location(name))

    def read(self, call: Call) -> Answer:
        """``GET /connectors/<name>``."""
        return Answer(200, self.info(self._known(call)))

    def config(self, call: Call) -> Answer:
        """``GET /connectors/<name>/config``."""
        return Answer(200, dict(self._known(call).config))

    def put_config(self, call: Call) -> Answer:
        """``PUT /connectors/<name>/config``."""
        name = call.path["name"]
        valid = self._judge.valid(_named(as_config(call.json()), name), call.caller)
        is_new, info = self._herder.put_connector(name, valid)
        if is_new:
            return Answer(201, self.info(info), self._location(name))
        return Answer(200, self.info(info))

    def patch_config(self, call: Call) -> Answer:
        """``PATCH /connectors/<name>/config``: null removes a key; the name stays."""
        patch = as_config(call.json(), "the patch")
        current = self._known(call)
        name = current.name
        if patch.get("name") is not None:
            _named(patch, name)
        changed: dict[str, str | None] = {**current.config, **patch}
        merged = {k: v for k, v in changed.items() if v is not None}
        _, info = self._herder.put_connector(name, self._judge.valid(merged, call.caller))
        return Answer(200, self.info(info))

    def delete(self, call: Call) -> Answer:
        """``DELETE /connectors/<name>``."""
        name = self._known(call).name
        self._herder.delete_connector(name)
        return Answer(204)

    def status(self, call: Call) -> Answer:
        """``GET /connectors/<name>/status``."""
        name = call.path["name"]
        try:
            status, info = self._herder.status(name), self._herder.connector(name)
        except UnknownConnectorError:
            raise ApiError(404, f"No status found for connector {name}") from None
        return Answer(200, self._status(status, info.config))

    def pause(self, call: Call) -> Answer:
        """``PUT /connectors/<name>/pause``."""
        return self._target(call, "PAUSED", 202)

    def resume(self, call: Call) -> Answer:
        """``PUT /connectors/<name>/resume``."""
        return self._target(call, "STARTED", 202)

    def stop(self, call: Call) -> Answer:
        """``PUT /connectors/<name>/stop``."""
        return self._target(call, "STOPPED", 204)

    def _target(self, call: Call, state: TargetState, status: int) -> Answer:
        name = call.path["name"]
        try:
            self._herder.set_target_state(name, state)
        except UnknownConnectorError:
            raise ApiError(404, f"Unknown connector {name}") from None
        return Answer(status)

    def restart(self, call: Call) -> Answer:
        """``POST /connectors/<name>/restart``: 204 for the plain one, else 202 with a status."""
        name = call.path["name"]
        with_tasks, only_failed = call.flag("includeTasks"), call.flag("onlyFailed")
        try:
            status = self._herder.restart_connector(
                name, include_tasks=with_tasks, only_failed=only_failed
            )
            config = self._herder.connector(name).config
        except UnknownConnectorError:
            raise ApiError(404, f"Unknown connector: {name}") from None
        if not with_tasks and not only_failed:
            return Answer(204)
        return Answer(202, self._status(status, config))

    def tasks(self, call: Call) -> Answer:
        """``GET /connectors/<name>/tasks``."""
        name = self._known(call).name
        configs = self._herder.task_configs(name)
        body = [
            {"id": {"connector": name, "task": task}, "config": dict(configs[task])}
            for task in sorted(configs)
        ]
        return Answer(200, body)

    def task_status(self, call: Call) -> Answer:
        """``GET /connectors/<name>/tasks/<task>/status``."""
        name, task = call.path["name"], _task_id(call)
        try:
            found = next(t for t in self._herder.status(name).tasks if t.id == task)
            config = self._herder.connector(name).config
        except (UnknownConnectorError, StopIteration):
            raise ApiError(404, f"No status found for task {name}-{task}") from None
        return Answer(200, _task_status(found, self._version(config)))

    def restart_task(self, call: Call) -> Answer:
        """``POST /connectors/<name>/tasks/<task>/restart``."""
        name, task = call.path["name"], _task_id(call)
        try:
            self._herder.restart_task(name, task)
        except UnknownConnectorError:
            raise ApiError(404, f"Unknown connector: {name}") from None
        except UnknownTaskError:
            raise ApiError(404, f"Unknown task: {name}-{task}") from None
        return Answer(204)

    def internal_tasks(self, call: Call) -> Answer:
        """``POST /connectors/<name>/tasks``: Kafka's workers talk so among each other."""
        del call
        raise ApiError(400, "Internal request missing required signature")

    def _known(self, call: Call) -> ConnectorInfo:
        name = call.path["name"]
        try:
            return self._herder.connector(name)
        except UnknownConnectorError:
            raise ApiError(404, f"Connector {name} not found") from None


def _named(config: Mapping[str, str | None], name: str) -> dict[str, str | None]:
    """The configuration with its name in it.

    Raises:
        ApiError: 400, it has another.
    """
    given = config.get("name", name)
    if given != name:
        raise ApiError(
            400,
            f"Connector name configuration ({given}) doesn't match connector name in the URL "
            f"({name})",
        )
    return {**config, "name": name}


def _task_status(task: TaskStatus, version: str | None) -> dict[str, Any]:
    body: dict[str, Any] = {"id": task.id, "state": task.state, "worker_id": task.worker_id}
    if version is not None:
        body["version"] = version
    if task.trace is not None:
        body["trace"] = KNOWN.mask(task.trace)
    return body


def _task_id(call: Call) -> int:
    text = call.path["task"]
    if not _TASK_ID.fullmatch(text) or not -(2**31) <= int(text) < 2**31:
        raise ApiError(404, "HTTP 404 Not Found")
    return int(text)
