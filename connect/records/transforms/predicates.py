"""Kafka's predicates, which select the records that a transformation applies to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from connect.config.key import REQUIRED, Key, all_of
from connect.java_compat.java_regex import compile_java_regex
from connect.model.records import SinkRecord
from connect.records.transforms.regex_router import valid_regex
from connect.records.transforms.transform import KAFKA, Options

Test = Callable[[SinkRecord], bool]


@dataclass(frozen=True, slots=True)
class PredicateDeclaration:
    """The declaration of a predicate.

    Attributes:
        name: simple class name.
        doc: condition under which it is true.
        make: builds the predicate function from typed options.
        keys: its configuration keys.
        needs_headers: whether it reads headers.
    """

    name: str
    doc: str
    make: Callable[[Options], Test]
    keys: tuple[Key, ...] = ()
    needs_headers: bool = False

    @property
    def class_name(self) -> str:
        """Return the full class name."""
        return f"{KAFKA}predicates.{self.name}"


def _not_empty(value: Any) -> str | None:
    return "String must be non-empty" if value == "" else None


def _has_header_key(options: Options) -> Test:
    name = options["name"]
    return lambda record: any(header.key == name for header in record.headers)


def _is_tombstone(options: Options) -> Test:
    del options
    return lambda record: record.value is None


def _topic_name_matches(options: Options) -> Test:
    regex = compile_java_regex(options["pattern"])
    results: dict[str, bool] = {}

    def test(record: SinkRecord) -> bool:
        topic = record.topic
        if topic not in results:
            if len(results) > 10_000:
                results.clear()
            results[topic] = regex.fullmatch(topic) is not None
        return results[topic]

    return test


PREDICATES: Final = (
    PredicateDeclaration(
        "HasHeaderKey",
        "True for records with a header of this name.",
        _has_header_key,
        (Key("name", "STRING", "The header's name.", REQUIRED, check=_not_empty),),
        needs_headers=True,
    ),
    PredicateDeclaration("RecordIsTombstone", "True for records with a null value.", _is_tombstone),
    PredicateDeclaration(
        "TopicNameMatches",
        "True if the regular expression matches the record's whole topic name.",
        _topic_name_matches,
        (
            Key(
                "pattern",
                "STRING",
                "A Java regular expression.",
                REQUIRED,
                check=all_of(_not_empty, valid_regex),
            ),
        ),
    ),
)
BY_NAME: Final[Mapping[str, PredicateDeclaration]] = {
    name: declared for declared in PREDICATES for name in (declared.class_name, declared.name)
}
