"""Keys of notifications in the node's properties file."""

from __future__ import annotations

from connect.config.key import Key, at_least, between

_NOTIFICATIONS = "Notifications"

NOTIFICATION_KEYS: tuple[Key, ...] = (
    Key(
        "icefloe.notifications.webhook.url",
        "PASSWORD",
        "Address (http or https) that receives a JSON message when a connector or task fails, and "
        "for the other incidents below. Default: none.",
        None,
        "MEDIUM",
        _NOTIFICATIONS,
        is_secret=True,
    ),
    Key(
        "icefloe.notifications.webhook.authorization",
        "PASSWORD",
        "Value of the header `Authorization` of these messages, for example `Bearer <token>`.",
        None,
        "MEDIUM",
        _NOTIFICATIONS,
        is_secret=True,
    ),
    Key(
        "icefloe.notifications.delay.ms",
        "LONG",
        "Time that an incident lasts before it is sent, and that it is gone before it is sent as "
        "resolved.",
        "10000",
        "LOW",
        _NOTIFICATIONS,
        unit="ms",
        check=between(0, 3_600_000),
    ),
    Key(
        "icefloe.notifications.valid-through.age.ms",
        "LONG",
        "Age of a connector's valid-through timestamp from which on it is an incident.",
        "3600000",
        "LOW",
        _NOTIFICATIONS,
        unit="ms",
        check=at_least(1_000),
    ),
    Key(
        "icefloe.notifications.dead-letters.per.minute",
        "LONG",
        "Dead letters of a connector in a minute; more are an incident.",
        "0",
        "LOW",
        _NOTIFICATIONS,
        unit="records",
        check=at_least(0),
    ),
    Key(
        "icefloe.notifications.retention.left.ms",
        "LONG",
        "Time until the control topic deletes an event of uncommitted files; less is an incident.",
        "86400000",
        "LOW",
        _NOTIFICATIONS,
        unit="ms",
        check=at_least(0),
    ),
)
