"""Sessions, links and the messages that wait for a connection."""

import asyncio
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.dashboard.links import DashboardAddress, is_valid_key, new_secret, read_address, remove_address
from gangline.dashboard.live import feed as live_feed
from gangline.dashboard.live.feed import GZIP_HEADER, MAX_WAITING_MESSAGES, Feed, ViewFailed, sse_message
from gangline.dashboard.settings import DashboardLimits
from gangline.dashboard.web.sessions import SessionTable, token_viewer
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.config.tls import TLS
from gangline.kube.errors import ConfigError
from gangline.testing.clock import FakeClock

CONNECTION = Connection(server="https://127.0.0.1:1", tls=TLS(), credentials=StaticToken("own", "test"))


def _table(clock: FakeClock, **limits: Any) -> tuple[SessionTable, DashboardAddress]:
    secret = new_secret()
    table = SessionTable(CONNECTION, DashboardLimits(**limits), clock, secret)
    return table, DashboardAddress("http://127.0.0.1:1", secret)


def _key(link: str) -> str:
    return link.partition("?key=")[2]


async def test_a_link_ends_after_its_lifetime_and_works_once() -> None:
    clock = FakeClock()
    table, address = _table(clock)
    link, lasting = _key(address.new_link(clock.now())), _key(address.new_link(clock.now(), None))
    await clock.advance(timedelta(minutes=11))
    assert table.redeem(link) is None
    cookie = table.redeem(lasting)
    assert cookie is not None
    assert table.find(cookie) is not None
    assert table.redeem(lasting) is None


async def test_a_session_ends_when_it_is_not_used() -> None:
    clock = FakeClock()
    table, address = _table(clock, session_idle=timedelta(hours=1))
    cookie = table.redeem(_key(address.new_link(clock.now())))
    assert cookie is not None
    for _ in range(3):
        await clock.advance(timedelta(minutes=50))
        assert table.find(cookie) is not None
    await clock.advance(timedelta(minutes=61))
    assert table.find(cookie) is None
    assert len(table) == 0


def test_the_session_unused_for_longest_makes_room() -> None:
    clock = FakeClock()
    table, _ = _table(clock, sessions=2)
    first, second = table.login("a"), table.login("b")
    assert table.find(first) is not None
    table.login("c")
    assert table.find(second) is None
    assert table.find(first) is not None


async def test_a_token_takes_nothing_from_the_dashboards_own_credentials() -> None:
    name, connection = token_viewer(CONNECTION, "viewers-token")
    assert await connection.credentials.headers() == {"Authorization": "Bearer viewers-token"}
    assert "viewers-token" not in name
    assert "viewers-token" not in repr(connection)
    with pytest.raises(ConfigError):
        token_viewer(CONNECTION, "two words")


@pytest.mark.parametrize("key", ["", ".", "..", "0.a.b", "zz.a.b", "0.é.b", "0" * 5000])
def test_malformed_keys_are_refused(key: str) -> None:
    assert not is_valid_key("secret", key, FakeClock().now())


def test_the_address_is_in_a_file_for_its_owner_only(tmp_path: Path) -> None:
    address = DashboardAddress("http://127.0.0.1:1", new_secret())
    address.save(tmp_path)
    assert read_address(tmp_path) == address
    assert (tmp_path / "dashboard.json").stat().st_mode & 0o077 == 0
    remove_address(tmp_path)
    assert read_address(tmp_path) is None
    (tmp_path / "dashboard.json").write_text("[]")
    assert read_address(tmp_path) is None


