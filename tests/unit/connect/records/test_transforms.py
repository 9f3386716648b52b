"""Transformations: their examples, their pages, and what holds for all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connect.config.connector import ConverterConfig, PredicateConfig, TransformConfig
from connect.errors import ConfigError, RecordError
from connect.generated_docs.transform_pages import pages
from connect.model.records import Header, SinkRecord, Struct
from connect.records.converters import converter
from connect.records.transforms.date_format import DateFormat
from connect.records.transforms.transform import Declaration
from connect.records.transforms.transform_chain import Chain
from connect.records.transforms.transform_classes import DECLARATIONS, find, names_of
from connect.validation.plugins import BUILT_IN

ROOT = Path(__file__).parents[4]
SMT = "org.apache.kafka.connect.transforms."
OF_RECORDS = [declared for declared in DECLARATIONS if not declared.is_query]
JSON = converter(ConverterConfig("JsonConverter", {}), "value")


def record_of(parts: Mapping[str, Any]) -> SinkRecord:
    """The record that an example shows."""
    sides: dict[str, tuple[Any, Any]] = {}
    for side in ("key", "value"):
        given_side = parts.get(side)
        is_typed = parts.get("schemas", False) and given_side is not None
        sides[side] = (
            JSON.to_connect("orders", (), json.dumps(given_side).encode())
            if is_typed
            else (None, given_side)
        )
    return SinkRecord(
        parts.get("topic", "orders"),
        parts.get("partition", 2),
        parts.get("offset", 42),
        parts.get("timestamp", 1_700_000_000_123),
        sides["key"][1],
        sides["key"][0],
        sides["value"][1],
        sides["value"][0],
        tuple(Header(k, v) for k, v in parts.get("headers", {}).items()),
    )


def plain(value: Any) -> Any:
    """Structs as maps."""
    if isinstance(value, Struct):
        return {name: plain(inner) for name, inner in value.values.items()}
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def text(value: Any) -> Any:
    """Instants as ISO text, as pages show them."""
    if isinstance(value, datetime):
        return value.isoformat()
    return {name: text(inner) for name, inner in value.items()} if type(value) is dict else value


def displayed(record: SinkRecord, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The same parts of a record as an example shows."""
    known = {
        "value": text(plain(record.value)),
        "key": plain(record.key),
        "topic": record.topic,
        "headers": {header.key: header.value for header in record.headers},
        "schema_name": record.value_schema.name if record.value_schema else None,
    }
    return {name: known[name] for name in parts}


def chain(class_name: str, config: Mapping[str, str], **more: Any) -> Chain:
    return Chain((TransformConfig("a", class_name, dict(config), **more),))


@pytest.mark.parametrize("declared", OF_RECORDS, ids=lambda declared: declared.name)
def test_the_example_of_each_page_is_correct(declared: Declaration) -> None:
    """The example of each page has the documented result."""
    example = declared.example
    transformed = chain(declared.class_names[-1], example.config).apply(record_of(example.before))
    if example.after is None:
        assert transformed == ()
        return
    wanted = [example.after] if isinstance(example.after, Mapping) else list(example.after)
    assert [
        displayed(record, parts) for record, parts in zip(transformed, wanted, strict=True)
    ] == wanted


@pytest.mark.parametrize("declared", DECLARATIONS, ids=lambda declared: declared.name)
def test_chain_and_validation_know_the_same_classes(declared: Declaration) -> None:
    """With the same keys."""
    for name in names_of(declared):
        found = find(name)
        plugin = BUILT_IN.find(name, "transformation")
        assert found is not None
        assert plugin is not None
        assert plugin.keys == found[0].keys


def test_pages_are_up_to_date() -> None:
    """`make docs` would change nothing."""
    folder = ROOT / "docs/reference/transforms"
    assert {name: (folder / name).read_text("utf-8") for name in pages()} == pages()


def test_errors_name_the_alias() -> None:
    """The error of a rejected record contains the transformation's alias and no content."""
    with pytest.raises(RecordError) as refused:
        chain(f"{SMT}Cast$Value", {"spec": "a:int32"}).apply(record_of({"value": {"a": "secret"}}))
    assert refused.value.stage == "TRANSFORMATION"
    assert refused.value.coordinates == {"transform": "a"}
    assert "secret" not in str(refused.value)


