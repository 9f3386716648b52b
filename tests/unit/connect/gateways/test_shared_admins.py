from typing import cast

import pytest

from connect.errors import RetriableError
from connect.gateways.kafka.kafka_admin import KafkaAdmin
from connect.gateways.kafka.shared_admins import SharedAdmins


class OpenAdmin:
    """An admin client that notes its end."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        """Close it."""
        self.is_closed = True


def test_connectors_with_equal_properties_share_a_client() -> None:
    """It is closed with its last user, also after an error."""
    opened: list[OpenAdmin] = []

    def open_admin(_: object) -> KafkaAdmin:
        opened.append(OpenAdmin())
        return cast("KafkaAdmin", opened[-1])

    admins = SharedAdmins(open_admin)
    with admins.lend({"a": "1", "b": "2"}) as first:
        with admins.lend({"b": "2", "a": "1"}) as second, admins.lend({"a": "3"}) as other:
            assert first is second
            assert first is not other
        assert [admin.is_closed for admin in opened] == [False, True]
        with pytest.raises(RetriableError), admins.lend({"a": "1", "b": "2"}):
            raise RetriableError("a request failed")
        assert not opened[0].is_closed
    assert opened[0].is_closed
    with admins.lend({"a": "1", "b": "2"}) as again:
        assert again is not first
