"""The transformation chain of a connector.

Rules of this file:
- A predicate receives the result of the preceding transformations.
- If a transformation drops a record, the chain ends. If it returns several records, each of them
  continues.
- An error contains the alias of the transformation and rejects the whole source record.
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
class ChainedTransform:
    """A transformation in a chain.

    Attributes:
        alias: its alias in the configuration.
        declared: its declaration.
        side: key or value.
        apply: the transformation function.
        applies: the predicate; None applies the transformation to all records.
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
            result = self.apply(record)
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
        if result is None:
            return ()
        return (result,) if isinstance(result, SinkRecord) else tuple(result)


class Chain:
    """All transformations of a connector.

    Args:
        transforms: configured transformations in order.

    Raises:
        ConfigError: a class is unknown, or an option is invalid.
    """

    def __init__(self, transforms: tuple[TransformConfig, ...]) -> None:
        self.links = tuple(link_of(config) for config in transforms)

    def apply(self, record: SinkRecord) -> tuple[SinkRecord, ...]:
        """Transform a record. The result is empty if the record is dropped.

        Raises:
            RecordError: stage TRANSFORMATION.
        """
        records: tuple[SinkRecord, ...] = (record,)
        for link in self.links:
            if len(records) == 1:
                records = link.run(records[0])
            else:
                records = tuple(record_made for each in records for record_made in link.run(each))
            if len(records) > RECORDS_MAX:
                raise RecordError(
                    f"the transformations created more than {RECORDS_MAX} records from one record",
                    stage="TRANSFORMATION",
                    code="too_many_records",
                    transform=link.alias,
                )
            if not records:
                break
        return records


def link_of(config: TransformConfig) -> ChainedTransform:
    """Build one transformation.

    Raises:
        ConfigError: a class is unknown, or an option is invalid.
    """
    declaration_and_side = transform_classes.find(config.class_name)
    if declaration_and_side is None:
        raise ConfigError(
            f"transforms.{config.alias}.type: Class {config.class_name} could not be found.",
            code="transform_class",
        )
    declared, side = declaration_and_side
    prefix = f"transforms.{config.alias}."
    options = typed_options(
        declared.keys, config.options, prefix=prefix, families=declared.families
    )
    apply = declared.make(options, side)
    return ChainedTransform(config.alias, declared, side, apply, _condition(config))


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
        ConfigError: a class is unknown, or an option is invalid.
    """
    declared = predicates.BY_NAME.get(config.class_name)
    if declared is None:
        raise ConfigError(
            f"predicates.{config.alias}.type: Class {config.class_name} could not be found.",
            code="predicate_class",
        )
    prefix = f"predicates.{config.alias}."
    return declared.make(typed_options(declared.keys, config.options, prefix=prefix))


def changes_keys(class_name: str) -> bool:
    """Return whether a transformation changes message keys."""
    return "$Key" in class_name or "ValueToKey" in class_name


def needs_headers(transforms: tuple[TransformConfig, ...]) -> bool:
    """Return whether a transformation or predicate reads headers."""
    by_class: Mapping[str, bool] = {p.class_name: p.needs_headers for p in predicates.PREDICATES}
    for config in transforms:
        declaration_and_side = transform_classes.find(config.class_name)
        needs = declaration_and_side is not None and declaration_and_side[0].needs_headers
        if needs is True or (needs and config.options.get(needs)):
            return True
        if config.predicate is not None:
            declared = predicates.BY_NAME.get(config.predicate.class_name)
            if declared is not None and by_class[declared.class_name]:
                return True
    return False
