"""The specification of generated records: topic, rate, key and fields, from JSON or YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    Tag,
    ValidationError,
    model_validator,
)

from connect.errors import ConfigError

NAME = r"^[A-Za-z_][A-Za-z0-9_]*$"


def _encodable(text: str) -> str:
    text.encode()  # of half a surrogate pair: an error of values
    return text


Long: TypeAlias = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
Text: TypeAlias = Annotated[str, AfterValidator(_encodable)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _type_of(content: Any) -> str:
    return str(
        content.get("type", "fake") if isinstance(content, dict) else getattr(content, "type", None)
    )


class _FieldBase(_Strict):
    nulls: float = Field(default=0.0, ge=0, le=1, description="share of records without a value")


class _Range(_FieldBase):
    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        least, most = (getattr(self, name) for name in ("min", "max"))
        if least > most:
            raise ValueError(f"min must not be above max: {least} and {most}")
        return self


class SequenceField(_FieldBase):
    """Whole numbers, each ``step`` above the last; the first is ``start``."""

    type: Literal["sequence"]
    start: Long = 0
    step: Long = 1


class IntegerField(_Range):
    """Whole numbers from ``min`` to ``max``."""

    type: Literal["integer"]
    min: Long = 0
    max: Long = 1_000_000


class DoubleField(_Range):
    """Numbers from ``min`` to ``max``, with ``digits`` behind the point."""

    type: Literal["double"]
    min: FiniteFloat = 0.0
    max: FiniteFloat = 1.0
    digits: int = Field(default=6, ge=0, le=15)


class BooleanField(_FieldBase):
    """True with the probability ``chance``."""

    type: Literal["boolean"]
    chance: float = Field(default=0.5, ge=0, le=1)


class ChoiceField(_FieldBase):
    """One of ``values``; ``weights`` give their relative frequency."""

    type: Literal["choice"]
    values: tuple[Text, ...] = Field(min_length=1)
    weights: tuple[FiniteFloat, ...] | None = None

    @model_validator(mode="after")
    def _has_a_weight_for_each(self) -> Self:
        if self.weights is None:
            return self
        if len(self.weights) != len(self.values):
            raise ValueError("weights must have as many entries as values")
        if min(self.weights) < 0 or not any(self.weights):
            raise ValueError("weights must be 0 or more, and one of them above 0")
        return self


class TimestampField(_FieldBase):
    """The time at which the record is generated."""

    type: Literal["timestamp"]


class FakeField(_FieldBase):
    """A text of a provider of the library mimesis, such as ``person.full_name``."""

    type: Literal["fake"] = "fake"
    fake: str = Field(pattern=r"^[a-z_]+\.[a-z_0-9]+$")
    args: dict[str, Any] = Field(default_factory=dict)


class ObjectField(_FieldBase):
    """A document with fields of its own."""

    type: Literal["object"]
    fields: Fields


class ListField(_Range):
    """A list of ``min`` to ``max`` values."""

    type: Literal["list"]
    of: AnyField
    min: int = Field(default=0, ge=0, le=10_000)
    max: int = Field(default=3, ge=0, le=10_000)


AnyField: TypeAlias = Annotated[
    Annotated[SequenceField, Tag("sequence")]
    | Annotated[IntegerField, Tag("integer")]
    | Annotated[DoubleField, Tag("double")]
    | Annotated[BooleanField, Tag("boolean")]
    | Annotated[ChoiceField, Tag("choice")]
    | Annotated[TimestampField, Tag("timestamp")]
    | Annotated[FakeField, Tag("fake")]
    | Annotated[ObjectField, Tag("object")]
    | Annotated[ListField, Tag("list")],
    Discriminator(_type_of),
]
Fields: TypeAlias = dict[Annotated[str, Field(pattern=NAME)], AnyField]


RATE_MAX: Final = 1_000_000_000


class RecordSpec(_Strict):
    """What to generate.

    Attributes:
        topic: it is created if it does not exist.
        partitions: of a new topic.
        replication_factor: of a new topic; -1 is the default of the broker.
        rate: records per second, at most ``RATE_MAX``; 0 is as fast as possible.
        count: number of records; 0 is without end.
        key: field whose value is the record's key, as text; None for no key.
        format: of the value.
        seed: equal seeds give equal values, except timestamps.
        locale: of the texts.
        fields: by name, in order.
    """

    topic: str = Field(min_length=1, max_length=249)
    partitions: int = Field(default=1, ge=1, le=10_000)
    replication_factor: int = Field(default=-1, ge=-1)
    rate: FiniteFloat = Field(default=0, ge=0, le=RATE_MAX)
    count: int = Field(default=0, ge=0)
    key: str | None = None
    format: Literal["json", "avro"] = "json"
    seed: int = 0
    locale: str = "en"
    fields: Fields = Field(min_length=1)

    @model_validator(mode="after")
    def _has_its_key(self) -> Self:
        if self.key is not None and self.key not in self.fields:
            raise ValueError(f"key names the field {self.key}, which does not exist")
        return self


def read_spec(file: Path) -> RecordSpec:
    """Read a specification.

    Raises:
        ConfigError: ``datagen_spec``, the file cannot be read or is no specification.
    """
    try:
        content = yaml.safe_load(file.read_text("utf-8"))  # JSON is YAML
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}", code="datagen_spec") from error
    return _validated(content, str(file))


def replaced(spec: RecordSpec, *, count: int | None, rate: float | None) -> RecordSpec:
    """Return a specification with another count and rate, as options of the command give them.

    Args:
        spec: of the file.
        count: number of records; None keeps that of the file.
        rate: records per second; None keeps that of the file.

    Raises:
        ConfigError: ``datagen_spec``, a value is outside of its bounds.
    """
    options = {"count": count, "rate": rate}
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        return spec
    return _validated({**spec.model_dump(by_alias=True), **changes}, "the options")


def _validated(content: Any, source: str) -> RecordSpec:
    try:
        return RecordSpec.model_validate(content)
    except ValidationError as error:
        first_error = error.errors()[0]
        where = ".".join(map(str, first_error["loc"])) or "the document"
        message = f"{source}: {where}: {first_error['msg']}"
        raise ConfigError(message, code="datagen_spec") from error
