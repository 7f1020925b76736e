"""The records of notifications in a ConfigMap, on the real server and on ours."""

from gangline.api.core import ConfigMap
from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.notify.plan.journal import MAX_BYTES
from gangline.notify.records import ConfigMapRecords


async def test_records_are_created_changed_and_deleted_one_by_one(client: Client, namespace: str) -> None:
    records = ConfigMapRecords(client, Key(namespace, "a.b-notifications"))
    assert await records.load() == {}
    await records.save({"since": "now"}, lambda: {"since": "now"})
    await records.save({"uid-1": "[]", "uid-2": "[]"}, dict)
    await records.save({"uid-1": None, "uid-2": "[[]]"}, dict)
    assert await records.load() == {"since": "now", "uid-2": "[[]]"}


async def test_records_that_somebody_deleted_are_written_again_completely(client: Client, namespace: str) -> None:
    key = Key(namespace, "notifications")
    records = ConfigMapRecords(client, key)
    await records.save({"since": "now"}, lambda: {"since": "now"})
    await client.delete(ConfigMap, key)
    await records.save({"uid-2": "[]"}, lambda: {"since": "now", "uid-1": "[]", "uid-2": "[]"})
    assert await records.load() == {"since": "now", "uid-1": "[]", "uid-2": "[]"}


async def test_as_many_records_as_a_journal_has_fit(client: Client, namespace: str) -> None:
    records = ConfigMapRecords(client, Key(namespace, "notifications"))
    uid, text = "7d9c0d5e-3a55-4c9e-9f3b-", '[["created-1767268801","running-1767268802"],1767268802]'
    most = {f"{uid}{number:012}": text for number in range(MAX_BYTES // (len(uid) + 12 + len(text)))}
    await records.save(most, lambda: most)
    assert await records.load() == most
    assert len(most) > 9000
