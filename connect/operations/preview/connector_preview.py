"""A preview of a connector: a sample of its topics, taken through its configuration.

Rules of this file:
- A node runs a preview in a process of its own, with limits of time and memory: converters,
  transformations and regular expressions of a caller must not hold the node.
- Configuration and node properties reach that process by its standard input. Arguments are visible
  to every user of the machine.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from connect.clock import Clock, SystemClock
from connect.errors import ConfigError, IcefloeError, RetriableError
from connect.gateways.access_policy import AccessPolicy, install
from connect.gateways.ambient_variables import forget_credentials
from connect.operations.connector_clients import opened
from connect.operations.preview.preview_report import report
from connect.operations.preview.record_preview import preview
from connect.operations.preview.source_sample import Start, read_sample
from connect.redaction.secret_values import KNOWN

MEMORY_BYTES_MAX: Final = 2 * 2**30
ANSWER_BYTES_MAX: Final = 16 * 2**20


def preview_connector(
    raw: Mapping[str, str],
    node: Mapping[str, str],
    environ: Mapping[str, str],
    clock: Clock,
    *,
    count: int,
    start: Start,
    reserved: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return what a connector would make of a few records, as a JSON object.

    Args:
        raw: the connector's configuration, with its name.
        node: node properties.
        environ: for placeholders, as the properties allow.
        clock: bounds the time of reading.
        count: records at most.
        start: the oldest records, or the newest.
        reserved: as ``opened``.

    Raises:
        ConfigError: the configuration cannot work, or none of its topics exists.
        IcefloeError: broker or catalog do not answer, or refuse.
    """
    with opened(raw, node, environ, reserved, needs_snapshots=False) as direct:
        if not direct.partitions:
            raise ConfigError(
                f"no topic of connector {direct.config.name} exists: create it, or correct "
                "topics and topics.regex"
            )
        sample = read_sample(
            direct.admin, direct.reader, direct.partitions, clock, count=count, start=start
        )
        result = preview(direct.config, sample.records, direct.catalog.find)
    return report(direct.config, result, is_complete=sample.is_complete)


def preview_in_process(
    raw: Mapping[str, str],
    node: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    count: int,
    start: Start,
    timeout_s: float,
    reserved: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the same from a process of its own, which is killed when it takes too long.

    Raises:
        ConfigError: the configuration cannot work; the preview took too much time or memory.
        RetriableError: broker or catalog do not answer, or refuse.
    """
    request = {
        "raw": dict(raw),
        "node": dict(node),
        "reserved": sorted(reserved),
        "count": count,
        "start": start,
    }
    command = [sys.executable, "-P", "-m", "connect.operations.preview"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"the preview took longer than {timeout_s} s: ask for fewer records, or check the "
            "regular expressions of the configuration"
        ) from None
    if done.returncode:
        raise ConfigError(
            f"the preview needed more than {MEMORY_BYTES_MAX >> 20} MiB of memory, or failed: "
            "ask for fewer records"
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    error = answer.get("error")
    if error is None:
        return answer
    kind = ConfigError if error["is_usage"] else RetriableError
    raise kind(error["message"], code=error["code"])


def serve_preview() -> None:
    """Read a request from standard input, write its answer to standard output.

    What a caller's converters and transformations print goes to standard error.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    request = json.loads(sys.stdin.buffer.read())
    install(AccessPolicy.of(request["node"]))
    environ = dict(os.environ)
    forget_credentials(os.environ)
    try:
        answer = preview_connector(
            request["raw"],
            request["node"],
            environ,
            SystemClock(),
            count=request["count"],
            start=request["start"],
            reserved=frozenset(request["reserved"]),
        )
    except IcefloeError as e:
        error = {"is_usage": isinstance(e, ConfigError), "message": str(e), "code": e.code}
        answer = {"error": error}
    with answers:
        answers.write(answer_text(answer))


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return an answer as masked JSON of ASCII, or an error: the node must not hold a large one."""
    text = json.dumps(KNOWN.masked(answer, kept=frozenset({"connector"})))
    if len(text) <= ANSWER_BYTES_MAX:
        return text
    why = f"the preview has more than {ANSWER_BYTES_MAX >> 20} MiB: ask for fewer records"
    return json.dumps({"error": {"is_usage": True, "message": why, "code": "preview_too_large"}})
