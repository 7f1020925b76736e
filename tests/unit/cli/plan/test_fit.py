"""Whether a job fits now, and what is missing if not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gangline import __version__
from gangline.api.codec.documents import Document, documents
from gangline.api.core import Node, Pod, PriorityClass
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.main import run
from gangline.cli.manifests.lint import kind_of
from gangline.cli.plan.fit import (
    FitResult,
    check_fit,
    fit_results,
    fit_text,
    with_default_requests,
)
from gangline.cli.plan.objects import PlanTarget, planned_objects
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, Status
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import GangRequest, PodSet, QueueQuota
from gangline.scheduler.types.shape import PodShape
from gangline.testing.cluster import local_cluster
from support.builders.scheduler_inputs import make_scheduler_node

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = PodShape(requests=(("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1)))


def cache_with_nodes(*gpus: int) -> SchedulerCache:
    result = SchedulerCache(SchedulerSettings())
    for number, count in enumerate(gpus):
        result.on_node(Delta(None, make_scheduler_node(f"n{number}", cpu=16, gpu=count)))
    return result


def gang_request(name: str = "job", **others: Any) -> GangRequest:
    fields: dict[str, Any] = {
        "queue": "default",
        "priority": 0,
        "created": NOW,
        "waiting_since": NOW,
        "recovering": False,
        "pod_sets": (PodSet("master", ONE, 1), PodSet("worker", ONE, 3)),
        "min_members": 4,
    }
    return GangRequest(key=Key("team", name), uid=name, **{**fields, **others})


def fit(cache: SchedulerCache, ask: GangRequest, placed: int = 0) -> FitResult:
    return fit_results(cache, [(ask, placed)], NOW)[0]


def test_a_job_that_fits_has_a_placement() -> None:
    result = fit(cache_with_nodes(3, 1), gang_request())
    assert result.fits
    assert sum(sum(roles.values()) for roles in result.nodes.values()) == 4
    assert fit_text(result).splitlines()[:2] == [
        "team/job fits: 4 of 4 members have room, on 2 nodes",
        "NODE   MASTER   WORKER",
    ]


def test_a_job_that_does_not_fit_has_its_missing_resources() -> None:
    result = fit(cache_with_nodes(2, 1), gang_request())
    assert not result.fits
    assert result.missing == {"nvidia.com/gpu": {"needed": "4", "free": "3", "missing": "1"}}
    assert result.reasons == {"lack nvidia.com/gpu": 2}
    assert fit_text(result).splitlines()[1:] == [
        "RESOURCE         NEEDED   FREE   MISSING",
        "nvidia.com/gpu   4        3      1",
    ]


def test_enough_in_total_but_not_on_single_nodes_is_explained() -> None:
    both = PodShape(requests=(("cpu", 1000), ("nvidia.com/gpu", 2), ("pods", 1)))
    result = fit(cache_with_nodes(1, 1, 1, 1), gang_request(pod_sets=(PodSet("worker", both, 2),), min_members=2))
    assert (result.fits, result.missing, result.cause) == (False, {}, "Resources")
    assert "there is enough in all, but not on nodes where its members can go" in fit_text(result)


def test_a_full_queue_is_the_cause_and_no_shortage() -> None:
    cache = cache_with_nodes(8)
    cache.queues["small"] = QueueQuota("small", cap={"nvidia.com/gpu": 2})
    result = fit(cache, gang_request(queue="small"))
    assert (result.fits, result.cause) == (False, "Queue")
    assert result.message == "queue 'small' may have 2 nvidia.com/gpu and holds 0; 4 more are needed"


def test_jobs_checked_together_do_not_share_the_same_capacity() -> None:
    result = fit_results(cache_with_nodes(6), [(gang_request("a"), 0), (gang_request("b"), 0)], NOW)
    assert [each.fits for each in result] == [True, False]
    assert result[1].missing == {"nvidia.com/gpu": {"needed": "4", "free": "2", "missing": "2"}}


def test_members_that_have_a_node_are_not_requested_again() -> None:
    result = fit(cache_with_nodes(3), gang_request(pod_sets=(), min_members=0), placed=4)
    assert (result.fits, result.message) == (True, "all its members have a node")
    some = fit(cache_with_nodes(3), gang_request(pod_sets=(PodSet("worker", ONE, 2),), min_members=2), placed=2)
    assert "2 of its 4 members have a node already" in fit_text(some)


def test_limits_are_default_requests_as_on_a_server() -> None:
    pod: JSON = {
        "kind": "Pod",
        "spec": {
            "containers": [
                {
                    "name": "a",
                    "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}, "requests": {"cpu": "1"}},
                },
                {"name": "b"},
            ]
        },
    }
    first, second = with_default_requests(pod)["spec"]["containers"]
    assert first["resources"]["requests"] == {"cpu": "1", "nvidia.com/gpu": 1}
    assert second == {"name": "b"}


JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: big}
spec:
  runPolicy:
    schedulingPolicy: {minAvailable: 3}
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      template: {spec: {containers: [{name: pytorch, image: x, resources: {limits: {SCARCE: 1}}}]}}
    Worker:
      replicas: 4
      template: {spec: {containers: [{name: pytorch, image: x, resources: {limits: {SCARCE: 1}}}]}}
"""


