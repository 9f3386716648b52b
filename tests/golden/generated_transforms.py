"""Generate cases of transformations, predicates and chains from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from tests.golden import generated_values as generated
from tests.golden.generated_literals import literal
from tests.golden.generated_records import Case, mutated, record, recorded

_KAFKA = "org.apache.kafka.connect.transforms."
_PREDICATES = _KAFKA + "predicates."

_PATTERNS = [
    *("yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss", "yyyy-MM-dd'T'HH:mm:ss.SSSX", "dd/MM/yy", "yy"),
    *("yyyy-MM-dd HH:mm:ss Z", "EEE, d MMM yyyy HH:mm:ss z", "hh:mm a", "KK:mm a", "kk:mm:ss"),
    *(
        "yyyyMMdd",
        "yyyyMMddHHmmss",
        "D yyyy",
        "HH 'o''clock'",
        "S",
        "SSSS",
        "M/d/y",
        "MMMM",
        "EEEE",
    ),
    *("u", "yyyyy", "X", "XX", "XXX", "HHmm", "d", "''", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "H:m:s"),
]
_EXPRESSIONS = [
    *(
        "orders",
        "(.*)",
        "([a-z]+)",
        "(ord)(ers)",
        "(?<x>.*)s",
        "[^o]*",
        "\\w+",
        "\\p{Alpha}+",
        "\\d*",
    ),
    *(
        "(?i)ORDERS",
        "o.*?s",
        "(o|or)(.*)",
        "^orders$",
        "[a-z&&[^x]]+",
        "\\Qorders\\E",
        "o(?=r).*",
        "(",
    ),
    *(
        "orders\\z",
        "\\Aorders\\Z",
        "o++rders",
        "(?>o)rders",
        "\\p{Lower}+",
        "\\p{L}+",
        "[[:alpha:]]+",
    ),
    *(
        "\\h*orders",
        "\\R?orders",
        ".{6}",
        ".{3,",
        "(?x) o r d e r s",
        "\\u006frders",
        "(o)\\1?.*",
        "a]",
    ),
]
_REPLACEMENTS = [
    "x",
    "$0",
    "$1",
    "$1_$2",
    "${x}",
    "$10",
    "\\$1",
    "$",
    "\\",
    "",
    "a$1b",
    "$2",
    "${1}",
    "é",
]


def _names(rng: Random, count: int = 2) -> list[str]:
    return rng.sample([*generated.NAMES[:5], "user", "ts", "a.b", "zz", "é"], count)


def _cast(rng: Random) -> dict[str, str]:
    types = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
    if rng.random() < 0.3:
        return {"spec": rng.choice(types)}
    names = _names(rng, rng.randrange(1, 4))
    return {"spec": ",".join(f"{name}:{rng.choice(types)}" for name in names)}


def _timestamps(rng: Random) -> dict[str, str]:
    config = {"target.type": rng.choice(("string", "unix", "Date", "Time", "Timestamp"))}
    if rng.random() < 0.7:
        config["field"] = _names(rng, 1)[0]
    if rng.random() < 0.8:
        config["format"] = rng.choice(_PATTERNS)
    if rng.random() < 0.5:
        units = ("seconds", "milliseconds", "microseconds", "nanoseconds")
        config["unix.precision"] = rng.choice(units)
    return config


def _some(rng: Random, choices: Mapping[str, Callable[[Random], str]]) -> dict[str, str]:
    """Some of the options, most often all."""
    return {key: make(rng) for key, make in choices.items() if rng.random() < 0.8}


def _list(rng: Random) -> str:
    return ",".join(_names(rng, rng.randrange(1, 3)))


def _one(rng: Random) -> str:
    return _names(rng, 1)[0]


_CONFIGS: dict[str, Callable[[Random], dict[str, str]]] = {
    "Cast": _cast,
    "TimestampConverter": _timestamps,
    "ExtractField": lambda rng: _some(
        rng,
        {
            "field": lambda r: r.choice((*_names(r), "a.b", "user.name", "`a.b`", "a.`b`", "`a")),
            "field.syntax.version": lambda r: r.choice(("V1", "V2", "V2")),
        },
    ),
    "ReplaceField": lambda rng: _some(
        rng,
        {
            rng.choice(("include", "exclude")): _list,
            "renames": lambda r: ",".join(f"{n}:{_one(r)}" for n in _names(r)),
        },
    ),
    "InsertField": lambda rng: _some(
        rng,
        {
            rng.choice(("topic", "partition", "offset", "timestamp")) + ".field": lambda r: (
                _one(r) + r.choice(("", "!", "?"))
            ),
            "static.field": _one,
            "static.value": generated.text,
        },
    ),
    "MaskField": lambda rng: _some(
        rng, {"fields": _list, rng.choice(("replacement", "x")): generated.text}
    ),
    "Flatten": lambda rng: {"delimiter": rng.choice((".", "_", "", "::"))},
    "HoistField": lambda rng: {"field": _one(rng)},
    "ValueToKey": lambda rng: {"fields": _list(rng)},
    "HeaderFrom": lambda rng: {
        "fields": ",".join(_names(rng)),
        "headers": "h,i",
        "operation": rng.choice(("copy", "move")),
    },
    "InsertHeader": lambda rng: {"header": "h", "value.literal": literal(rng)},
    "SetSchemaMetadata": lambda rng: _some(
        rng, {"schema.name": _one, "schema.version": lambda r: r.choice(("1", "0", "-1", "x"))}
    ),
    "RegexRouter": lambda rng: {
        "regex": rng.choice(_EXPRESSIONS),
        "replacement": rng.choice(_REPLACEMENTS),
    },
    "TimestampRouter": lambda rng: _some(
        rng,
        {
            "topic.format": lambda r: r.choice(("${topic}-${timestamp}", "$1-${topic}", "x")),
            "timestamp.format": lambda r: r.choice(_PATTERNS),
        },
    ),
    "CopyValue": lambda rng: {"source.field": _one(rng), "target.field": _one(rng)},
    "JsonToMapTransform": lambda rng: {"json.root": rng.choice(("true", "false"))},
}
_OWN_CLASS = {"CopyValue", "JsonToMapTransform"}
_NO_SIDES = {"InsertHeader", "RegexRouter", "TimestampRouter", *_OWN_CLASS}


def transform(rng: Random) -> Case:
    """One case of ``transforms/``."""
    kind = rng.random()
    if kind < 0.3:
        one, other = rng.choice(recorded("transforms")), rng.choice(recorded("transforms"))
        if "transform" not in one:
            return {"config": one["config"], "input": mutated(rng, other["input"])}
        same = [c for c in recorded("transforms") if c.get("transform") == one["transform"]]
        given = rng.choice((one, rng.choice(same), other))["input"]
        return {
            "transform": one["transform"],
            "config": one["config"],
            "input": mutated(rng, given) if rng.random() < 0.8 else given,
        }
    name = rng.choice(list(_CONFIGS))
    config = _CONFIGS[name](rng)
    if rng.random() < 0.1 and name not in _NO_SIDES:
        config["replace.null.with.default"] = "false"
    side = "" if name in _NO_SIDES else rng.choice(("$Value", "$Value", "$Value", "$Key"))
    package = "org.apache.iceberg.connect.transforms." if name in _OWN_CLASS else _KAFKA
    named = tuple(n for text in config.values() for n in _fields_in(text))
    if rng.random() < 0.3:
        given = mutated(rng, rng.choice(recorded("transforms", name))["input"])
    else:
        given = record(rng, named)
    if name == "TimestampConverter" and rng.random() < 0.6:
        given = _timed(rng, given, config)
    return {"transform": package + name + side, "config": config, "input": given}


def _timed(rng: Random, given: Case, config: Mapping[str, str]) -> Case:
    """Return a record with a time in the field that the configuration names."""
    time = rng.choice(
        (
            generated.text(rng),
            generated.integer(rng),
            rng.choice(generated.INSTANTS),
            rng.choice(generated.DATES),
        )
    )
    value = {config["field"]: time} if "field" in config else time
    return {**given, "schemas": False, "key": None, "value": value}


def _fields_in(text: str) -> list[str]:
    return [part.split(":")[0].strip("`!?") for part in text.split(",")]


def chain(rng: Random) -> Case:
    """One case of chains: two or three transformations, some with a predicate."""
    config: dict[str, str] = {}
    aliases = "abc"[: rng.randrange(2, 4)]
    for alias in aliases:
        one = transform(rng)
        while "transform" not in one:
            one = transform(rng)
        config[f"transforms.{alias}.type"] = one["transform"]
        config |= {f"transforms.{alias}.{key}": text for key, text in one["config"].items()}
        if rng.random() < 0.3:
            config[f"transforms.{alias}.predicate"] = "p"
            config[f"transforms.{alias}.negate"] = rng.choice(("true", "false"))
    config["transforms"] = ",".join(aliases)
    if any(key.endswith(".predicate") for key in config):
        test = predicate(rng)
        config |= {"predicates": "p", "predicates.p.type": test["predicate"]}
        config |= {f"predicates.p.{key}": text for key, text in test["config"].items()}
    return {"config": config, "input": record(rng, tuple(_names(rng, 3)))}


def predicate(rng: Random) -> Case:
    """One case of ``predicates/``."""
    name = rng.choice(("HasHeaderKey", "RecordIsTombstone", "TopicNameMatches"))
    config = {
        "HasHeaderKey": {"name": rng.choice(("a", "b", "zz", "", "h"))},
        "RecordIsTombstone": {},
        "TopicNameMatches": {"pattern": rng.choice(_EXPRESSIONS)},
    }[name]
    return {"predicate": _PREDICATES + name, "config": config, "input": record(rng)}


# ------------------------------------------------------------------ change events


def change_event(rng: Random) -> Case:
    """A recorded case of a transformation for change events, changed."""
    name = rng.choice(
        ("DebeziumTransform", "DmsTransform", "KafkaMetadataTransform", "MongoDebeziumTransform")
    )
    one, other = rng.choice(recorded("transforms", name)), rng.choice(recorded("transforms", name))
    given = mutated(rng, other["input"])
    return {"transform": one["transform"], "config": one["config"], "input": given}
