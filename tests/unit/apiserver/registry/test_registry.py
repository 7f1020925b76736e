"""Writes as transactions on the store."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.records import StoreEvent
from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.testing.clock import FakeClock
from support.builders.objects import pod_body
from support.servers.plane import TEST_CALL, RegistryHarness, registry_harness, stored_object

PUT = msgspec.structs.replace(TEST_CALL, is_put=True)


@pytest.fixture
async def at() -> AsyncIterator[RegistryHarness]:
    async with registry_harness(FakeClock()) as made:
        yield made


def config(name: str = "a", **data: str) -> JSON:
    return {"metadata": {"name": name}, "data": data}


async def refusal(work: Any) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await work
    return caught.value


async def test_new_object_gets_the_fields_that_only_the_server_sets(at: RegistryHarness) -> None:
    sent = {"metadata": {"name": "a", "uid": "mine", "generation": 9, "deletionTimestamp": "x"}}
    created = await at.create("configmaps", sent)
    assert created["metadata"]["uid"] != "mine"
    assert created["metadata"]["namespace"] == "ns"
    assert created["metadata"].keys() >= {"creationTimestamp", "resourceVersion"}
    assert "deletionTimestamp" not in created["metadata"]
    # Kinds that count no changes keep what the client says.
    assert created["metadata"]["generation"] == 9


async def test_name_is_generated_from_its_prefix(at: RegistryHarness) -> None:
    made = await at.create("configmaps", {"metadata": {"generateName": "job-"}})
    assert made["metadata"]["name"].startswith("job-")
    assert len(made["metadata"]["name"]) == len("job-") + 5


async def test_a_generated_name_that_is_taken_is_generated_again(at: RegistryHarness) -> None:
    names = set()
    for _ in range(3):
        # With the same random names, the second object collides with the first unless another name is tried.
        random.seed(1)
        made = await at.create("configmaps", {"metadata": {"generateName": "job-"}})
        names.add(made["metadata"]["name"])
    assert len(names) == 3


async def test_a_service_that_becomes_external_name_loses_its_cluster_fields(at: RegistryHarness) -> None:
    spec = {"ports": [{"port": 80}]}
    made = await at.create("services", {"metadata": {"name": "s"}, "spec": spec})
    assert made["spec"]["internalTrafficPolicy"] == "Cluster"
    renamed = {**made["spec"], "type": "ExternalName", "externalName": "example.com"}
    found = await at.put("services", {**made, "spec": renamed})
    assert not {"internalTrafficPolicy", "clusterIP", "ipFamilies"} & found["spec"].keys()


async def test_second_object_of_a_name_is_refused(at: RegistryHarness) -> None:
    await at.create("configmaps", config())
    refused = await refusal(at.create("configmaps", config()))
    assert (refused.code, refused.reason, refused.message) == (
        409,
        "AlreadyExists",
        'configmaps "a" already exists',
    )


async def test_namespace_must_exist(at: RegistryHarness) -> None:
    entry = at.entry("configmaps")
    refused = await refusal(at.registry.create(TEST_CALL, entry, "nowhere", config()))
    assert (refused.code, refused.message) == (404, 'namespaces "nowhere" not found')


async def test_dry_run_stores_nothing(at: RegistryHarness) -> None:
    before = at.store.revision
    dry = WriteContext(field_manager="tester", dry_run=True)
    assert (await at.create("configmaps", config(k="v"), call=dry))["data"] == {"k": "v"}
    assert at.store.revision == before
    refused = await refusal(at.registry.update(dry, at.entry("configmaps"), Key("ns", "a"), lambda old: old or {}))
    assert refused.code == 404


async def test_change_that_makes_no_difference_is_not_written(at: RegistryHarness) -> None:
    made = await at.create("configmaps", config(k="v"))
    again = await at.put("configmaps", config(k="v"))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_stale_version_is_a_conflict(at: RegistryHarness) -> None:
    made = await at.create("configmaps", config())
    await at.put("configmaps", config(k="v"))
    stale = {"metadata": {"name": "a", "resourceVersion": made["metadata"]["resourceVersion"]}}
    refused = await refusal(at.put("configmaps", stale, call=PUT))
    assert (refused.code, refused.reason) == (409, "Conflict")
    assert at.get("configmaps", "a")["data"] == {"k": "v"}


async def test_change_without_a_version_is_tried_again(at: RegistryHarness) -> None:
    await at.create("configmaps", config(n="0"))

    def counted(old: JSON | None) -> JSON:
        assert old is not None
        old["data"]["n"] = str(int(old["data"]["n"]) + 1)
        return old

    async with asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(at.registry.update(TEST_CALL, at.entry("configmaps"), Key("ns", "a"), counted))
    assert at.get("configmaps", "a")["data"] == {"n": "5"}


@pytest.mark.parametrize(("plural", "group"), [("leases", "coordination.k8s.io"), ("poddisruptionbudgets", "policy")])
async def test_some_kinds_are_not_replaced_without_a_version(at: RegistryHarness, plural: str, group: str) -> None:
    await at.create(plural, {"metadata": {"name": "x"}, "spec": {}}, group)
    refused = await refusal(at.put(plural, {"metadata": {"name": "x"}, "spec": {}}, group, PUT))
    assert refused.code == 422
    assert refused.message == (
        f'{plural}.{group} "x" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
    )


async def test_put_for_another_uid_is_a_conflict_and_patch_of_it_invalid(at: RegistryHarness) -> None:
    await at.create("configmaps", config())
    other: JSON = {"metadata": {"name": "a", "uid": "other"}}
    precondition = msgspec.structs.replace(PUT, expected_uid="other")
    assert (await refusal(at.put("configmaps", dict(other), call=precondition))).code == 409
    refused = await refusal(at.put("configmaps", other))
    assert refused.code == 422
    assert "metadata.uid: Invalid value" in refused.message


async def test_fields_that_the_server_adds_have_no_owner(at: RegistryHarness) -> None:
    created = await at.create("pods", pod_body())
    (owner,) = created["metadata"]["managedFields"]
    owned = owner["fieldsV1"]["f:spec"]
    assert "f:containers" in owned
    assert not owned.keys() & {"f:tolerations", "f:priority", "f:preemptionPolicy"}
    assert created["spec"]["tolerations"]


async def test_invalid_managed_fields_of_a_client_are_ignored(at: RegistryHarness) -> None:
    await at.create("configmaps", config(k="x"))
    odd = {
        "metadata": {"name": "a", "managedFields": [{"operation": "Frob", "apiVersion": "v1"}]},
        "data": {"k": "v"},
    }
    made = await at.put("configmaps", odd)
    assert [owner["operation"] for owner in made["metadata"]["managedFields"]] == ["Update"]


async def test_empty_managed_fields_reset_ownership(at: RegistryHarness) -> None:
    await at.create("configmaps", config(k="v"))
    emptied = await at.put("configmaps", {"metadata": {"name": "a", "managedFields": []}, "data": {"k": "w"}})
    assert "managedFields" not in emptied["metadata"]


async def test_status_write_changes_status_alone(at: RegistryHarness) -> None:
    await at.create("pods", pod_body())
    status = WriteContext(field_manager="kubelet", subresource="status")
    wanted = {**pod_body(nodeName="elsewhere"), "status": {"phase": "Running"}}
    changed = await at.put("pods", wanted, call=status)
    assert changed["status"]["phase"] == "Running"
    assert "nodeName" not in changed["spec"]
    assert changed["metadata"]["generation"] == 1


async def test_binding_assigns_a_pod_to_a_node(at: RegistryHarness) -> None:
    await at.create("pods", pod_body())

    def bound(old: JSON | None) -> JSON:
        assert old is not None
        old["spec"]["nodeName"] = "one"
        return old

    call = WriteContext(field_manager="scheduler", subresource="binding")
    changed = stored_object(await at.registry.update(call, at.entry("pods"), Key("ns", "p"), bound))
    assert changed["spec"]["nodeName"] == "one"
    assert [owner["manager"] for owner in changed["metadata"]["managedFields"]] == ["tester"]


async def test_pod_gets_the_priority_of_its_class(at: RegistryHarness) -> None:
    group = "scheduling.k8s.io"
    await at.create("priorityclasses", {"metadata": {"name": "high"}, "value": 1000}, group)
    made = await at.create("pods", pod_body(priorityClassName="high"))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "PreemptLowerPriority")
    assert (await at.create("pods", pod_body("q")))["spec"]["priority"] == 0
    missing = await refusal(at.create("pods", pod_body("r", priorityClassName="none")))
    assert missing.message == 'pods "r" is forbidden: no PriorityClass with name none was found'
    chosen = await refusal(at.create("pods", pod_body("r", priority=5)))
    assert (chosen.code, "computed 0" in chosen.message) == (403, True)


async def test_default_priority_class_applies_to_pods_that_name_none(at: RegistryHarness) -> None:
    body = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    await at.create("priorityclasses", body, "scheduling.k8s.io")
    made = await at.create("pods", pod_body())
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (7, "usual")


async def test_services_get_addresses_and_release_them(at: RegistryHarness) -> None:
    port: list[JSON] = [{"port": 80}]
    first = await at.create("services", {"metadata": {"name": "a"}, "spec": {"ports": port}})
    address = first["spec"]["clusterIP"]
    assert first["spec"]["clusterIPs"] == [address]
    wish = {"metadata": {"name": "b"}, "spec": {"ports": port, "clusterIP": address}}
    refused = await refusal(at.create("services", msgspec.to_builtins(wish)))
    assert "provided IP is already allocated" in refused.message
    await at.registry.delete(TEST_CALL, at.entry("services"), Key("ns", "a"), DeletionOptions())
    second = {"metadata": {"name": "b"}, "spec": {"ports": [{"port": 80}], "clusterIP": address}}
    assert (await at.create("services", second))["spec"]["clusterIP"] == address


async def test_dry_run_of_a_service_takes_no_address(at: RegistryHarness) -> None:
    dry = WriteContext(field_manager="tester", dry_run=True)
    spec: JSON = {"ports": [{"port": 80}], "type": "NodePort"}
    tried = await at.create("services", {"metadata": {"name": "a"}, "spec": spec}, call=dry)
    wish = {"metadata": {"name": "b"}, "spec": tried["spec"]}
    made = await at.create("services", wish)
    assert made["spec"]["clusterIP"] == tried["spec"]["clusterIP"]
    assert made["spec"]["ports"][0]["nodePort"] == tried["spec"]["ports"][0]["nodePort"]


async def test_node_port_of_another_service_is_refused(at: RegistryHarness) -> None:
    def service(name: str) -> JSON:
        return {
            "metadata": {"name": name},
            "spec": {"type": "NodePort", "ports": [{"port": 1, "nodePort": 30500}]},
        }

    await at.create("services", service("a"))
    refused = await refusal(at.create("services", service("b")))
    assert refused.message == (
        'Service "b" is invalid: spec.ports[0].nodePort: Invalid value: 30500: provided port is already allocated'
    )


async def test_removing_the_last_finalizer_deletes_the_object(at: RegistryHarness) -> None:
    body = {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    await at.create("configmaps", body)
    await at.registry.delete(TEST_CALL, at.entry("configmaps"), Key("ns", "a"), DeletionOptions())
    again = await refusal(at.create("configmaps", config()))
    assert again.message == 'object is being deleted: configmaps "a" already exists'
    freed = await at.put("configmaps", config())
    assert "finalizers" not in freed["metadata"]
    with pytest.raises(StatusError, match="not found"):
        at.get("configmaps", "a")


async def test_objects_that_are_deleted_together_share_commits(tmp_path: Path) -> None:
    commits: list[int] = []

    class CountedJournal(SqliteJournal):
        def write(self, events: Sequence[StoreEvent], *rest: Any, **options: Any) -> None:
            commits.append(len(events))
            super().write(events, *rest, **options)

    async with Store(CountedJournal(tmp_path)) as store:
        harness = RegistryHarness(store, SystemClock())
        await harness.create("namespaces", {"metadata": {"name": "ns"}})
        for number in range(64):
            await harness.create("configmaps", {"metadata": {"name": f"map-{number}"}})
        commits.clear()
        records = store.range(collection_prefix("", "configmaps")).records
        await harness.registry.delete_all(harness.entry("configmaps"), records, DeletionOptions())
        assert store.count(collection_prefix("", "configmaps")) == 0
    assert sum(commits) == 64
    assert len(commits) <= 16


async def test_of_several_refusals_the_first_is_raised(at: RegistryHarness) -> None:
    for name in ("default", "kube-public", "kube-system"):
        await at.create("namespaces", {"metadata": {"name": name}})
    records = at.store.range(collection_prefix("", "namespaces")).records
    with pytest.raises(StatusError, match=r'namespaces "default" is forbidden: this namespace may not be deleted'):
        await at.registry.delete_all(at.entry("namespaces"), records, DeletionOptions())
