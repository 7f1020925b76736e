"""Commits, reads, older revisions and compaction, in memory."""

import json

import pytest

from gangline.apiserver.store.errors import Compacted, StaleWrite, StoreFailed, TooNew
from gangline.apiserver.store.records import Retention, Write
from gangline.apiserver.store.store import Store
from support.property.stores import body, number, put, remove, version


async def test_record_holds_the_object_as_clients_get_it() -> None:
    async with Store() as store:
        mine = body(1)
        (record,) = await store.commit(Write("/a", mine, 0))
        assert store.get("/a") is record
        assert json.loads(record.data) == mine
        assert version(record.data) == record.revision == store.revision


async def test_empty_store_is_not_at_revision_zero() -> None:
    async with Store() as store:  # "0" means "any" to those who list and watch
        assert store.revision == 1
        assert (await put(store, "/a")).revision == 2


async def test_write_needs_the_revision_it_was_based_on() -> None:
    async with Store() as store:
        first = await put(store, "/a", 1)
        for expected in (0, first.revision - 1, first.revision + 1):
            with pytest.raises(StaleWrite) as caught:
                await store.commit(Write("/a", body(2), expected))
            assert caught.value.current is first
        with pytest.raises(StaleWrite, match="/b is not there, expected revision 7") as caught:
            await store.commit(Write("/b", body(2), 7))
        assert caught.value.current is None
        (second,) = await store.commit(Write("/a", body(2), first.revision))
        assert second.revision == first.revision + 1


async def test_commit_is_all_or_none() -> None:
    async with Store() as store:
        there = await put(store, "/a")
        with pytest.raises(StaleWrite):
            await store.commit(Write("/b", body(1), 0), Write("/a", body(1), 0))
        with pytest.raises(TypeError):
            await store.commit(Write("/b", body(1), 0), Write("/c", body(1, what=object()), 0))
        assert store.range("").records == (there,)
        assert store.revision == there.revision


async def test_writes_of_a_commit_have_revisions_of_their_own() -> None:
    async with Store() as store:
        there = await put(store, "/a")
        records = await store.commit(
            Write("/c", body(1), 0), Write("/a", None, there.revision), Write("/b", body(2), 0)
        )
        assert [record.revision for record in records] == [3, 4, 5]
        assert [record.path for record in store.range("").records] == ["/b", "/c"]


async def test_commit_refuses_what_makes_no_sense() -> None:
    async with Store() as store:
        with pytest.raises(ValueError, match="twice"):
            await store.commit(Write("/a", body(1), 0), Write("/a", body(2), 0))
        with pytest.raises(ValueError, match="must not exist"):
            await store.commit(Write("/a", None, 0))
        assert await store.commit() == ()
        assert store.revision == 1


async def test_deletion_returns_the_last_content_at_its_own_revision() -> None:
    async with Store() as store:
        made = await put(store, "/a", 7)
        gone = await remove(store, "/a")
        assert store.get("/a") is None
        assert (number(gone.data), version(gone.data)) == (7, made.revision + 1)


async def test_deletion_tells_the_content_its_writer_gave() -> None:
    async with Store() as store:
        made = await put(store, "/a", 7)
        (gone,) = await store.commit(Write("/a", None, made.revision, final=body(8)))
        assert (number(gone.data), version(gone.data)) == (8, gone.revision)


async def test_range_gives_one_prefix_in_order_and_in_pages() -> None:
    async with Store() as store:
        for path in ("//pods/b/1", "//pods/a/2", "//pods/a-b/1", "//pods/a/1", "//nodes//x"):
            await put(store, path)
        # As etcd sorts: a dash before a slash.
        everything = ["//pods/a-b/1", "//pods/a/1", "//pods/a/2", "//pods/b/1"]
        first = store.range("//pods/", limit=3)
        assert [record.path for record in first.records] == everything[:3]
        assert (first.more, first.remaining, first.revision) == (True, 1, store.revision)
        rest = store.range("//pods/", start_after=first.records[-1].path, limit=3)
        assert [record.path for record in rest.records] == everything[3:]
        assert not rest.more
        assert store.count("//pods/a/") == 2


async def test_older_revision_reads_as_it_was_then() -> None:
    async with Store() as store:
        for path in ("/p/a", "/p/b", "/p/c"):
            await put(store, path, 1)
        then = store.revision
        await put(store, "/p/b", 2)
        await remove(store, "/p/a")
        await put(store, "/p/a", 3)
        await put(store, "/p/aa", 4)
        await remove(store, "/p/c")
        old = store.range("/p/", at=then)
        assert old.revision == then
        assert [(record.path, number(record.data)) for record in old.records] == [
            ("/p/a", 1),
            ("/p/b", 1),
            ("/p/c", 1),
        ]
        page = store.range("/p/", start_after="/p/a", limit=1, at=then)
        assert [record.path for record in page.records] == ["/p/b"]
        assert page.remaining == 1


async def test_revision_in_the_future_or_forgotten_cannot_be_read() -> None:
    async with Store() as store:
        for value in range(3):
            await put(store, "/a", value)
        with pytest.raises(TooNew, match="the newest is 4"):
            store.range("/", at=5)
        with pytest.raises(TooNew):
            await store.compact(5)
        await store.compact(3)
        await store.compact(2)  # was done already
        assert store.compacted == 3
        with pytest.raises(Compacted, match="the oldest one known is 3"):
            store.range("/", at=2)
        assert number(store.range("/", at=3).records[0].data) == 1


async def test_history_is_bounded_by_changes() -> None:
    async with Store(keep=Retention(changes=80)) as store:
        for value in range(1000):
            await put(store, "/a", value)
            assert store.revision - store.compacted <= 90
        assert store.revision - store.compacted >= 80


async def test_history_is_bounded_by_what_only_it_keeps() -> None:
    async with Store(keep=Retention(size=10_000)) as store:
        for value in range(100):
            await store.commit(Write(f"/new/{value}", body(value, text="x" * 1000), 0))
        assert store.compacted == 0, "what is current costs nothing"
        revision = 0
        for value in range(100):
            (record,) = await store.commit(Write("/a", body(value, text="x" * 1000), revision))
            revision = record.revision
            assert value < 5 or 7 <= revision - store.compacted <= 10 or store.compacted == 0
        assert store.compacted > 100


async def test_closed_store_takes_no_commits_and_no_watches() -> None:
    store = Store()
    with pytest.raises(StoreFailed, match="closed"):
        await put(store, "/a")
    async with store:
        await put(store, "/a")
    with pytest.raises(StoreFailed, match="closed"):
        await put(store, "/b")
    with pytest.raises(StoreFailed, match="closed"):
        store.watch("/", after=0)


async def test_what_was_deleted_is_remembered_unless_something_else_has_its_place() -> None:
    async with Store() as store:
        for path, value in (("/a", 1), ("/b", 2), ("/c", 3), ("/x", 4)):
            await put(store, path, value)
        for path in ("/a", "/b", "/x"):
            await remove(store, path)
        await put(store, "/b", 5)
        assert [(each.path, number(each.data)) for each in store.departed("/")] == [("/a", 1), ("/x", 4)]
        assert [each.path for each in store.departed("/x")] == ["/x"]
    # The story of a plane is told when it has ended.
    assert [each.path for each in store.departed("/a")] == ["/a"]
