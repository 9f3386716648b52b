"""Transformations and predicates against recordings of the Java libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from connect.config.connector import PredicateConfig, TransformConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import Date, Header, SinkRecord, Struct, Time, Timestamp
from connect.records.transforms.transform_chain import Chain, predicate_of
from connect.validation.parse import parse
from tests.golden import records_model as model
from tests.golden.records_rules import Case, Result

RULES: tuple[tuple[str, Callable[[Case, str], bool]], ...] = (
    (
        "text after a JSON document is refused",
        lambda case, difference: (
            "JsonToMap" in case.get("transform", "")
            and "text after the JSON document" in difference
        ),
    ),
    (
        "each of two metadata transformations has its own settings",
        lambda case, _: str(case["config"]).count("KafkaMetadataTransform") > 1,
    ),
)
_BASE = {
    "name": "c",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
    "iceberg.catalog.type": "sql",
}
# the part of an error text that only Java has begins at one of these
_JAVA_SPECIFIC = re.compile(r"org\.apache|java\.|@|Unclosed|Not a |\n|Unknown configuration")


def record_of(source: Mapping[str, Any]) -> SinkRecord:
    """A recorded record in our model."""
    key_schema, key = _side(source, "key")
    value_schema, value = _side(source, "value")
    headers = tuple(_header(header) for header in source["headers"])
    return SinkRecord(
        source["topic"],
        source["partition"],
        source["offset"],
        source["timestamp"],
        key,
        key_schema,
        value,
        value_schema,
        headers,
    )


def _side(source: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    given = source[name]
    if source["schemas"] and given is not None:
        return model.with_schema(given)
    return None, model.plain(given)


def _header(source: Mapping[str, Any]) -> Header:
    schema = model.schema_of(source["schema"])
    return Header(source["key"], model.payload(schema, source["value"]), schema)


def same_record(ours: SinkRecord | None, theirs: SinkRecord | None) -> str:
    """What differs between two records; empty when nothing does."""
    if ours is None or theirs is None:
        return "" if ours is theirs else f"{ours} for {theirs}"
    differences = [
        name
        for name in ("topic", "partition", "offset", "timestamp_ms")
        if getattr(ours, name) != getattr(theirs, name)
    ]
    for name in ("key", "value"):
        schema = getattr(ours, f"{name}_schema")
        wanted = getattr(theirs, f"{name}_schema")
        if model.schema_json(schema) != model.schema_json(wanted):
            differences.append(f"{name} schema")
        if not same_value(getattr(ours, name), getattr(theirs, name), typed=schema is not None):
            differences.append(name)
    pairs = zip(ours.headers, theirs.headers, strict=False)
    if len(ours.headers) != len(theirs.headers) or not all(
        a.key == b.key
        and model.schema_json(a.schema) == model.schema_json(b.schema)
        and (
            same_value(a.value, b.value, typed=a.schema is not None)
            or (isinstance(a.value, list | dict) and model.alike(a.value, b.value))
        )
        for a, b in pairs
    ):
        differences.append("headers")
    return f"{', '.join(differences)}: {ours} for {theirs}" if differences else ""


def same_value(ours: Any, theirs: Any, *, typed: bool) -> bool:
    """Equal values; without schema Java has one class for dates, times and instants."""
    if not typed:
        ours, theirs = _instants(ours), _instants(theirs)
    if isinstance(ours, Struct) and isinstance(theirs, Struct):
        return set(ours.values) == set(theirs.values) and all(
            same_value(ours.values[n], theirs.values[n], typed=True) for n in ours.values
        )
    return model.same(ours, theirs)


def _instants(value: Any) -> Any:
    if isinstance(value, Date):
        return Timestamp(value.days * 86_400_000)
    if isinstance(value, Time):
        return Timestamp(value.millis)
    if isinstance(value, dict):
        return {k: _instants(v) for k, v in value.items()}
    return [_instants(v) for v in value] if isinstance(value, list) else value


def compare_transform(case: Case) -> Result:
    """One case of ``transforms/``, of a single one or of ``chains``."""
    try:
        if "transform" in case:
            chain = Chain((TransformConfig("a", case["transform"], case["config"]),))
        else:
            chain = Chain(parse({**_BASE, **case["config"]}).transforms)
    except ConfigError as error:
        return _configured(case, error)
    recorded = case["expected"].get("error")
    try:
        transformed = chain.apply(record_of(case["input"]))
    except RecordError as error:
        is_same = recorded is not None and recorded["stage"] == "apply"
        is_same = is_same and error.stage == "TRANSFORMATION"
        return _judged(case, "" if is_same else f"{error} for {case['expected']!s:.300}")
    ours = transformed[0] if transformed else None
    if recorded is not None:
        return _judged(case, f"{ours} for {recorded}")
    theirs = case["expected"]["record"]
    return _judged(case, same_record(ours, None if theirs is None else record_of(theirs)))


def compare_predicate(case: Case) -> Result:
    """One case of ``predicates/``."""
    try:
        test = predicate_of(PredicateConfig("p", case["predicate"], case["config"]))
    except ConfigError as error:
        return _configured(case, error)
    result = test(record_of(case["input"]))
    is_same = result == case["expected"].get("result")
    return _judged(case, "" if is_same else f"{result} for {case['expected']}")


def _judged(case: Case, difference: str) -> Result:
    if not difference:
        return Result(case["name"], "agreed")
    for name, holds in RULES:
        if holds(case, difference):
            return Result(case["name"], "by rule", name)
    return Result(case["name"], "failing", difference)


def _configured(case: Case, error: ConfigError) -> Result:
    """Java must report the same configuration error; our text contains Java's common part."""
    recorded = case["expected"].get("error")
    is_unseen = recorded is None or recorded["stage"] == "apply"
    if is_unseen and any(key.endswith("array_handling_mode") for key in case["config"]):
        return Result(case["name"], "by rule", "a mode that is none is an error")
    if recorded is None or recorded["stage"] != "configure":
        return Result(case["name"], "failing", f"{error} for {case['expected']!s:.300}")
    expected_text = _bare(_JAVA_SPECIFIC.split(recorded["message"])[0].strip(" :"))
    ours = _bare(error.message)
    if expected_text in ours:
        return Result(case["name"], "agreed")
    if "Not a " in recorded["message"] and "Missing required configuration" in ours:
        return Result(case["name"], "by rule", "a missing type is missing, as in REST answers")
    return Result(case["name"], "failing", f"{ours!r} for {recorded['message']!r}")


def _bare(text: str) -> str:
    """Sentences with and without the prefix of the alias are the same."""
    return re.sub(r"(transforms|predicates)\.\w+\.", "", text)
