"""A connector's transformations, one after the other.

Rules of this file:
- A predicate sees the record as the transformations before have made it.
- A record that is dropped, or made into none, ends there; one made into several goes on as each.
- An error names the alias of the transformation that raised it; the whole record is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from connect.config.connector import PredicateConfig, TransformConfig
from connect.errors import ConfigError, RecordError
from connect.model.records import SinkRecord
from connect.records.transforms import predicates, transform_classes
from connect.records.transforms.chain_limits import RECORDS_MAX
from connect.records.transforms.transform import Apply, Declaration, Side, typed_options


@dataclass(frozen=True, slots=True)
class Link:
    """One transformation of a chain.

    Attributes:
        alias: the name the configuration gives it.
        declared: what it is.
        side: of the record.
        apply: the function.
        applies: whether the predicate lets a record through to it; None without one.
    """

    alias: str
    declared: Declaration
    side: Side
    apply: Apply
    applies: predicates.Test | None

    def run(self, record: SinkRecord) -> tuple[SinkRecord, ...]:
        """Transform a record.

        Raises:
            RecordError: stage TRANSFORMATION, with the alias.
        """
        try:
            if self.applies is not None and not self.applies(record):
                return (record,)
            found = self.apply(record)
        except RecordError as error:
            error.at(transform=self.alias)
            raise
        except RecursionError:
            raise RecordError(
                "the record is nested too deeply for the transformation",
                stage="TRANSFORMATION",
                code="too_deep",
                transform=self.alias,
            ) from None
        if found is None:
            return ()
        return (found,) if isinstance(found, SinkRecord) else tuple(found)


class Chain:
    """All transformations of a connector.

    Args:
        transforms: in order.

    Raises:
        ConfigError: a class nobody has, or an option it refuses.
    """

    def __init__(self, transforms: tuple[TransformConfig, ...]) -> None:
        self.links = tuple(link_of(config) for config in transforms)

    def apply(self, record: SinkRecord) -> tuple[SinkRecord, ...]:
        """Transform a record; nothing of it is left when it was dropped.

        Raises:
            RecordError: stage TRANSFORMATION.
        """
        records: tuple[SinkRecord, ...] = (record,)
        for link in self.links:
            if len(records) == 1:
                records = link.run(records[0])
            else:
                records = tuple(made for each in records for made in link.run(each))
            if len(records) > RECORDS_MAX:
                raise RecordError(
                    f"one record became more than {RECORDS_MAX}",
                    stage="TRANSFORMATION",
                    code="too_many_records",
                    transform=link.alias,
                )
            if not records:
                break
        return records


def link_of(config: TransformConfig) -> Link:
    """Build one transformation.

    Raises:
        ConfigError: a class nobody has, or an option it refuses.
    """
    found = transform_classes.find(config.class_name)
    if found is None:
        raise ConfigError(
            f"transforms.{config.alias}.type: Class {config.class_name} could not be found.",
            code="transform_class",
        )
    declared, side = found
    prefix = f"transforms.{config.alias}."
    options = typed_options(
        declared.keys, config.options, prefix=prefix, families=declared.families
    )
    apply = declared.make(options, side)
    return Link(config.alias, declared, side, apply, _condition(config))


def _condition(config: TransformConfig) -> predicates.Test | None:
    if config.predicate is None:
        return None
    test = predicate_of(config.predicate)
    if not config.negate:
        return test
    return lambda record: not test(record)


def predicate_of(config: PredicateConfig) -> predicates.Test:
    """Build one predicate.

    Raises:
        ConfigError: a class nobody has, or an option it refuses.
    """
    declared = predicates.BY_NAME.get(config.class_name)
    if declared is None:
        raise ConfigError(
            f"predicates.{config.alias}.type: Class {config.class_name} could not be found.",
            code="predicate_class",
        )
    prefix = f"predicates.{config.alias}."
    return declared.make(typed_options(declared.keys, config.options, prefix=prefix))


def needs_headers(transforms: tuple[TransformConfig, ...]) -> bool:
    """Whether any of them, or of their predicates, looks at headers."""
    wanted: Mapping[str, bool] = {p.class_name: p.needs_headers for p in predicates.PREDICATES}
    for config in transforms:
        found = transform_classes.find(config.class_name)
        if found is not None and found[0].needs_headers:
            return True
        if config.predicate is not None:
            declared = predicates.BY_NAME.get(config.predicate.class_name)
            if declared is not None and wanted[declared.class_name]:
                return True
    return False