class CountingFeed(Feed):
    """A view of a number."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.number = self.sent = self.encoded = 0
        self.lost = ""
        self._ready.set()

    async def run(self) -> None:
        raise NotImplementedError

    def watch_problem(self) -> str:
        return self.lost

    def content(self) -> Any:
        self.encoded += 1
        return {"number": self.number}

    def take_patch(self) -> Any | None:
        if self.number == self.sent:
            return None
        self.sent = self.number
        return {"number": self.number}

    def change(self) -> None:
        self.number += 1
        self.publish_now()


async def test_a_connection_gets_a_snapshot_and_then_patches_in_order() -> None:
    feed = CountingFeed(FakeClock())
    with feed.subscribe() as subscription:
        messages = feed.messages(subscription, timedelta(seconds=15))
        assert await anext(messages) == sse_message("snapshot", 0, {"number": 0})
        feed.change()
        feed.change()
        assert await anext(messages) == b"".join(sse_message("patch", n, {"number": n}) for n in (1, 2))


async def test_a_lost_server_is_reported_at_once_and_as_soon_as_it_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "PROBLEM_INTERVAL", timedelta(milliseconds=1))
    feed = CountingFeed(FakeClock())
    with feed.subscribe() as subscription:
        messages = feed.messages(subscription, timedelta(hours=1))
        await anext(messages)
        feed.lost = "nobody answers"
        assert await anext(messages) == sse_message("problem", 0, {"message": "nobody answers"})
        feed.change()
        assert await anext(messages) == sse_message("patch", 1, {"number": 1})
        feed.lost = ""
        feed.change()
        assert await anext(messages) == sse_message("problem", 2, {"message": ""}), "although there are patches"


async def test_who_comes_while_the_server_is_lost_hears_of_it_before_the_snapshot() -> None:
    feed = CountingFeed(FakeClock())
    feed.lost = "nobody answers"
    with feed.subscribe() as subscription:
        messages = feed.messages(subscription, timedelta(hours=1))
        assert await anext(messages) == sse_message("problem", 0, {"message": "nobody answers"})
        assert await anext(messages) == sse_message("snapshot", 0, {"number": 0})


async def test_a_silent_connection_is_kept_open_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_feed, "PROBLEM_INTERVAL", timedelta(milliseconds=1))
    feed = CountingFeed(FakeClock())
    with feed.subscribe() as subscription:
        messages = feed.messages(subscription, timedelta(milliseconds=5))
        await anext(messages)
        assert await anext(messages) == live_feed.STILL_HERE.plain


async def test_a_change_that_cannot_be_shown_ends_the_view_and_not_the_watch() -> None:
    feed = CountingFeed(FakeClock())

    def fail(change: int) -> None:
        raise ZeroDivisionError(change)

    with feed.subscribe() as subscription:
        messages = feed.messages(subscription, timedelta(seconds=15))
        await anext(messages)
        feed.guarded(fail)(1)
        assert [message async for message in messages] == []
    with pytest.raises(ViewFailed, match="its log says why"):
        await feed.wait_until_ready()


async def test_a_snapshot_is_encoded_once_for_all_connections() -> None:
    feed = CountingFeed(FakeClock())
    feed.change()
    with feed.subscribe() as one, feed.subscribe() as other:
        for subscription in (one, other):
            await anext(feed.messages(subscription, timedelta(seconds=15)))
    assert feed.encoded == 1


async def test_a_connection_that_does_not_read_loses_messages_and_gets_a_new_snapshot() -> None:
    feed = CountingFeed(FakeClock())
    with feed.subscribe() as slow, feed.subscribe() as quick:
        stalled, followed = feed.messages(slow, timedelta(15)), feed.messages(quick, timedelta(15))
        await anext(stalled)
        await anext(followed)
        for _ in range(MAX_WAITING_MESSAGES + 5):
            feed.change()
            assert b"event: patch" in await anext(followed)
        assert slow.needs_snapshot
        assert await anext(stalled) == sse_message("snapshot", feed.revision, {"number": feed.number})
        feed.change()
        assert await anext(stalled) == sse_message("patch", feed.revision, {"number": feed.number})


async def test_changes_within_an_interval_are_one_patch() -> None:
    clock = FakeClock()
    feed = CountingFeed(clock)
    async with asyncio.TaskGroup() as group:
        publishing = group.create_task(feed.publish())
        with feed.subscribe() as subscription:
            messages = feed.messages(subscription, timedelta(seconds=15))
            await anext(messages)
            feed.number = 1
            feed.mark_changed()
            assert await anext(messages) == sse_message("patch", 1, {"number": 1})
            for feed.number in (2, 3, 4):
                feed.mark_changed()
            await clock.advance(timedelta(milliseconds=200))
            assert await anext(messages) == sse_message("patch", 2, {"number": 4})
        publishing.cancel()


def test_json_of_a_message_is_one_line() -> None:
    message = sse_message("snapshot", 1, {"text": "a\nevent: forged\n\n"})
    assert message.count(b"\n") == 4


async def test_compressed_connections_share_their_messages_and_each_is_one_stream_in_gzip() -> None:
    feed = CountingFeed(FakeClock())
    read: list[bytes] = []
    with feed.subscribe() as plain, feed.subscribe(gzip=True) as early:
        expected, packed = feed.messages(plain, timedelta(15)), feed.messages(early, timedelta(15))
        streams = [packed]
        contents = [GZIP_HEADER + await anext(packed)]
        read.append(await anext(expected))
        feed.change()
        # A later one begins with another message than the first.
        with feed.subscribe(gzip=True) as late:
            streams.append(feed.messages(late, timedelta(15)))
            contents[0] += await anext(streams[0])
            contents.append(GZIP_HEADER + await anext(streams[1]))
            read.append(await anext(expected))
            feed.change()
            read.append(await anext(expected))
            for number, stream in enumerate(streams):
                contents[number] += await anext(stream)
    first, second = (zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content) for content in contents)
    assert first == b"".join(read)
    assert second == sse_message("snapshot", 1, {"number": 1}) + read[-1]
