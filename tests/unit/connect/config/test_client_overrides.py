"""Which properties of Kafka's clients a connector may set."""

from __future__ import annotations

import pytest

from connect.config.client_overrides import CLIENT_KEYS, PREFIXES, allowed_overrides, is_refused
from connect.config.invalid_config import InvalidConfigError
from connect.config.keys.client_names import ALLOWED, REFUSED
from connect.validation.parse import parse
from connect.validation.plugins import BUILT_IN
from connect.validation.validate import validate

GOOD = {
    "name": "orders",
    "connector.class": "IcebergSink",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}
SIMILAR_NAMES = (
    "some.new.class",
    "some.interceptor.classes",
    "ssl.new.location",
    "some.library.path",
    "library.path",
    "sasl.new.callback.handler.class",
    "sasl.new.jaas.config",
    "sasl.kerberos.new.cmd",
    "sasl.oauthbearer.new.endpoint.url",
    "config.providers.file.class",
    "spark.driver.extraJavaOptions",
    "plugin.library.paths",
    "debug",
    "oauth_cb",
)


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", [*sorted(REFUSED), *SIMILAR_NAMES])
def test_refused_client_properties_are_errors_at_their_key(prefix: str, name: str) -> None:
    """Below each prefix; they reach no client."""
    raw = {**GOOD, prefix + name: "value-of-it"}
    with pytest.raises(InvalidConfigError) as caught:
        parse(raw)
    assert list(caught.value.errors) == [prefix + name]
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    errors_by_key = {i.name: i.errors for i in validate(sink, raw, BUILT_IN).configs if i.errors}
    (sentence,) = errors_by_key[prefix + name]
    assert sentence.startswith(f"A connector cannot set {prefix}{name}:")
    assert "value-of-it" not in sentence
    assert allowed_overrides(raw, prefix) == {}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_allowed_client_properties_reach_the_client(prefix: str) -> None:
    """Unknown ones are accepted and not passed on."""
    assert not ALLOWED & REFUSED.keys()
    assert CLIENT_KEYS.keys() <= ALLOWED
    for name in sorted(ALLOWED):
        assert not is_refused(name)
        key = CLIENT_KEYS.get(name)
        value = "5" if key is None or key.default_text is None else key.default_text
        config = parse({**GOOD, prefix + name: value, prefix + "unknown.thing": "5"})
        given = {
            "consumer.override.": config.consumer_overrides,
            "producer.override.": config.producer_overrides,
            "iceberg.kafka.": config.kafka_overrides,
        }[prefix]
        assert given == {name: value}


def test_a_password_of_a_client_is_hidden() -> None:
    """Validation reports the key and not the value."""
    sink = BUILT_IN.connector("IcebergSink")
    assert sink is not None
    name = "consumer.override.ssl.keystore.password"
    infos = {i.name: i for i in validate(sink, {**GOOD, name: "canary-of-it"}, BUILT_IN).configs}
    assert infos[name].definition is not None
    assert infos[name].definition["type"] == "PASSWORD"
    assert infos[name].value == "[hidden]"
