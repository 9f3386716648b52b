"""Rules for the keys of topics, ``icefloe.topic.<name>.*``."""

from __future__ import annotations

from collections.abc import Iterator

from connect.clock import SystemClock
from connect.config.key import invalid
from connect.config.keys.topic_keys import REGEX, TopicKey, topic_key
from connect.config.size_limits import TOPIC_MATCHES_MAX, TOPIC_PATTERNS_MAX
from connect.errors import ConfigError
from connect.java_compat.java_regex import LIST_MS, compile_java_regex, fault
from connect.validation.config_view import ConfigView
from connect.validation.key_checks import nearest


def named_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.topic.<name>.*` without `regex` names a topic of `topics` or `topics.regex`."""
    topics, pattern = frozenset(view["topics"] or ()), view["topics.regex"]
    if view.has_placeholder("topics") or view.has_placeholder("topics.regex"):
        return
    named: dict[str, str] = {}
    for key in view.raw:
        parsed = topic_key(key)
        if parsed is not None and _regex_key(parsed.name) not in view.raw:
            named.setdefault(parsed.name, key)
    if topics:
        for name in named.keys() - topics:
            near = nearest(name, topics)
            yield named[name], f"{named[name]}: the topic {name} is not in topics.{near}"
    elif pattern and fault(pattern) is None:
        try:
            unmatched = named.keys() - compile_java_regex(pattern).matching(named)
        except ConfigError as error:
            yield "topics.regex", invalid("topics.regex", pattern, error.message)
            return
        for name in unmatched:
            yield named[name], f"{named[name]}: topics.regex does not match the topic {name}"


def matched_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.topic.<name>.regex` matches a topic of `topics`, and no two match the same one."""
    topics = tuple(dict.fromkeys(view["topics"] or ()))
    keys = [parsed for key in view.raw if (parsed := topic_key(key)) is not None]
    own = {key.name for key in keys if _regex_key(key.name) not in view.raw}
    taken: dict[str, str] = {}
    patterns = sorted({key.name for key in keys} - own)
    if patterns and (why := _too_many(len(patterns), len(topics))):
        yield _regex_key(patterns[0]), why
        return
    until_ms = SystemClock().monotonic_ms() + LIST_MS
    for name in patterns if topics else ():
        key = _regex_key(name)
        text = view.raw[key]
        if not text or view.has_placeholder(key) or fault(text) is not None:
            continue
        try:
            matched = compile_java_regex(text).matching(topics, until_ms=until_ms)
        except ConfigError as error:
            yield key, invalid(key, text, error.message)
            return
        if not matched:
            yield key, invalid(key, text, "it matches no topic of topics")
        for topic in matched:
            if topic not in own and topic in taken:
                yield key, invalid(key, text, f"{taken[topic]} matches topic {topic}, too")
            taken.setdefault(topic, key)


def _too_many(patterns: int, topics: int) -> str | None:
    if patterns > TOPIC_PATTERNS_MAX:
        return f"{patterns} topics have a regex, more than {TOPIC_PATTERNS_MAX}"
    if patterns * topics > TOPIC_MATCHES_MAX:
        return f"{patterns} expressions for {topics} topics: use fewer, or topics.regex"
    return None


def _regex_key(name: str) -> str:
    return TopicKey(name, REGEX).whole