def test_unknown_classes_are_errors_of_the_configuration() -> None:
    """The error of an unknown class or predicate contains its name."""
    with pytest.raises(ConfigError, match=r"example\.Nope"):
        chain("example.Nope", {})
    with pytest.raises(ConfigError, match=r"example\.No"):
        chain(f"{SMT}Filter", {}, predicate=PredicateConfig("p", "example.No"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@pytest.mark.parametrize("declared", OF_RECORDS, ids=lambda declared: declared.name)
@settings(max_examples=20, deadline=None)
@given(value=JSON_VALUES | st.dictionaries(st.sampled_from(["a", "id", "op", "at"]), JSON_VALUES))
def test_any_value_is_transformed_or_refused(declared: Declaration, value: Any) -> None:
    """No value raises anything but a RecordError, and none is changed in place."""
    before = repr(value)
    applied = chain(declared.class_names[-1], declared.example.config)
    for side in ({"value": value}, {"value": {}, "key": value}):
        try:
            transformed = applied.apply(record_of(side))
        except RecordError as error:
            assert error.stage == "TRANSFORMATION"  # noqa: PT017 - either outcome is right
        else:
            assert all(isinstance(record, SinkRecord) for record in transformed)
    assert repr(value) == before


@given(millis=st.integers(-(10**13), 10**14))
def test_formatted_dates_can_be_parsed(millis: int) -> None:
    """If the pattern has all parts of a time."""
    written = DateFormat("yyyy-MM-dd HH:mm:ss.SSS Z")
    if 0 < millis + 62_135_596_800_000 < 315_537_897_600_000:
        assert written.parse(written.format(millis)) == millis


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("EEE, d MMM yyyy h:mm a", "Tue, 14 Nov 2023 10:13 PM"),
        ("yyyy.DDD kk''mm", "2023.318 22'13"),
        ("EEEE MMMM yy u XXX z", "Tuesday November 23 2 Z UTC"),
    ],
)
def test_pattern_letters_have_the_texts_of_java(pattern: str, text: str) -> None:
    """Letters are written as Java writes them."""
    assert DateFormat(pattern).format(1_700_000_000_123) == text


@pytest.mark.parametrize("pattern", ["yyyy-QQ", "yyyy'T", "b"])
def test_invalid_patterns_are_configuration_errors(pattern: str) -> None:
    """Unknown letters and unterminated quotes."""
    with pytest.raises(ConfigError):
        DateFormat(pattern)


def one(name: str, value: Any, **config: str) -> Any:
    """The value that one of our own transformations makes; None when it drops the record."""
    options = {key.replace("__", "."): text for key, text in config.items()}
    transformed = chain(f"icefloe.transforms.{name}", options).apply(record_of({"value": value}))
    return transformed[0].value if transformed else None


AT = datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)


@pytest.mark.parametrize(
    ("given", "config", "wanted"),
    [
        ("2023-11-14T22:13:20.123456Z", {}, AT),
        ("2023-11-14 23:13:20.123456+01:00", {"timezone": "Asia/Tokyo"}, AT),
        ("2023-11-15T07:13:20.123456", {"timezone": "Asia/Tokyo"}, AT),
        (1_700_000_000_123_456, {"format": "epoch", "unit": "us"}, AT),
        ("14.11.2023 22:13", {"format": "dd.MM.yyyy HH:mm"}, AT.replace(second=0, microsecond=0)),
        ("14.11.2023 22:13 or so", {"format": "dd.MM.yyyy HH:mm"}, None),
        ("30.02.2023 22:13", {"format": "dd.MM.yyyy HH:mm"}, None),
        ("14.13.2023 22:13", {"format": "dd.MM.yyyy HH:mm"}, None),
        ("yesterday", {}, None),
        (5, {}, None),
        ("5", {"format": "epoch"}, None),
        (2**62, {"format": "epoch", "unit": "s"}, None),
    ],
)
def test_parse_timestamp_converts_texts(
    given: Any, config: dict[str, str], wanted: datetime | None
) -> None:
    """Other values are refused, or null if configured."""
    lenient = one("ParseTimestamp", {"a": {"t": given}}, fields="a.t,b", invalid="null", **config)
    assert lenient == {"a": {"t": wanted}}
    if wanted is None:
        with pytest.raises(RecordError):
            one("ParseTimestamp", {"a": {"t": given}}, fields="a.t", **config)


