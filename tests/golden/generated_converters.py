"""Generate converter cases that are not recorded, from a seed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from tests.golden import generated_values as generated
from tests.golden.generated_records import Case, recorded


def converter(rng: Random) -> Case:
    """One case of ``converters/`` but Avro's."""
    kind = rng.random()
    if kind < 0.25:
        one = rng.choice(recorded("converters", "numeric") + recorded("converters", "StringC*"))
        data = base64.b64decode(one["input"]["bytes"] or "")
        data = rng.choice(
            (data, data[:-1], data + b"\x00", rng.randbytes(rng.choice((1, 2, 4, 8))))
        )
        return {**_head(one), "input": {"bytes": base64.b64encode(data).decode()}}
    if kind < 0.55:
        one = rng.choice(recorded("converters", "JsonConverter-schemaless"))
        text = _broken(rng, one["input"].get("text") or "null")
        if rng.random() < 0.4:
            text = _json_text(rng, generated.value(rng))
        return {**_head(one), "input": _bytes(text)}
    one = rng.choice(recorded("converters", "JsonConverter-envelope"))
    if rng.random() < 0.5:
        schema = generated.schema(rng)
        text = json.dumps({"schema": schema, "payload": _json_only(_wire(rng, schema))})
        return {**_head(one), "input": _bytes(text)}
    try:
        document = json.loads(one["input"].get("text") or "null")
    except ValueError:
        document = None
    return {**_head(one), "input": _bytes(json.dumps(_json_only(_retyped(rng, document))))}


def _head(case: Mapping[str, Any]) -> Case:
    return {key: case[key] for key in ("converter", "role", "config")}


def _bytes(text: str) -> Case:
    data = text.encode("utf-8", "surrogatepass")
    return {"bytes": base64.b64encode(data).decode(), "text": text}


def _json_text(rng: Random, value: Any) -> str:
    """JSON of a value, with numbers in odd notations."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)).startswith("$"):
        return rng.choice(("1E5", "1e-7", "-0", "-0.0", "12345678901234567890", "1.0", "0.1e1"))
    if isinstance(value, dict):
        inner = ",".join(f"{json.dumps(k)}: {_json_text(rng, v)}" for k, v in value.items())
        return "{" + inner + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json_text(rng, item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def _json_only(value: Any) -> Any:
    """A document without typed forms, which are no JSON of Connect's."""
    if isinstance(value, list):
        return [_json_only(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)).startswith("$"):
        return next(iter(value.values()))
    return {name: _json_only(inner) for name, inner in value.items()}


def _broken(rng: Random, text: str) -> str:
    """A document with a character lost, doubled or another."""
    if not text or rng.random() < 0.3:
        return text
    at = rng.randrange(len(text))
    return (
        text[:at] + rng.choice(("", text[at] * 2, " ", "0", ",", "e", '"', "\\")) + text[at + 1 :]
    )


def _wire(rng: Random, schema: Mapping[str, Any]) -> Any:
    """A payload as an envelope has it, mostly of the schema's kind."""
    if rng.random() < 0.03:
        return generated.scalar(rng)
    kind, name = schema["type"], schema.get("name") or ""
    if (schema["optional"] or "default" in schema) and rng.random() < 0.2:
        return None
    if kind == "struct":
        fields = {field["field"]: _wire(rng, field) for field in schema["fields"]}
        return {k: v for k, v in fields.items() if v is not None or rng.random() < 0.5}
    if kind == "array":
        return [_wire(rng, schema["items"]) for _ in range(rng.randrange(3))]
    if kind == "map":
        if schema["keys"]["type"] == "string":
            return {n: _wire(rng, schema["values"]) for n in rng.sample(generated.NAMES, 2)}
        return [[i, _wire(rng, schema["values"])] for i in range(rng.randrange(3))]
    if kind == "bytes":
        return base64.b64encode(rng.randbytes(rng.choice((0, 1, 3, 9)))).decode()
    if kind in ("int8", "int16", "int32", "int64"):
        bits = int(kind[3:])
        number = generated.integer(rng)
        return (
            (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if name or bits < 64 else number
        )
    if kind in ("float", "double"):
        return rng.choice((generated.double(rng) if kind == "double" else 1.5, 5, 0.25))
    return rng.random() < 0.5 if kind == "boolean" else generated.text(rng)


def _retyped(rng: Random, document: Any) -> Any:
    """An envelope with a change in its schema or payload."""
    if not isinstance(document, dict) or not isinstance(document.get("schema"), dict):
        return generated.mutated(rng, document)
    schema, payload = document["schema"], document.get("payload")
    if rng.random() < 0.5:
        return {**document, "payload": generated.mutated(rng, payload)}
    changes = (
        {"type": rng.choice(("int8", "int32", "int64", "string", "double", "struct", "x"))},
        {"optional": rng.choice((True, False))},
        {"name": "x"},
        {"default": generated.scalar(rng)},
        {"version": rng.choice((1, 2))},
        {"doc": "d"},
    )
    return {**document, "schema": {**schema, **rng.choice(changes)}}
