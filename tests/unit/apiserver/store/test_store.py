"""Commits, reads, older revisions and compaction, in memory."""

import json

import pytest

from gangline.apiserver.store.errors import RevisionCompacted, RevisionTooNew, StaleWrite, StoreFailed
from gangline.apiserver.store.records import HistoryRetention, StoreWrite
from gangline.apiserver.store.store import Store
from support.property.stores import put_thing, remove_thing, stored_version, thing_body, thing_number


async def test_record_has_the_object_as_clients_get_it() -> None:
    async with Store() as store:
        mine = thing_body(1)
        (record,) = await store.commit(StoreWrite("/a", mine, 0))
        assert store.get("/a") is record
        assert json.loads(record.data) == mine
        assert stored_version(record.data) == record.revision == store.revision


async def test_empty_store_is_not_at_revision_zero() -> None:
    async with Store() as store:  # "0" means "any" in lists and watches
        assert store.revision == 1
        assert (await put_thing(store, "/a")).revision == 2


async def test_write_needs_the_revision_it_was_based_on() -> None:
    async with Store() as store:
        first = await put_thing(store, "/a", 1)
        for expected in (0, first.revision - 1, first.revision + 1):
            with pytest.raises(StaleWrite) as caught:
                await store.commit(StoreWrite("/a", thing_body(2), expected))
            assert caught.value.current is first
        with pytest.raises(StaleWrite, match="/b is absent, expected revision 7") as caught:
            await store.commit(StoreWrite("/b", thing_body(2), 7))
        assert caught.value.current is None
        (second,) = await store.commit(StoreWrite("/a", thing_body(2), first.revision))
        assert second.revision == first.revision + 1


async def test_commit_is_all_or_none() -> None:
    async with Store() as store:
        existing = await put_thing(store, "/a")
        with pytest.raises(StaleWrite):
            await store.commit(StoreWrite("/b", thing_body(1), 0), StoreWrite("/a", thing_body(1), 0))
        with pytest.raises(TypeError):
            await store.commit(StoreWrite("/b", thing_body(1), 0), StoreWrite("/c", thing_body(1, what=object()), 0))
        assert store.range("").records == (existing,)
        assert store.revision == existing.revision


async def test_each_write_of_a_commit_has_its_own_revision() -> None:
    async with Store() as store:
        there = await put_thing(store, "/a")
        records = await store.commit(
            StoreWrite("/c", thing_body(1), 0),
            StoreWrite("/a", None, there.revision),
            StoreWrite("/b", thing_body(2), 0),
        )
        assert [record.revision for record in records] == [3, 4, 5]
        assert [record.path for record in store.range("").records] == ["/b", "/c"]


async def test_invalid_commits_are_refused() -> None:
    async with Store() as store:
        with pytest.raises(ValueError, match="twice"):
            await store.commit(StoreWrite("/a", thing_body(1), 0), StoreWrite("/a", thing_body(2), 0))
        with pytest.raises(ValueError, match="needs an existing object"):
            await store.commit(StoreWrite("/a", None, 0))
        assert await store.commit() == ()
        assert store.revision == 1


async def test_deletion_returns_the_last_content_at_its_own_revision() -> None:
    async with Store() as store:
        made = await put_thing(store, "/a", 7)
        gone = await remove_thing(store, "/a")
        assert store.get("/a") is None
        assert (thing_number(gone.data), stored_version(gone.data)) == (7, made.revision + 1)


async def test_deletion_has_the_final_body_of_its_writer() -> None:
    async with Store() as store:
        made = await put_thing(store, "/a", 7)
        (gone,) = await store.commit(StoreWrite("/a", None, made.revision, final_body=thing_body(8)))
        assert (thing_number(gone.data), stored_version(gone.data)) == (8, gone.revision)


