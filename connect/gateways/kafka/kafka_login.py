"""The login of Kafka's clients, from Java's or librdkafka's properties to both forms.

Rules of this file:
- One form is enough: ``sasl.jaas.config`` (Java) or ``sasl.username``, ``sasl.oauthbearer.*``
  (librdkafka). Spark's consumer gets Java's form, all other clients get librdkafka's.
- Error messages contain no value of an option.
- librdkafka's package has no GSSAPI, so Kerberos is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connect.errors import ConfigError
from connect.gateways.kafka.jaas import (
    OAUTH_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasEntry,
    parse_jaas,
)
from connect.gateways.kafka.key_stores import trusted_pem

JAAS: Final = "sasl.jaas.config"
MECHANISM: Final = "sasl.mechanism"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a name of a property
_HANDLER: Final = "sasl.login.callback.handler.class"
_JAVA_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
)
_OAUTH: Final = {
    "clientId": (
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.credentials.client.id",
    ),
    "clientSecret": (
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.client.credentials.client.secret",
    ),
    "scope": ("sasl.oauthbearer.scope",),
}
_EXTENSIONS: Final = "sasl.oauthbearer.extensions"
_EXTENSION: Final = "extension_"
_USE = "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or a client certificate (SSL)"


def librdkafka_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's login properties.

    Raises:
        ConfigError: ``kafka_jaas``, ``kafka_kerberos`` or ``kafka_msk_iam``.
    """
    _refuse_impossible(properties)
    entry = _entry(properties)
    mechanism = _mechanism(properties)
    named = {MECHANISM: mechanism} if mechanism else {}
    if entry is None:
        return named
    options = entry.options
    if entry.module != OAUTH_MODULE:
        user = {"sasl.username": options["username"], "sasl.password": options["password"]}
        return {**named, **user}
    login = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": options["clientId"],
        "sasl.oauthbearer.client.secret": options["clientSecret"],
        TOKEN_URL: properties[TOKEN_URL],
    }
    if scope := options.get("scope"):
        login["sasl.oauthbearer.scope"] = scope
    extensions = [
        f"{name.removeprefix(_EXTENSION)}={value}"
        for name, value in options.items()
        if name.startswith(_EXTENSION)
    ]
    if extensions:
        login[_EXTENSIONS] = ",".join(extensions)
    if pem := trusted_pem(options):
        login["https.ca.pem"] = pem
    return {**named, **login}


def java_login(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Java's login properties.

    Raises:
        ConfigError: as ``librdkafka_login``.
    """
    _refuse_impossible(properties)
    entry = _entry(properties)
    mechanism = _mechanism(properties)
    named = {MECHANISM: mechanism} if mechanism else {}
    if entry is None:
        return named
    login = {**named, JAAS: entry.text()}
    if entry.module == OAUTH_MODULE:
        login[TOKEN_URL] = properties[TOKEN_URL]
        login[_HANDLER] = properties.get(_HANDLER, _JAVA_HANDLER)
    return login


def _mechanism(properties: Mapping[str, str]) -> str | None:
    return properties.get(MECHANISM, properties.get("sasl.mechanisms"))


def _entry(properties: Mapping[str, str]) -> JaasEntry | None:
    """Return the login as one JAAS entry with all options; None without a login."""
    text = properties.get(JAAS)
    if not text:
        return _entry_of_librdkafka(properties)
    entry = parse_jaas(text)
    if entry.short_module == "OAuthBearerLoginModule":
        return _oauth(properties, entry.options)
    if entry.short_module not in {"PlainLoginModule", "ScramLoginModule"}:
        raise ConfigError(
            f"sasl.jaas.config has the login module {entry.module}, which only Java can load; "
            f"{_USE}",
            code="kafka_jaas",
        )
    if not {"username", "password"} <= entry.options.keys():
        raise ConfigError(
            f"sasl.jaas.config must give {entry.short_module} the options username and password",
            code="kafka_jaas",
        )
    return entry


def _entry_of_librdkafka(properties: Mapping[str, str]) -> JaasEntry | None:
    mechanism = _mechanism(properties) or ""
    if mechanism == "OAUTHBEARER":
        return _oauth(properties, {})
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if user is None or password is None:
        return None
    module = SCRAM_MODULE if mechanism.startswith("SCRAM") else PLAIN_MODULE
    return JaasEntry(module, {"username": user, "password": password})


def _oauth(properties: Mapping[str, str], jaas_options: Mapping[str, str]) -> JaasEntry:
    """Return the entry of OAUTHBEARER with what the properties say in other places."""
    options = dict(jaas_options)
    for option, names in _OAUTH.items():
        for name in names:
            if option not in options and name in properties:
                options[option] = properties[name]
    for pair in filter(None, properties.get(_EXTENSIONS, "").split(",")):
        name, _, value = pair.partition("=")
        options.setdefault(_EXTENSION + name.strip(), value.strip())
    missing = [option for option in ("clientId", "clientSecret") if not options.get(option)]
    if TOKEN_URL not in properties:
        missing.append(TOKEN_URL)
    if missing:
        raise ConfigError(
            f"OAUTHBEARER needs {' and '.join(missing)}: set clientId and clientSecret (and scope) "
            f"in sasl.jaas.config, and {TOKEN_URL}",
            code="kafka_jaas",
        )
    return JaasEntry(OAUTH_MODULE, options)


def _refuse_impossible(properties: Mapping[str, str]) -> None:
    mechanism = _mechanism(properties)
    jaas = properties.get(JAAS, "")
    has_sasl = properties.get("security.protocol", "").upper().startswith("SASL_")
    if mechanism == "AWS_MSK_IAM" or "IAMLoginModule" in jaas:
        raise ConfigError(
            "AWS_MSK_IAM is a mechanism of a Java library for Amazon MSK, and librdkafka does not "
            "have it. Enable SASL/SCRAM or mutual TLS on the MSK cluster, and use "
            "sasl.mechanism=SCRAM-SHA-512 or security.protocol=SSL",
            code="kafka_msk_iam",
        )
    is_kerberos = mechanism == "GSSAPI" or "Krb5LoginModule" in jaas
    if is_kerberos or (has_sasl and mechanism is None):
        why = "Kerberos (GSSAPI) is not possible: the package of librdkafka is built without it"
        if not is_kerberos:
            why = f"{MECHANISM} is not set, and its default is GSSAPI (Kerberos). {why}"
        raise ConfigError(f"{why}; {_USE}", code="kafka_kerberos")