def job(scarce: str, name: str) -> tuple[Document, JobKind]:
    return known(JOB.replace("SCARCE", scarce).replace("name: big", f"name: {name}"))


def known(text: str) -> tuple[Document, JobKind]:
    (document,) = documents(text)
    kind = kind_of(document)
    assert isinstance(kind, JobKind)
    return document, kind


async def test_a_job_in_a_file_is_checked_against_the_nodes_of_a_server() -> None:
    """A server without queues, pod groups and GPUs."""
    async with local_cluster() as plane:
        easy, hard = await check_fit(plane.client, [job("ephemeral-storage", "easy"), job("nvidia.com/gpu", "hard")])
    assert (easy.fits, easy.members, easy.least) == (True, 5, 3)
    assert sum(sum(roles.values()) for roles in easy.nodes.values()) == 5
    assert hard.fits is False
    assert hard.missing["nvidia.com/gpu"] == {"needed": "3", "free": "0", "missing": "3"}


MPI = """\
apiVersion: kubeflow.org/v1
kind: MPIJob
metadata: {name: ring}
spec:
  mpiReplicaSpecs:
    Launcher:
      template: {spec: {containers: [{name: mpi, image: x, resources: {limits: {example.com/slot: 1}}}]}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{name: mpi, image: x, resources: {limits: {example.com/slot: 1}}}]}}
"""


async def node_with(client: Client, slots: int, memory: str = "8Gi") -> None:
    offer = {"example.com/slot": str(slots), "cpu": "8", "memory": memory, "pods": "110"}
    status = {
        "allocatable": offer,
        "capacity": offer,
        "conditions": [{"type": "Ready", "status": "True", "reason": "x", "message": "x"}],
    }
    await client.create(Node, {"metadata": {"name": "extra"}})
    await client.patch(Node, Key("", "extra"), {"status": status}, subresource="status")
    # As in a cluster, a new node is tainted at first.
    await client.patch(Node, Key("", "extra"), {"spec": {"taints": None}})


async def test_on_a_local_plane_a_launcher_has_no_added_containers() -> None:
    """In a cluster the launcher has an init container for its agent, which requests memory."""
    async with local_cluster() as plane:
        await node_with(plane.client, 3, memory="1Mi")
        (cluster,) = await check_fit(plane.client, [known(MPI)])
        (local,) = await check_fit(plane.client, [known(MPI)], PlanTarget(bare=True))
    assert (cluster.fits, cluster.reasons) == (False, {"lack example.com/slot": 1, "lack memory": 1})
    assert local.fits