async def test_range_gives_one_prefix_in_order_and_in_pages() -> None:
    async with Store() as store:
        for path in ("//pods/b/1", "//pods/a/2", "//pods/a-b/1", "//pods/a/1", "//nodes//x"):
            await put_thing(store, path)
        # The order of etcd: a dash sorts before a slash.
        everything = ["//pods/a-b/1", "//pods/a/1", "//pods/a/2", "//pods/b/1"]
        first = store.range("//pods/", limit=3)
        assert [record.path for record in first.records] == everything[:3]
        assert (first.has_more, first.remaining, first.revision) == (True, 1, store.revision)
        rest = store.range("//pods/", start_after=first.records[-1].path, limit=3)
        assert [record.path for record in rest.records] == everything[3:]
        assert not rest.has_more
        assert store.count("//pods/a/") == 2


async def test_older_revision_can_be_read() -> None:
    async with Store() as store:
        for path in ("/p/a", "/p/b", "/p/c"):
            await put_thing(store, path, 1)
        then = store.revision
        await put_thing(store, "/p/b", 2)
        await remove_thing(store, "/p/a")
        await put_thing(store, "/p/a", 3)
        await put_thing(store, "/p/aa", 4)
        await remove_thing(store, "/p/c")
        old = store.range("/p/", at=then)
        assert old.revision == then
        assert [(record.path, thing_number(record.data)) for record in old.records] == [
            ("/p/a", 1),
            ("/p/b", 1),
            ("/p/c", 1),
        ]
        page = store.range("/p/", start_after="/p/a", limit=1, at=then)
        assert [record.path for record in page.records] == ["/p/b"]
        assert page.remaining == 1


async def test_future_or_compacted_revision_cannot_be_read() -> None:
    async with Store() as store:
        for value in range(3):
            await put_thing(store, "/a", value)
        with pytest.raises(RevisionTooNew, match="the newest is 4"):
            store.range("/", at=5)
        with pytest.raises(RevisionTooNew):
            await store.compact(5)
        await store.compact(3)
        await store.compact(2)  # already done
        assert store.compacted_revision == 3
        with pytest.raises(RevisionCompacted, match="the oldest is 3"):
            store.range("/", at=2)
        assert thing_number(store.range("/", at=3).records[0].data) == 1


async def test_history_is_bounded_by_changes() -> None:
    async with Store(retention=HistoryRetention(max_changes=80)) as store:
        for value in range(1000):
            await put_thing(store, "/a", value)
            assert store.revision - store.compacted_revision <= 90
        assert store.revision - store.compacted_revision >= 80


async def test_history_is_bounded_by_the_bytes_that_only_it_retains() -> None:
    async with Store(retention=HistoryRetention(max_bytes=10_000)) as store:
        for value in range(100):
            await store.commit(StoreWrite(f"/new/{value}", thing_body(value, text="x" * 1000), 0))
        assert store.compacted_revision == 0, "what is current costs nothing"
        revision = 0
        for value in range(100):
            (record,) = await store.commit(StoreWrite("/a", thing_body(value, text="x" * 1000), revision))
            revision = record.revision
            assert value < 5 or 7 <= revision - store.compacted_revision <= 10 or store.compacted_revision == 0
        assert store.compacted_revision > 100


async def test_closed_store_refuses_commits_and_watches() -> None:
    store = Store()
    with pytest.raises(StoreFailed, match="closed"):
        await put_thing(store, "/a")
    async with store:
        await put_thing(store, "/a")
    with pytest.raises(StoreFailed, match="closed"):
        await put_thing(store, "/b")
    with pytest.raises(StoreFailed, match="closed"):
        store.watch("/", after=0)


async def test_deleted_records_are_listed_unless_created_again() -> None:
    async with Store() as store:
        for path, value in (("/a", 1), ("/b", 2), ("/c", 3), ("/x", 4)):
            await put_thing(store, path, value)
        for path in ("/a", "/b", "/x"):
            await remove_thing(store, path)
        await put_thing(store, "/b", 5)
        assert [(record.path, thing_number(record.data)) for record in store.deleted_records("/")] == [
            ("/a", 1),
            ("/x", 4),
        ]
        assert [record.path for record in store.deleted_records("/x")] == ["/x"]
    # Closed stores can still be read, for the archive of a run.
    assert [record.path for record in store.deleted_records("/a")] == ["/a"]
