"""Rules for the keys of topics, ``icefloe.topic.<name>.*``."""

from __future__ import annotations

from collections.abc import Iterator

from connect.config.key import invalid
from connect.config.keys.topic_keys import REGEX, TopicKey, topic_key
from connect.java_compat.java_regex import compile_java_regex, fault
from connect.validation.config_view import ConfigView
from connect.validation.key_checks import nearest


def named_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.topic.<name>.*` without `regex` names a topic of `topics` or `topics.regex`."""
    topics, pattern = view["topics"], view["topics.regex"]
    is_open = view.has_placeholder("topics") or view.has_placeholder("topics.regex")
    is_regex = bool(pattern) and fault(pattern) is None
    named: set[str] = set()
    for key in view.raw if not is_open else ():
        parsed = topic_key(key)
        if parsed is None or parsed.name in named or _regex_key(parsed.name) in view.raw:
            continue
        named.add(parsed.name)
        if topics and parsed.name not in topics:
            near = nearest(parsed.name, topics)
            yield key, f"{key}: the topic {parsed.name} is not in topics.{near}"
        elif is_regex and not compile_java_regex(pattern).fullmatch(parsed.name):
            yield key, f"{key}: topics.regex does not match the topic {parsed.name}"


def matched_topics(view: ConfigView) -> Iterator[tuple[str, str]]:
    """`icefloe.topic.<name>.regex` matches a topic of `topics`, and no two match the same one."""
    topics = view["topics"] or ()
    keys = [parsed for key in view.raw if (parsed := topic_key(key)) is not None]
    own = {key.name for key in keys if _regex_key(key.name) not in view.raw}
    taken: dict[str, str] = {}
    for name in sorted({key.name for key in keys} - own) if topics else ():
        key = _regex_key(name)
        text = view.raw[key]
        if not text or view.has_placeholder(key) or fault(text) is not None:
            continue
        matched = [topic for topic in topics if compile_java_regex(text).fullmatch(topic)]
        if not matched:
            yield key, invalid(key, text, "it matches no topic of topics")
        for topic in matched:
            if topic not in own and topic in taken:
                yield key, invalid(key, text, f"{taken[topic]} matches topic {topic}, too")
            taken.setdefault(topic, key)


def _regex_key(name: str) -> str:
    return TopicKey(name, REGEX).whole
