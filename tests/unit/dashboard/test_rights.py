"""What a viewer may read, where the server does not say."""

from typing import Any

import pytest

from gangline.dashboard.live.rights import Access, ViewerRights
from gangline.kube.errors import Forbidden, Status
from gangline.summary.objects import PODS
from gangline.testing.clock import FakeClock


class SilentServer:
    """A server that answers no question about rights, as to anonymous users."""

    async def create(self, resource: object, body: object) -> Any:
        raise Forbidden(Status(code=403, reason="Forbidden", message="no"))


@pytest.fixture
def rights() -> ViewerRights:
    server: Any = SilentServer()
    return ViewerRights(server, FakeClock())


async def test_a_request_is_tried_and_the_history_is_not_shown_where_the_server_does_not_say(
    rights: ViewerRights,
) -> None:
    access = Access("get", PODS, "default", subresource="log")
    assert await rights.may(access)
    assert not await rights.is_granted(access)
