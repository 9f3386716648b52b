"""Locations of the tables of a connector without a catalog: a folder for each name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from connect.config.location_policy import EVERYWHERE, LocationPolicy
from connect.errors import CommitRefused
from connect.gateways.catalog_properties import FOLDER_OF_TABLE, FOLDER_ROOTS, folder_place_error
from connect.gateways.storage.object_store import check_storage

# clients parse a location as a URL or as a path: a record must not choose another folder
_NAME: Final = re.compile(r"(?!\s)[^/\\%?#\x00-\x1f\x7f]{1,255}(?<!\s)")


@dataclass(frozen=True, slots=True)
class FolderLocations:
    """Locations of a connector's tables.

    Attributes:
        table_format: of the tables.
        properties: of the client, as ``client_config`` returns them.
        policy: where tables may lie.
    """

    table_format: str
    properties: Mapping[str, Any]
    policy: LocationPolicy = EVERYWHERE

    def of(self, identifier: Sequence[str]) -> str:
        """Return the location of a table.

        Raises:
            CommitRefused: ``table_name``: the name cannot be a folder; ``delta_location``,
                ``parquet_location``: some client would open another one; ``location_not_granted``.
            ConfigError: the connector may not reach the location.
        """
        name = ".".join(identifier)
        configured = self.properties.get(FOLDER_OF_TABLE + name)
        if configured is None:
            if not all(_NAME.fullmatch(part) and part not in {".", ".."} for part in identifier):
                raise CommitRefused(f"{name!r} cannot be a folder", code="table_name", table=name)
            root = str(self.properties[FOLDER_ROOTS[self.table_format]]).rstrip("/")
            configured = "/".join((root, *identifier))
        location = str(configured).rstrip("/")
        if (why := folder_place_error(self.table_format, location)) is not None:
            code = f"{self.table_format}_location"
            raise CommitRefused(f"{location!r}: {why}", code=code, table=name)
        if (why := self.policy.refusal(location)) is not None:
            raise CommitRefused(f"{location} {why}", code="location_not_granted", table=name)
        check_storage(self.properties, location)
        return location