def test_in_a_cluster_no_images_but_gangline_and_the_jobs_are_planned() -> None:
    torch = (
        MPI.replace("MPIJob", "PyTorchJob")
        .replace("mpiReplica", "pytorchReplica")
        .replace("name: mpi", "name: pytorch")
    )
    for text, added in ((MPI, {f"gangline:{__version__}"}), (torch.replace("Launcher", "Master"), set[str]())):
        _, bodies = planned_objects(known(text), PlanTarget())
        pods = [body["spec"] for body in bodies if body["kind"] == "Pod"]
        images = {
            container["image"] for pod in pods for container in [*pod["containers"], *pod.get("initContainers", [])]
        }
        assert images == {"x"} | added


async def test_the_priority_class_of_the_pods_is_used_if_the_gang_has_none() -> None:
    named = JOB.replace("template: {spec: {", "template: {spec: {priorityClassName: urgent, ")
    urgent = known(named.replace("SCARCE", "example.com/slot"))
    container = {"name": "c", "image": "x", "resources": {"limits": {"example.com/slot": "3"}}}
    holder = {"nodeName": "extra", "schedulerName": "gangline", "containers": [container]}
    async with local_cluster() as plane:
        await node_with(plane.client, 3)
        await plane.client.create(Pod, {"metadata": {"name": "other"}, "spec": holder}, namespace="default")
        with pytest.raises(InputError, match="priorityClassName urgent: there is no such PriorityClass"):
            await check_fit(plane.client, [urgent])
        await plane.client.create(PriorityClass, {"metadata": {"name": "urgent"}, "value": 9})
        (result,) = await check_fit(plane.client, [urgent])
    assert (result.fits, result.cause) == (False, "Victims")
    assert result.message == ("not now; 1 pod of default/other would have to leave, less important or beyond its share")


class Locked:
    """A server that forbids every read."""

    async def list(self, kind: Resource[Any], where: Any = None) -> Any:
        raise Forbidden(Status(code=403, message=f"not {kind.plural}"))


async def test_without_access_to_nodes_only_that_error_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client: Any = Locked()
    with pytest.raises(Forbidden, match="not nodes"):
        await check_fit(client, [])
    assert capsys.readouterr().err == ""


FITTED = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: NAME}
spec:
  pytorchReplicaSpecs:
    Worker:
      template:
        spec:
          containers:
          - {name: pytorch, image: x, resources: {requests: {cpu: CPU}}}
"""


def test_without_a_server_a_job_is_fitted_to_this_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(variable, raising=False)
    small, large = tmp_path / "small.yaml", tmp_path / "large.yaml"
    small.write_text(FITTED.replace("NAME", "small").replace("CPU", "10m"))
    large.write_text(FITTED.replace("NAME", "large").replace("CPU", "100000"))
    assert run(["plan", "--fit", str(small)]) == 0
    output = capsys.readouterr()
    assert output.err == "no server is running; the jobs are fitted to this machine\n"
    assert output.out.startswith("default/small fits: 1 of 1 members have room, on 1 node")
    assert run(["plan", "--fit", str(small), str(large)]) == 100
    assert "default/large does not fit: 0/1 nodes: 1 lack cpu" in capsys.readouterr().out
    gpu = tmp_path / "gpu.yaml"
    gpu.write_text(FITTED.replace("NAME", "gpu").replace("requests: {cpu: CPU}", "limits: {nvidia.com/gpu: 2}"))
    monkeypatch.setenv("GANGLINE_GPUS", "nvidia=1")
    assert run(["plan", "--fit", str(gpu)]) == 100
    monkeypatch.setenv("GANGLINE_GPUS", "nvidia=2")
    assert run(["plan", "--fit", str(gpu)]) == 0
    capsys.readouterr()
    assert run(["plan", "--fit", "elsewhere"]) == 1
    assert capsys.readouterr().err.startswith("error: elsewhere: no such file, and no server is running")
