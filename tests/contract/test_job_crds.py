"""The definitions of the six kinds, on both servers: what they refuse, in which words, and what they let through.

They are defined in a group of our own, so that no other test meets them.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.kinds import JAXJOB, MPIJOB, PADDLEJOB, PYTORCHJOB, TFJOB, TRAINING_KINDS
from gangline.api.kubeflow.training import (
    MULTIKUEUE_MANAGER,
    OUR_MANAGER,
    ExcludedNode,
    JobKind,
    JobStatus,
    RecoveryStatus,
)
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.apiserver.store.store import Store
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, BadRequest, Invalid, NotFound
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.operator.definitions import CRDS
from gangline.schema.crds.job_crds import crd
from support.builders.job_shapes import RECOVERY_RULES, filled_example, valid_specs
from support.cases.invalid_jobs import (
    INVALID_JOBS,
    job_body,
    job_spec,
    pod_template,
    spec_with_containers,
    spec_with_replicas,
    with_field,
)
from support.waiting import wait_until

GROUP = "jobs.contract.example.com"
Job = Resource[JSON]
Define = Callable[..., Awaitable[Job]]


def moved(kind: JobKind, group: str) -> JSON:
    """The definition of a kind, in another group."""
    found = crd(kind)
    found["metadata"]["name"] = f"{kind.plural}.{group}"
    found["spec"]["group"] = group
    return found


@pytest.fixture
def define(client: Client, stores: list[Store]) -> Define:
    """Defines a kind and gives it once it is served."""

    async def defined(kind: JobKind, group: str = GROUP, definition: JSON | None = None) -> Job:
        served: Job = Resource(group, "v1", kind.kind, kind.plural, dict[str, Any])
        # A real server takes seconds to serve one, and as long for all: it is told all that the tests will need.
        others = TRAINING_KINDS if group == GROUP and not stores else ()
        for each in [kind, *(other for other in others if other is not kind)]:
            try:
                await client.create(CRDS, definition or moved(each, group))
            except AlreadyExists:
                break
        await wait_until(lambda: is_served(client, served))
        return served

    return defined


async def is_served(client: Client, kind: Job) -> bool:
    try:
        await client.list(kind)
    except NotFound:
        return False
    return True


@pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)
async def test_server_says_what_is_wrong(client: Client, namespace: str, define: Define, kind: JobKind) -> None:
    served = await define(kind)
    said = {}
    cases = [case for case in INVALID_JOBS if case.kind is kind]
    for case in cases:
        with pytest.raises(Invalid) as caught:
            await client.create(served, job_body(kind, case.spec, case.name), namespace=namespace)
        said[case.title] = caught.value.status.message.partition(" is invalid: ")[2]
    assert said == {case.title: case.message for case in cases}
    assert len(said) == len(cases)


# What is accepted


async def test_definitions_are_taken_without_a_warning(client: Client, told: list[str], define: Define) -> None:
    for kind in TRAINING_KINDS:
        await client.with_options(WriteOptions(dry_run=True, field_validation=FieldValidation.STRICT)).create(
            CRDS, moved(kind, "strict.contract.example.com")
        )
    assert told == []


@pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)
async def test_jobs_as_people_have_them_are_taken(
    client: Client, namespace: str, define: Define, kind: JobKind, told: list[str]
) -> None:
    served = await define(kind)
    strict = client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
    for number, said in enumerate(valid_specs(kind)):
        await strict.create(served, job_body(kind, said, f"j{number}"), namespace=namespace)
    assert told == []


@pytest.mark.parametrize("recovery", ["auto", RECOVERY_RULES], ids=["word", "rules"])
async def test_both_forms_of_recovery_are_stored_as_they_are(
    client: Client, namespace: str, define: Define, told: list[str], recovery: Any
) -> None:
    served = await define(PYTORCHJOB)
    strict = client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
    spec = {**job_spec(PYTORCHJOB), "runPolicy": {"recovery": recovery}}
    name = "word" if recovery == "auto" else "rules"
    created = await strict.create(served, job_body(PYTORCHJOB, spec, name), namespace=namespace)
    assert created["spec"]["runPolicy"]["recovery"] == recovery
    # And as part of the status, what the operator writes about it.
    record = RecoveryStatus(
        action="RestartElsewhere",
        message="restarted elsewhere because of that",
        counts={"rules[0]": 1},
        excluded_nodes=(ExcludedNode(name="n1", until=datetime(2026, 1, 1, tzinfo=UTC), cause="evicted"),),
        memory={"Worker": "12Gi"},
    )
    status = {"status": {"recovery": msgspec.to_builtins(record)}}
    written = await strict.patch(served, Key(namespace, name), status, subresource="status")
    assert msgspec.convert(written["status"]["recovery"], RecoveryStatus) == record
    assert told == []


@pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)
async def test_what_v1_assumes_is_stored(client: Client, namespace: str, define: Define, kind: JobKind) -> None:
    served = await define(kind)
    one = next(iter(job_spec(kind)[kind.replicas]))
    bare = {kind.replicas: {one: {"template": pod_template(kind.container)}}}
    found = await client.create(served, job_body(kind, bare), namespace=namespace)
    policy: JSON = {"suspend": False, "cleanPodPolicy": "None"}
    replica: JSON = {
        "replicas": 1,
        "restartPolicy": str(kind.restart_policy),
        "template": pod_template(kind.container),
    }
    wanted: JSON = {"runPolicy": policy, kind.replicas: {one: replica}}
    if kind is MPIJOB:
        # Replicas depend on the type, restart policies on the API; a clean-up policy here would hide its older twin.
        del replica["replicas"], replica["restartPolicy"], policy["cleanPodPolicy"]
        wanted["slotsPerWorker"] = 1
    assert found["spec"] == wanted


async def test_nothing_of_the_status_is_dropped(client: Client, namespace: str, define: Define) -> None:
    served = await define(JAXJOB)
    await client.create(served, job_body(JAXJOB, job_spec(JAXJOB)), namespace=namespace)
    status = filled_example(JobStatus)
    found = await client.patch(served, Key(namespace, "j"), {"status": status}, subresource="status")
    assert found["status"] == status
    # And it is what our own structs read and write.
    assert to_json(msgspec.convert(found["status"], JobStatus)) == status


async def test_replica_type_that_is_null_is_dropped_as_in_v1(client: Client, namespace: str, define: Define) -> None:
    served = await define(TFJOB)
    said = with_field(job_spec(TFJOB), "tfReplicaSpecs", "PS", to=None)
    found = await client.create(served, job_body(TFJOB, said), namespace=namespace)
    assert found["spec"]["tfReplicaSpecs"].keys() == {"Worker"}


async def test_generated_name_is_judged_as_it_came_out(client: Client, namespace: str, define: Define) -> None:
    served = await define(TFJOB)
    made = {"metadata": {"generateName": "train-"}, "spec": job_spec(TFJOB)}
    found = await client.create(served, made, namespace=namespace)
    assert found["metadata"]["name"].startswith("train-")
    made = {"metadata": {"generateName": "x" * 50}, "spec": job_spec(TFJOB)}
    with pytest.raises(Invalid, match="use a shorter name"):
        await client.create(served, made, namespace=namespace)


async def test_unknown_field_is_named(client: Client, namespace: str, define: Define) -> None:
    served = await define(TFJOB)
    said = with_field(job_spec(TFJOB), "tfReplicaSpecs", "Worker", "template", "spec", "gpus", to=1)
    strict = client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
    with pytest.raises(BadRequest) as caught:
        await strict.create(served, job_body(TFJOB, said), namespace=namespace)
    where = "spec.tfReplicaSpecs.Worker.template.spec.gpus"
    assert f'unknown field "{where}"' in caught.value.status.message


async def test_two_appliers_share_a_pod_template(client: Client, namespace: str, define: Define) -> None:
    served = await define(TFJOB)
    key = {"name": "shared", "namespace": namespace}
    variable = [{"name": "A", "value": "1"}]
    first = spec_with_containers(
        TFJOB, {"name": "tensorflow", "image": "i", "env": variable, "ports": [{"containerPort": 1}]}
    )
    more = [
        {"name": "tensorflow", "env": [{"name": "B", "value": "2"}], "ports": [{"containerPort": 2}]},
        {"name": "log", "image": "l"},
    ]
    pod = {"spec": {"containers": more, "volumes": [{"name": "v", "emptyDir": {}}]}}
    second = {"tfReplicaSpecs": {"Worker": {"template": pod}}}
    await client.apply(served, {"metadata": key, "spec": first}, owner="one")
    found = await client.apply(served, {"metadata": key, "spec": second}, owner="two")
    train, log = found["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert [one["name"] for one in train["env"]] == ["A", "B"]
    assert [one["containerPort"] for one in train["ports"]] == [1, 2]
    assert log["image"] == "l"


# Changes


async def refused(client: Client, served: Job, key: Key, change: JSON, subresource: str = "") -> str:
    with pytest.raises(Invalid) as caught:
        await client.patch(served, key, change, subresource=subresource)
    return caught.value.status.message.partition(" is invalid: ")[2]


@pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)
async def test_manager_of_a_job_never_changes(client: Client, namespace: str, define: Define, kind: JobKind) -> None:
    served = await define(kind)
    immutable = (
        'spec.runPolicy.managedBy: Invalid value: "object": managedBy is immutable: '
        "it can be set only when the job is created; create a new job instead"
    )
    ours = job_spec(kind, runPolicy={"managedBy": OUR_MANAGER})
    await client.create(served, job_body(kind, ours, "ours"), namespace=namespace)
    await client.create(served, job_body(kind, job_spec(kind), "nobodys"), namespace=namespace)
    for name, value in (
        ("ours", MULTIKUEUE_MANAGER),
        ("ours", None),
        ("nobodys", MULTIKUEUE_MANAGER),
        ("nobodys", OUR_MANAGER),
    ):
        change = {"spec": {"runPolicy": {"managedBy": value}}}
        assert await refused(client, served, Key(namespace, name), change) == immutable
    gone = {"spec": {"runPolicy": None}}
    assert await refused(client, served, Key(namespace, "ours"), gone) == immutable
    await client.patch(served, Key(namespace, "ours"), {"spec": {"runPolicy": {"suspend": True}}})


async def test_queue_can_be_set_later_and_then_stays(client: Client, namespace: str, define: Define) -> None:
    served, key = await define(TFJOB), Key(namespace, "j")
    await client.create(served, job_body(TFJOB, job_spec(TFJOB)), namespace=namespace)

    def queue(name: str | None) -> JSON:
        return {"spec": {"runPolicy": {"schedulingPolicy": {"queue": name}}}}

    await client.patch(served, key, queue("first"))
    gone: list[JSON] = [
        queue("second"),
        queue(None),
        {"spec": {"runPolicy": {"schedulingPolicy": None}}},
        {"spec": {"runPolicy": None}},
    ]
    for change in gone:
        assert await refused(client, served, key, change) == (
            'spec.runPolicy.schedulingPolicy.queue: Invalid value: "object": '
            "spec.runPolicy.schedulingPolicy.queue is immutable: "
            "once set it can be neither changed nor removed; create a new job instead"
        )
    await client.patch(served, key, {"spec": {"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}})


@pytest.mark.parametrize("kind", [PYTORCHJOB, PADDLEJOB, JAXJOB], ids=lambda kind: kind.kind)
async def test_scale_subresource_keeps_the_limits(
    client: Client, namespace: str, define: Define, kind: JobKind
) -> None:
    served = await define(kind)
    name = "x" * (63 - len("-worker-0"))
    await client.create(served, job_body(kind, job_spec(kind, "Worker"), name), namespace=namespace)
    key = Key(namespace, name)
    assert (await client.scale(served, key, 10)).spec.replicas == 10
    with pytest.raises(Invalid) as caught:
        await client.scale(served, key, 0)
    assert "replicas in body should be greater than or equal to 1" in caught.value.status.message
    with pytest.raises(Invalid) as caught:
        await client.scale(served, key, 11)
    assert "use a shorter name" in caught.value.status.message
    assert (await client.scale(served, key)).spec.replicas == 10


# Jobs that were stored before the rules existed


LOOSE: JSON = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


class Old:
    """A kind whose definition was loose when its objects were stored, and is ours now."""

    def __init__(self, client: Client, served: Job, namespace: str) -> None:
        self._client, self._served, self._namespace = client, served, namespace

    async def create(self, name: str, said: JSON | None) -> None:
        await self._client.create(self._served, job_body(TFJOB, said, name), namespace=self._namespace)

    async def change(self, name: str, said: JSON, subresource: str = "") -> JSON:
        return await self._client.patch(self._served, Key(self._namespace, name), said, subresource=subresource)

    async def refusal(self, name: str, said: JSON) -> str:
        return await refused(self._client, self._served, Key(self._namespace, name), said)

    async def tighten(self, kind: JobKind) -> None:
        """Put our definition in place of the loose one, and wait until it acts."""
        ours = moved(kind, self._served.group)
        await self._client.patch(CRDS, Key("", ours["metadata"]["name"]), {"spec": ours["spec"]})
        await wait_until(self._is_tight)

    async def _is_tight(self) -> bool:
        trial = self._client.with_options(WriteOptions(dry_run=True))
        try:
            await trial.create(self._served, {"metadata": {"name": "t"}, "spec": {}}, namespace=self._namespace)
        except Invalid:
            return True
        return False


Loosen = Callable[[JobKind], Awaitable[Old]]


@pytest.fixture
def loosen(client: Client, namespace: str, define: Define) -> Loosen:
    async def loosened(kind: JobKind) -> Old:
        group = f"{namespace}.example.com"
        loose = moved(kind, group)
        loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = LOOSE
        return Old(client, await define(kind, group, loose), namespace)

    return loosened


@pytest.fixture
async def old(loosen: Loosen) -> Old:
    return await loosen(TFJOB)


def workers(**more: Any) -> JSON:
    return {"spec": {"tfReplicaSpecs": {"Worker": more}}}


async def test_job_that_was_stored_with_no_replicas_still_updates(old: Old) -> None:
    await old.create("none", spec_with_replicas(TFJOB, Worker=0))
    await old.tighten(TFJOB)
    await touch(old, "none")
    # In the very replica spec, too: what did not change is not judged.
    await old.change("none", workers(restartPolicy="OnFailure"))
    assert "greater than or equal to 1" in await old.refusal("none", workers(replicas=-1))
    await old.change("none", workers(replicas=1))
    assert "greater than or equal to 1" in await old.refusal("none", workers(replicas=0))


async def touch(old: Old, name: str) -> None:
    """What a person, a queue and an operator do to any job."""
    await old.change(name, {"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/f"]}})
    await old.change(name, {"metadata": {"finalizers": None}})
    await old.change(name, {"spec": {"runPolicy": {"suspend": True}}})
    status = {"conditions": [{"type": "Failed", "status": "True", "reason": "Invalid"}]}
    found = await old.change(name, {"status": status}, subresource="status")
    assert found["status"] == status


OLD: dict[str, tuple[str, JSON]] = {
    "unknown replica type": ("j", job_spec(TFJOB, "Worker", "Helper")),
    "two chiefs": ("j", spec_with_replicas(TFJOB, Chief=2)),
    "chief and master": ("j", job_spec(TFJOB, "Chief", "Master")),
    "empty map": ("j", {"tfReplicaSpecs": {}}),
    "no template": ("j", {"tfReplicaSpecs": {"Worker": {}}}),
    "no containers": ("j", spec_with_containers(TFJOB)),
    "no default container": ("j", spec_with_containers(TFJOB, {"name": "c", "image": "i"})),
    "no image": ("j", spec_with_containers(TFJOB, {"name": "tensorflow"})),
    "any clean-up policy": ("j", job_spec(TFJOB, runPolicy={"cleanPodPolicy": ""})),
    "any manager": ("j", job_spec(TFJOB, runPolicy={"managedBy": "me"})),
    "dotted name": ("a.b", job_spec(TFJOB)),
    "long name": ("x" * 60, job_spec(TFJOB)),
}


async def test_jobs_that_would_be_refused_today_still_update(old: Old) -> None:
    for number, (name, said) in enumerate(OLD.values()):
        await old.create(f"{name}{number}", said)
    await old.tighten(TFJOB)
    for number, (name, _) in enumerate(OLD.values()):
        await touch(old, f"{name}{number}")


async def test_old_job_with_a_long_name_may_shrink_but_not_grow(old: Old) -> None:
    name = "x" * 60
    await old.create(name, spec_with_replicas(TFJOB, Worker=3))
    await old.tighten(TFJOB)
    await old.change(name, workers(replicas=2))
    assert "use a shorter name" in await old.refusal(name, workers(replicas=3))


async def test_old_job_without_a_spec_can_be_labelled_and_told_of(loosen: Loosen) -> None:
    # v1 looks at an MPIJob only after it was stored.
    old = await loosen(MPIJOB)
    await old.create("bare", None)
    await old.create("x" * 60, job_spec(MPIJOB))
    await old.tighten(MPIJOB)
    await touch(old, "x" * 60)
    await old.change("bare", {"metadata": {"labels": {"a": "b"}}})
    await old.change("bare", {"status": {"phase": "Failed"}}, subresource="status")
    await old.change("bare", {"spec": job_spec(MPIJOB)})
    assert "spec: Required value: write spec.mpiReplicaSpecs" in await old.refusal("bare", {"spec": None})
