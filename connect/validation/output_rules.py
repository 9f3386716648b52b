"""Rules for outputs together with other keys of the connector."""

from __future__ import annotations

from collections.abc import Iterator

from connect.config.key import invalid
from connect.config.keys.iceberg_keys import CONTROL_TOPIC
from connect.config.output_config import OUTPUT_PREFIX, OUTPUTS
from connect.errors import ConfigError
from connect.java_compat.java_regex import compile_java_regex, fault
from connect.validation.config_view import ConfigView
from connect.validation.key_checks import nearest


def output_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """No `icefloe.output.<name>.topic` is a topic that the connector uses otherwise."""
    control = view[CONTROL_TOPIC]
    dead_letters = view["errors.deadletterqueue.topic.name"]
    for name in view[OUTPUTS] or ():
        key = f"{OUTPUT_PREFIX}{name}.topic"
        topic = (view.raw.get(key) or "").strip()
        if not topic or view.has_placeholder(key):
            continue
        if topic == control:
            yield key, invalid(key, topic, "it is the control topic: set another topic")
        elif topic == dead_letters:
            yield key, invalid(key, topic, "it is the dead letter topic: set another topic")
        elif topic in (view["topics"] or ()) or _is_matched(view["topics.regex"], topic):
            yield key, invalid(key, topic, "the connector reads it: set another topic")


def outputs_only_add(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.outputs` needs rows that are only added: no upsert mode and no `cdc-field`."""
    if view[OUTPUTS] and view.is_row_level:
        why = "rows of this connector replace and delete others; use a second connector for outputs"
        yield OUTPUTS, invalid(OUTPUTS, ",".join(view[OUTPUTS]), why)


def output_tables(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.output.<name>.tables` names tables that the connector writes to."""
    tables = {*view.tables, *view.topic_tables.values()}
    if not tables or view.named_by_record:
        return
    for name in view[OUTPUTS] or ():
        key = f"{OUTPUT_PREFIX}{name}.tables"
        for table in filter(None, (view.raw.get(key) or "").split(",")):
            full = view.qualified(table.strip())
            if full not in tables:
                yield key, f"The connector does not write to table {full}.{nearest(full, tables)}"


def _is_matched(pattern: str | None, topic: str) -> bool:
    if not pattern or fault(pattern) is not None:
        return False
    try:
        return compile_java_regex(pattern).fullmatch(topic) is not None
    except ConfigError:  # another check reports an expression that takes too long
        return False