@pytest.mark.parametrize("is_typed", [False, True])
def test_changes_of_mongodb_are_rows_of_their_collection(is_typed: bool) -> None:
    """Their source names a collection, and no table."""
    text = {"type": "string", "optional": True}
    fields = [
        *({"field": name, **text} for name in ("before", "after", "updateDescription", "op")),
        {"field": "ts_ms", "type": "int64"},
        {
            "field": "source",
            "type": "struct",
            "fields": [{"field": name, **text} for name in ("db", "collection")],
        },
    ]
    source = {"db": "shop", "collection": "orders"}
    change = {"op": "c", "ts_ms": 1, "source": source}
    parts: dict[str, Any] = {"value": {**change, "after": {"_id": 1, "qty": 3}}}
    transforms = ["DebeziumTransform"]
    if is_typed:
        transforms.insert(0, "MongoDebeziumTransform")
        key = {"type": "struct", "name": "s.Key", "fields": [{"field": "id", "type": "string"}]}
        schema = {"type": "struct", "name": "s.Envelope", "fields": fields}
        value = {**change, "before": None, "after": '{"_id": 1, "qty": 3}'}
        parts = {
            "schemas": True,
            "key": {"schema": key, "payload": {"id": "1"}},
            "value": {"schema": schema, "payload": {**value, "updateDescription": None}},
        }
    configs = [
        TransformConfig(name, f"org.apache.iceberg.connect.transforms.{name}", {})
        for name in transforms
    ]
    (changed,) = Chain(tuple(configs)).apply(record_of(parts))
    value = displayed(changed, {"value": None})["value"]
    assert (value["qty"], value["_cdc"]["target"]) == (3, "shop.orders")


def test_parse_json_converts_texts() -> None:
    """In place or in another field; invalid JSON is an error."""
    assert one("ParseJson", {"a": "[1,{}]"}, field="a") == {"a": [1, {}]}
    assert one("ParseJson", {"a": "1"}, field="a", target="b.c") == {"a": "1", "b": {"c": 1}}
    assert one("ParseJson", {"a": None}, field="a") == {"a": None}
    for bad in ("{", 5, "1 2"):
        with pytest.raises(RecordError):
            one("ParseJson", {"a": bad}, field="a")


def test_explode_makes_a_row_per_element() -> None:
    """With the other fields; an empty list has no rows."""
    exploded = chain("icefloe.transforms.Explode", {"field": "a.l", "key.field": "i"})

    def rows(value: Any) -> list[Any]:
        return [record.value for record in exploded.apply(record_of({"value": value}))]

    assert rows({"a": {"l": [1, 2], "x": 3}}) == [
        {"a": {"l": 1, "x": 3}, "i": 0},
        {"a": {"l": 2, "x": 3}, "i": 1},
    ]
    assert rows({"a": {"l": {"k": 1}}}) == [{"a": {"l": 1}, "i": "k"}]
    assert rows({"a": {"l": []}}) == rows({"b": 1}) == []
    assert one("Explode", {"b": 1}, field="l", keep__empty="true") == {"b": 1, "l": None}
    with pytest.raises(RecordError):
        rows({"a": {"l": 5}})


def test_later_transformations_receive_each_row() -> None:
    """They may drop it."""
    links = (
        TransformConfig("e", "icefloe.transforms.Explode", {"field": "l"}),
        TransformConfig("w", "icefloe.transforms.Jmespath", {"where": "l > `1`"}),
    )
    transformed = Chain(links).apply(record_of({"value": {"l": [1, 2, 3]}}))
    assert [record.value for record in transformed] == [{"l": 2}, {"l": 3}]


def test_jmespath_uses_the_original_record() -> None:
    """A failed expression refuses the record."""
    assert one("Jmespath", {"a": 1, "b": 2}, fields__a="b", fields__b="a") == {"a": 2, "b": 1}
    assert one("Jmespath", {"a": 1}, fields__x="kafka.[topic, offset]", keep="false") == {
        "x": ["orders", 42]
    }
    assert one("Jmespath", {"a": 1}, where="a == `2`") is None
    assert one("Jmespath", {"t": 1}, fields__t="epoch_seconds_to_iso8601(t)") == {
        "t": "1970-01-01T00:00:01Z"
    }
    with pytest.raises(RecordError) as refused:
        one("Jmespath", {"a": "secret"}, fields__x="abs(a)")
    assert "secret" not in str(refused.value)
    for bad in ({"fields__x": "a["}, {}):
        with pytest.raises(ConfigError):
            one("Jmespath", {"a": 1}, **bad)


def test_jmespath_leaves_fields_without_a_result_as_they_are() -> None:
    """With ``set-null=false``, also nested ones; ``substr`` takes a negative number as 0."""
    value = {"a": 1, "m": {"b": 2}}
    kept = {"set-null": "false", "fields__a": "gone", "fields__m__b": "gone"}
    assert one("Jmespath", value, **kept) == value
    assert one("Jmespath", {"a": 1}, fields__a="gone") == {"a": None}
    assert one("Jmespath", {"a": "William"}, fields__a="substr(a, `-3`, `4`)") == {"a": "Will"}
    assert one("Jmespath", {}, fields__kind="kafka.timestamp_type") == {"kind": -1}
