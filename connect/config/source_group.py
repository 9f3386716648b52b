"""The consumer group of a connector's source offsets."""

from __future__ import annotations

from connect.config.key import Raw

CONTROL = "iceberg.control.group-id"
CONNECT = "iceberg.connect.group-id"
OVERRIDE = "consumer.override.group.id"


def group_key(raw: Raw) -> str | None:
    """Return the key that sets the group, or None if the connector's name determines it.

    The older sink reads offsets from its control group. ``iceberg.connect.group-id`` is only a copy
    for Connect.
    """
    keys = (CONTROL,) if is_tabular(raw) else (CONTROL, CONNECT, OVERRIDE)
    return next((key for key in keys if (raw.get(key) or "").strip()), None)


def named_group(raw: Raw) -> str | None:
    """Return the configured group, or None for ``connect-<name>``."""
    key = group_key(raw)
    if key is not None:
        return (raw[key] or "").strip()
    return f"cg-control-{_name(raw)}" if is_tabular(raw) else None


def source_group(raw: Raw) -> str:
    """The group."""
    return named_group(raw) or f"connect-{_name(raw)}"


def is_tabular(raw: Raw) -> bool:
    """Return whether the configuration is for the older sink."""
    return (raw.get("connector.class") or "").strip().startswith("io.tabular.")


def _name(raw: Raw) -> str:
    return (raw.get("name") or "").strip()
