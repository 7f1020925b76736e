"""Every verb of the client, against every server we claim to work with."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from gangline.api.codec.codec import to_json
from gangline.api.core import ConfigMap, Event, Lease, LeaseSpec, Namespace, Pod
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.kube.client import Client, metadata_only
from gangline.kube.config.connection import Connection, Impersonation
from gangline.kube.config.credentials import StaticToken
from gangline.kube.discovery import is_served, server_resources, server_version
from gangline.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Unauthorized,
)
from gangline.kube.options import DeletionPropagation, FieldValidation, PatchType, WriteOptions
from gangline.kube.transport.http import HttpTransport
from gangline.kube.watch import ChangeType, ObjectChange
from support.builders.objects import (
    DEPLOYMENTS,
    WIDGETS,
    config_map_body,
    deployment_body,
    ensure_crd_served,
    pod_body,
    unique_name,
)
from support.waiting import wait_until

REVIEWS = Resource("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", dict, namespaced=False)


@pytest.fixture
async def widgets(client: Client) -> Resource[JSON]:
    await ensure_crd_served(client, WIDGETS)
    return WIDGETS


# Create and read


async def test_what_is_created_can_be_read(client: Client, namespace: str) -> None:
    made = await client.create(ConfigMap, config_map_body("one", namespace, a="b"))
    assert made.data == {"a": "b"}
    assert made.metadata.uid
    assert await client.get(ConfigMap, Key(namespace, "one")) == made
    whole = await client.get(client.unstructured(ConfigMap), Key(namespace, "one"))
    assert whole["kind"] == "ConfigMap"
    assert whole["metadata"]["managedFields"][0]["manager"] == "gangline"


async def test_of_what_is_only_written_the_server_returns_the_metadata(
    client: Client, namespace: str, widgets: Resource[JSON]
) -> None:
    for whole in (client.scheme.of(ConfigMap), widgets):
        resource, key = metadata_only(whole), Key(namespace, "one")
        made = await client.create(resource, {"metadata": {"name": "one"}}, namespace=namespace)
        changed = await client.patch(resource, key, {"metadata": {"labels": {"a": "b"}}})
        seen = await client.get(resource, key)
        assert {answer.kind for answer in (made, changed, seen)} == {"PartialObjectMetadata"}
        assert (made.metadata.uid, changed.metadata) == (seen.metadata.uid, seen.metadata)
        await client.delete(resource, key, uid=made.metadata.uid)
        with pytest.raises(NotFound):
            await client.get(resource, key)


async def test_generated_name_is_the_servers(client: Client, namespace: str) -> None:
    body = {"metadata": {"generateName": "one-"}}
    made = [await client.create(ConfigMap, body, namespace=namespace) for _ in range(2)]
    assert made[0].metadata.name.startswith("one-")
    assert made[0].metadata.name != made[1].metadata.name


async def test_name_that_is_taken_is_already_exists(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map_body("one", namespace))
    with pytest.raises(AlreadyExists) as caught:
        await client.create(ConfigMap, config_map_body("one", namespace))
    assert caught.value.status.details.name == "one"


async def test_name_that_is_not_there_is_not_found(client: Client, namespace: str) -> None:
    key = Key(namespace, "nothing")
    with pytest.raises(NotFound, match="nothing"):
        await client.get(ConfigMap, key)
    with pytest.raises(NotFound):
        await client.patch(ConfigMap, key, {})
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, key)


async def test_wrong_object_is_invalid_with_every_cause(client: Client, namespace: str) -> None:
    body = pod_body("Not A Name", namespace, restartPolicy="Perhaps")
    with pytest.raises(Invalid) as caught:
        await client.create(Pod, body)
    assert {cause.field for cause in caught.value.causes} >= {"metadata.name", "spec.restartPolicy"}


async def test_namespace_of_the_body_must_be_the_callers(client: Client, namespace: str) -> None:
    with pytest.raises(BadRequest):
        await client.create(ConfigMap, config_map_body("one", "other"), namespace=namespace)


async def test_dry_run_says_what_would_be_and_stores_nothing(client: Client, namespace: str) -> None:
    rehearsal = client.with_options(WriteOptions(dry_run=True))
    made = await rehearsal.create(ConfigMap, config_map_body("one", namespace, a="b"))
    assert made.data == {"a": "b"}
    with pytest.raises(NotFound):
        await client.get(ConfigMap, Key(namespace, "one"))
    await client.create(ConfigMap, config_map_body("two", namespace, a="b"))
    assert (await rehearsal.patch(ConfigMap, Key(namespace, "two"), {"data": {"a": "c"}})).data == {"a": "c"}
    await rehearsal.delete(ConfigMap, Key(namespace, "two"))
    await rehearsal.delete_all(ConfigMap, Selector(namespace))
    assert (await client.get(ConfigMap, Key(namespace, "two"))).data == {"a": "b"}


# Lists


async def test_pages_give_everything_once(client: Client, namespace: str) -> None:
    for index in range(7):
        await client.create(ConfigMap, config_map_body(f"number-{index}", namespace, labels={"of": "seven"}))
    where = Selector(namespace, labels="of=seven")
    pages = [page async for page in client.pages(ConfigMap, where, limit=3)]
    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.metadata.resource_version for page in pages}) == 1
    names = [found.metadata.name async for found in client.iterate(ConfigMap, where, limit=3)]
    assert names == [f"number-{index}" for index in range(7)]
    assert len((await client.list(ConfigMap, where)).items) == 7


async def test_selectors_select(client: Client, namespace: str) -> None:
    for name, tier in (("a", "one"), ("b", "two"), ("c", "three")):
        await client.create(ConfigMap, config_map_body(name, namespace, labels={"tier": tier}))

    async def names(**selector: str) -> list[str]:
        found = await client.list(ConfigMap, Selector(namespace, **selector))
        return [item.metadata.name for item in found.items]

    assert await names(labels="tier in (one, two)") == ["a", "b"]
    assert await names(labels="tier!=one,tier") == ["b", "c"]
    assert await names(fields="metadata.name=b") == ["b"]
    assert await names(labels="tier=four") == []


async def test_list_of_all_namespaces_has_this_one(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map_body("one", namespace))
    found = await client.list(ConfigMap, Selector(fields="metadata.name=one"))
    assert Key(namespace, "one") in {item.metadata.key for item in found.items}


async def test_plain_list_gives_whole_objects(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map_body("one", namespace, a="b"))
    page = await client.list(client.unstructured(ConfigMap), Selector(namespace, fields="metadata.name=one"))
    assert page.items[0]["data"] == {"a": "b"}


async def test_snapshot_that_the_server_forgot_midway_is_gone(
    client: Client, namespace: str, forget: Callable[[], Awaitable[None]]
) -> None:
    for index in range(3):
        await client.create(ConfigMap, config_map_body(f"number-{index}", namespace))
    pages = client.pages(ConfigMap, Selector(namespace), limit=1)
    assert len((await anext(pages)).items) == 1
    await client.create(ConfigMap, config_map_body("late", namespace))
    await forget()
    with pytest.raises(Gone):
        await anext(pages)


# Patches


async def test_merge_patch_changes_and_removes(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map_body("one", namespace, a="1", b="2"))
    changed = await client.patch(ConfigMap, Key(namespace, "one"), {"data": {"a": "3", "b": None}})
    assert changed.data == {"a": "3"}


async def test_json_patch_does_what_it_lists(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map_body("one", namespace, a="1", b="2"))
    steps = [{"op": "add", "path": "/data/c", "value": "3"}, {"op": "remove", "path": "/data/a"}]
    changed = await client.patch(ConfigMap, Key(namespace, "one"), steps, form=PatchType.JSON)
    assert changed.data == {"b": "2", "c": "3"}
    failing = [{"op": "test", "path": "/data/b", "value": "other"}]
    with pytest.raises(Invalid):
        await client.patch(ConfigMap, Key(namespace, "one"), failing, form=PatchType.JSON)


async def test_strategic_patch_merges_lists_by_key(client: Client, namespace: str, widgets: Resource[JSON]) -> None:
    await client.create(DEPLOYMENTS, deployment_body("one", namespace))
    added = [{"name": "side", "image": "none"}]
    patch = {"spec": {"template": {"spec": {"containers": added}}}}
    key = Key(namespace, "one")
    changed = await client.patch(DEPLOYMENTS, key, patch, form=PatchType.STRATEGIC)
    names = {container["name"] for container in changed["spec"]["template"]["spec"]["containers"]}
    assert names == {"main", "side"}
    await client.create(widgets, {"metadata": {"name": "one"}}, namespace=namespace)
    with pytest.raises(ApiError) as caught:
        await client.patch(widgets, key, {"spec": {}}, form=PatchType.STRATEGIC)
    assert caught.value.code == 415


@pytest.mark.parametrize("form", [PatchType.MERGE, PatchType.JSON])
async def test_patch_for_an_older_version_is_a_conflict(client: Client, namespace: str, form: PatchType) -> None:
    made = await client.create(ConfigMap, config_map_body("one", namespace, a="1"))
    key, old = made.metadata.key, made.metadata.resource_version
    body: JSON | list[JSON] = {"data": {"a": "2"}}
    if form is PatchType.JSON:
        body = [{"op": "replace", "path": "/data/a", "value": "2"}]
    changed = await client.patch(ConfigMap, key, body, form=form, resource_version=old)
    assert changed.data == {"a": "2"}
    with pytest.raises(Conflict):
        await client.patch(ConfigMap, key, body, form=form, resource_version=old)


async def test_applied_fields_have_an_owner_until_they_are_taken(client: Client, namespace: str) -> None:
    body = {"metadata": {"name": "one", "namespace": namespace}, "data": {"a": "1"}}
    first = await client.apply(ConfigMap, body, owner="first")
    again = await client.apply(ConfigMap, body, owner="first")
    assert first.metadata.resource_version == again.metadata.resource_version
    other = {**body, "data": {"a": "2"}}
    with pytest.raises(Conflict, match='"first"') as caught:
        await client.apply(ConfigMap, other, owner="second")
    assert not isinstance(caught.value, AlreadyExists)
    assert [cause.field for cause in caught.value.causes] == [".data.a"]
    assert (await client.apply(ConfigMap, other, owner="second", force=True)).data == {"a": "2"}
    # What its owner no longer applies is removed.
    assert (await client.apply(ConfigMap, {**body, "data": {}}, owner="second")).data == {}


# Status and scale


async def test_status_of_a_pod_is_written_apart_from_its_spec(client: Client, namespace: str) -> None:
    await client.create(Pod, pod_body("one", namespace))
    key = Key(namespace, "one")
    body = {"spec": {"schedulerName": "other"}, "status": {"phase": "Running", "podIP": "10.1.2.3"}}
    changed = await client.patch(Pod, key, body, subresource="status")
    assert changed.status.phase == "Running"
    assert changed.spec.scheduler_name == "default-scheduler"


async def test_status_of_a_custom_resource_is_written_apart(
    client: Client, namespace: str, widgets: Resource[JSON]
) -> None:
    metadata = {"name": "one", "namespace": namespace}
    body = {"metadata": metadata, "spec": {"size": "small"}, "status": {"phase": "Ignored"}}
    assert "status" not in await client.create(widgets, body)
    applied = {"metadata": metadata, "status": {"phase": "Ready"}}
    changed = await client.apply(widgets, applied, owner="me", subresource="status")
    assert changed["status"] == {"phase": "Ready"}
    assert changed["metadata"]["generation"] == 1
    patched = await client.patch(widgets, Key(**metadata), {"status": {"phase": "Done"}}, subresource="status")
    assert patched["status"] == {"phase": "Done"}


async def test_scale_is_read_and_set(client: Client, namespace: str, widgets: Resource[JSON]) -> None:
    await client.create(DEPLOYMENTS, deployment_body("one", namespace))
    await client.create(widgets, {"metadata": {"name": "one"}, "spec": {"replicas": 1}}, namespace=namespace)
    key = Key(namespace, "one")
    for kind in (DEPLOYMENTS, widgets):
        assert (await client.scale(kind, key)).spec.replicas == 1
        assert (await client.scale(kind, key, 3)).spec.replicas == 3
        assert (await client.get(kind, key))["spec"]["replicas"] == 3
    with pytest.raises(NotFound):
        await client.scale(ConfigMap, key)


# Delete


async def test_delete_of_another_object_of_that_name_is_a_conflict(client: Client, namespace: str) -> None:
    made = await client.create(ConfigMap, config_map_body("one", namespace))
    key = made.metadata.key
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, key, uid="00000000-0000-0000-0000-000000000000")
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, key, resource_version="1")
    await client.delete(ConfigMap, key, uid=made.metadata.uid, resource_version=made.metadata.resource_version)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, key)


@pytest.mark.parametrize(
    ("propagation", "change", "finalizers"),
    [
        (DeletionPropagation.BACKGROUND, ChangeType.DELETED, ()),
        (DeletionPropagation.FOREGROUND, ChangeType.MODIFIED, ("foregroundDeletion",)),
        (DeletionPropagation.ORPHAN, ChangeType.MODIFIED, ("orphan",)),
    ],
)
async def test_propagation_is_left_to_the_garbage_collector(
    client: Client,
    namespace: str,
    propagation: DeletionPropagation,
    change: ChangeType,
    finalizers: tuple[str, ...],
) -> None:
    made = await client.create(ConfigMap, config_map_body("one", namespace))
    await client.delete(ConfigMap, made.metadata.key, propagation=propagation)
    where = Selector(namespace, fields="metadata.name=one")
    async with (
        asyncio.timeout(60),
        aclosing(client.watch(ConfigMap, where, since=made.metadata.resource_version)) as events,
    ):
        first = await anext(events)
    # What waits for the collector is marked; whether one is there to take it is another matter.
    assert isinstance(first, ObjectChange)
    assert (first.type, first.object.metadata.finalizers) == (change, finalizers)


async def test_grace_of_a_pod_on_a_node_is_kept_until_forced(client: Client, namespace: str) -> None:
    made = await client.create(Pod, pod_body("one", namespace, nodeName="nowhere"))
    key = made.metadata.key
    await client.delete(Pod, key, grace=timedelta(seconds=7))
    assert (await client.get(Pod, key)).metadata.deletion_timestamp
    await client.delete(Pod, key, grace=timedelta())
    with pytest.raises(NotFound):
        await client.get(Pod, key)


async def test_delete_all_takes_what_is_selected(client: Client, namespace: str) -> None:
    for name, tier in (("a", "one"), ("b", "one"), ("c", "two")):
        await client.create(ConfigMap, config_map_body(name, namespace, labels={"tier": tier}))
    await client.delete_all(ConfigMap, Selector(namespace, labels="tier=one"))
    left = await client.list(ConfigMap, Selector(namespace, labels="tier"))
    assert [item.metadata.name for item in left.items] == ["c"]


# Watch


async def test_watch_tells_what_happened_since(client: Client, namespace: str) -> None:
    where = Selector(namespace, labels="watched")
    since = (await client.list(ConfigMap, where)).metadata.resource_version
    await client.create(ConfigMap, config_map_body("other", namespace))
    await client.create(ConfigMap, config_map_body("one", namespace, labels={"watched": ""}, a="1"))
    await client.patch(ConfigMap, Key(namespace, "one"), {"data": {"a": "2"}})
    await client.delete(ConfigMap, Key(namespace, "one"))
    seen: list[tuple[ChangeType, str]] = []
    versions: list[int] = []
    async with aclosing(client.watch(ConfigMap, where, since=since)) as events:
        async for event in events:
            if isinstance(event, ObjectChange):
                seen.append((event.type, event.object.data["a"]))
                versions.append(int(event.resource_version))
            if len(seen) == 3:
                break
    assert seen == [(ChangeType.ADDED, "1"), (ChangeType.MODIFIED, "2"), (ChangeType.DELETED, "2")]
    assert versions == sorted(set(versions))


async def test_watch_ends_when_its_time_is_over(client: Client, namespace: str) -> None:
    since = (await client.list(ConfigMap, Selector(namespace))).metadata.resource_version
    watch = client.watch(ConfigMap, Selector(namespace), since=since, timeout=timedelta(seconds=1))
    assert not [event async for event in watch if isinstance(event, ObjectChange)]


# Who asks


async def test_stranger_is_unauthorized(server: Connection) -> None:
    stranger = msgspec.structs.replace(server, credentials=StaticToken("nonsense", "test"))
    async with HttpTransport(stranger) as transport:
        with pytest.raises(Unauthorized):
            await Client(transport).list(Namespace)


async def test_nobody_may_do_nothing(nobody: Connection) -> None:
    async with HttpTransport(nobody) as transport:
        client = Client(transport)
        with pytest.raises(Forbidden, match='User "nobody" cannot list'):
            await client.list(Namespace)
        with pytest.raises(Forbidden):
            await anext(client.watch(Namespace, since="0"))


async def test_client_acts_as_somebody_else(server: Connection) -> None:
    jane = Impersonation("jane", ("system:masters", "dev"), extra={"reason": ("test",)})
    async with HttpTransport(msgspec.structs.replace(server, impersonate=jane)) as transport:
        user = (await Client(transport).create(REVIEWS, {}))["status"]["userInfo"]
    assert user["username"] == "jane"
    assert {"dev", "system:masters"} <= set(user["groups"])
    assert user["extra"] == {"reason": ["test"]}
    joe = Impersonation("joe")
    async with HttpTransport(msgspec.structs.replace(server, impersonate=joe)) as transport:
        with pytest.raises(Forbidden, match='User "joe"'):
            await Client(transport).list(Namespace)


# Warnings and strictness


async def test_unknown_field_is_warned_of_once_or_refused(
    client: Client, namespace: str, widgets: Resource[JSON], told: list[str]
) -> None:
    body = {"metadata": {"generateName": "one-"}, "spec": {"nonsense": 'quoted "text"'}}
    for _ in range(2):
        await client.create(widgets, body, namespace=namespace)
    assert told == ['unknown field "spec.nonsense"']
    strict = client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
    with pytest.raises(BadRequest, match=r"unknown field \"spec\.nonsense\""):
        await strict.create(widgets, body, namespace=namespace)


# Discovery


async def test_discovery_finds_kinds_and_a_new_one(client: Client) -> None:
    fresh = Resource(f"{unique_name('fresh')}.gangline.test", "v1", "Gadget", "gadgets", dict)
    assert not await is_served(client, fresh)
    await ensure_crd_served(client, fresh)

    async def listed() -> bool:
        return any(kind.resource.name == fresh.name for kind in await server_resources(client))

    await wait_until(listed, seconds=20)
    found = {kind.resource.name: kind for kind in await server_resources(client)}
    pods = found["pods"]
    assert pods.resource.namespaced
    assert {"get", "list", "watch", "deletecollection"} <= set(pods.verbs)
    assert {"log", "exec", "binding", "eviction", "status"} <= set(pods.subresources)
    assert "po" in pods.names
    assert not found["nodes"].resource.namespaced
    assert found["deployments.apps"].resource.version == "v1"
    gadgets = found[fresh.name]
    assert gadgets.resource == msgspec.structs.replace(fresh, model=gadgets.resource.model)
    assert (gadgets.short_names, gadgets.categories) == (("ga",), ("all",))
    assert set(gadgets.subresources) == {"status", "scale"}


async def test_version_is_told(client: Client) -> None:
    assert (await server_version(client)).startswith("v1.")


# Times and events


async def test_lease_keeps_microseconds(client: Client, namespace: str) -> None:
    begun = datetime(2026, 1, 2, 3, 4, 5, 67, tzinfo=UTC)
    spec = LeaseSpec(holder_identity="me", lease_duration_seconds=15, acquire_time=begun, renew_time=begun)
    body = {"metadata": {"name": "lease", "namespace": namespace}, "spec": to_json(spec)}
    lease = await client.create(Lease, body)
    assert lease.spec == spec
    renewal = LeaseSpec(renew_time=begun + timedelta(seconds=1))
    renewed = await client.patch(
        Lease,
        lease.metadata.key,
        {"spec": to_json(renewal)},
        resource_version=lease.metadata.resource_version,
    )
    assert renewed.spec.renew_time == begun + timedelta(seconds=1)
    assert renewed.spec.holder_identity == "me"


async def test_event_is_recorded(client: Client, namespace: str) -> None:
    body = {
        "metadata": {"generateName": "one-", "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.000067Z",
        "reportingController": "gangline.test/contract",
        "reportingInstance": "one",
        "action": "Testing",
        "reason": "Tested",
        "note": "all is well",
        "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "one", "namespace": namespace},
    }
    made = await client.create(Event, body)
    assert made.event_time == datetime(2026, 1, 2, 3, 4, 5, 67, tzinfo=UTC)
    assert (await client.get(Event, made.metadata.key)).note == "all is well"
