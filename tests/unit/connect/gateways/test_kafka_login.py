"""Logins of Kafka's clients in Java's form, in librdkafka's form, and from one to the other."""

from __future__ import annotations

import pytest

from connect.errors import ConfigError
from connect.gateways.kafka.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, parse_jaas
from connect.gateways.kafka.kafka_properties import to_java, to_librdkafka

URL = "https://login.example/token"
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": URL}


def bearer(jaas: str = "", **more: str) -> dict[str, str]:
    """Properties of an OAUTHBEARER login; ``_`` for a dot."""
    given = {"sasl.jaas.config": f"{OAUTH_MODULE} required {jaas};"} if jaas else {}
    own = {name.replace("_", "."): value for name, value in more.items()}
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **given, **own}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (" required username=\"a\" password='b c';", {"username": "a", "password": "b c"}),
        (r' REQUIRED password="q\"u\\o\164";', {"password": 'q"u\\ot'}),
        (" required /* why */ a=true // end\n b='x;y' ;", {"a": "true", "b": "x;y"}),
        (" optional;", {}),
    ],
)
def test_jaas_is_parsed_as_in_java(text: str, options: dict[str, str]) -> None:
    """Both kinds of quotes, escapes and comments; it survives a round trip."""
    found = parse_jaas(PLAIN_MODULE + text)
    assert found.module == PLAIN_MODULE
    assert found.options == options
    assert parse_jaas(found.text()) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('x.Y required password="canary"', "semicolon"),
        ("x.Y password='canary';", "required"),
        ("x.Y required password;", "'password' has no value"),
        ('x.Y required password="canary;', "character 23"),
        ("x.Y required; x.Z required;", "one login module"),
        ("", "class name"),
    ],
)
def test_invalid_jaas_is_refused(text: str, message: str) -> None:
    """The error has the reason and no value."""
    with pytest.raises(ConfigError, match=message) as raised:
        parse_jaas(text)
    assert "canary" not in str(raised.value)


def test_a_password_in_one_form_reaches_both_clients() -> None:
    """User and password of one form reach the clients that take the other."""
    librdkafka = {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": 'p"w'}
    java = to_java({"security.protocol": "SASL_SSL", **librdkafka})
    assert java.pop("sasl.jaas.config") == f'{SCRAM_MODULE} required username="u" password="p\\"w";'
    assert java == {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    back = to_librdkafka(to_java(librdkafka), role="admin")
    assert back == {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": 'p"w',
    }


def test_a_scope_in_one_form_reaches_both_clients() -> None:
    """Also extensions."""
    jaas = "clientId='i' clientSecret='s' scope='a b' extension_pool='p'"
    properties = to_librdkafka({**bearer(jaas), **ENDPOINT}, role="consumer")
    assert properties == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "i",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "pool=p",
        **ENDPOINT,
    }
    assert to_java(properties)["sasl.jaas.config"] == (
        f'{OAUTH_MODULE} required clientId="i" clientSecret="s" scope="a b" extension_pool="p";'
    )
    mixed = {**bearer("clientId='i' clientSecret='s'", sasl_oauthbearer_scope="a b"), **ENDPOINT}
    assert 'scope="a b"' in to_java(mixed)["sasl.jaas.config"]
    assert to_java(mixed)["sasl.login.callback.handler.class"].endswith("LoginCallbackHandler")


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        (bearer("clientId='i' clientSecret='canary'"), "kafka_jaas", "token.endpoint.url"),
        ({**bearer("clientId='i'"), **ENDPOINT}, "kafka_jaas", "clientSecret"),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
            "kafka_kerberos",
            "Kerberos",
        ),
        ({"security.protocol": "SASL_SSL"}, "kafka_kerberos", "sasl.mechanism is not set"),
        ({"sasl.mechanism": "GSSAPI"}, "kafka_kerberos", "SCRAM-SHA-512"),
        ({"sasl.mechanism": "AWS_MSK_IAM"}, "kafka_msk_iam", "SCRAM-SHA-512"),
        (
            {"sasl.jaas.config": "com.example.OwnLoginModule required x='canary';"},
            "kafka_jaas",
            "com.example.OwnLoginModule",
        ),
        (
            {"sasl.jaas.config": f"{PLAIN_MODULE} required password='canary';"},
            "kafka_jaas",
            "username and password",
        ),
    ],
)
def test_invalid_logins_are_refused(given: dict[str, str], code: str, message: str) -> None:
    """The error says what to use, without the values."""
    for translate in (to_java, lambda p: to_librdkafka(p, role="admin")):
        with pytest.raises(ConfigError, match=message) as raised:
            translate(given)
        assert raised.value.code == code
        assert "canary" not in str(raised.value)


def test_properties_of_one_client_do_not_reach_the_other() -> None:
    """Librdkafka's names are for librdkafka, and Java's for Java."""
    given = {"socket.keepalive.enable": "true", "max.poll.records": "5", "linger.ms": "5"}
    assert to_librdkafka(given, role="producer") == {
        "socket.keepalive.enable": "true",
        "linger.ms": "5",
    }
    assert to_java(given) == {"max.poll.records": "5", "linger.ms": "5"}
