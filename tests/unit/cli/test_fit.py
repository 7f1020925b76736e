"""Whether there is room for a job now, and what is told if not."""

from datetime import UTC, datetime
from typing import Any

from gangline.api.documents import Document, documents
from gangline.api.meta import JSON, Key
from gangline.api.training import JobKind
from gangline.cli.findings import kind_of
from gangline.cli.fit import Fit, answers, defaulted, fits, told
from gangline.runtime.informer import Delta
from gangline.scheduler.model import Ask, Need, QueueRule
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.shape import Shape
from gangline.scheduler.world import World
from gangline.testing.cluster import local_cluster
from gangs import make_node

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = Shape(requests=(("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1)))


def world(*gpus: int) -> World:
    found = World(SchedulerSettings(), changed=lambda: None)
    for number, count in enumerate(gpus):
        found.node(Delta(None, make_node(f"n{number}", cpu=16, gpu=count)))
    return found


def asking(name: str = "job", **others: Any) -> Ask:
    fields: dict[str, Any] = {
        "queue": "default",
        "priority": 0,
        "created": NOW,
        "since": NOW,
        "broken": False,
        "needs": (Need("master", ONE, 1), Need("worker", ONE, 3)),
        "least": 4,
    }
    return Ask(key=Key("team", name), uid=name, **{**fields, **others})


def fit(there: World, ask: Ask, placed: int = 0) -> Fit:
    return answers(there, [(ask, placed)], NOW)[0]


def test_a_job_that_fits_is_told_where_its_members_would_go() -> None:
    found = fit(world(3, 1), asking())
    assert found.fits
    assert sum(sum(roles.values()) for roles in found.nodes.values()) == 4
    assert told(found).splitlines()[:2] == [
        "team/job fits: 4 of 4 members have room, on 2 nodes",
        "NODE   MASTER   WORKER",
    ]


def test_a_job_that_does_not_fit_is_told_what_is_missing() -> None:
    found = fit(world(2, 1), asking())
    assert not found.fits
    assert found.missing == {"nvidia.com/gpu": {"needed": "4", "free": "3", "missing": "1"}}
    assert found.reasons == {"lack nvidia.com/gpu": 2}
    assert told(found).splitlines()[1:] == [
        "RESOURCE         NEEDED   FREE   MISSING",
        "nvidia.com/gpu   4        3      1",
    ]


def test_enough_in_all_but_not_in_one_place_is_told_so() -> None:
    both = Shape(requests=(("cpu", 1000), ("nvidia.com/gpu", 2), ("pods", 1)))
    found = fit(world(1, 1, 1, 1), asking(needs=(Need("worker", both, 2),), least=2))
    assert (found.fits, found.missing, found.cause) == (False, {}, "Resources")
    assert "there is enough in all, but not on nodes where its members can go" in told(found)


def test_a_full_queue_is_told_and_is_no_shortage() -> None:
    there = world(8)
    there.queues["small"] = QueueRule("small", cap={"nvidia.com/gpu": 2})
    found = fit(there, asking(queue="small"))
    assert (found.fits, found.cause) == (False, "Queue")
    assert found.message == "queue 'small' may have 2 nvidia.com/gpu and holds 0; 4 more are needed"


def test_jobs_asked_about_together_do_not_count_on_the_same_room() -> None:
    found = answers(world(6), [(asking("a"), 0), (asking("b"), 0)], NOW)
    assert [each.fits for each in found] == [True, False]


def test_members_that_have_a_node_are_not_asked_for_again() -> None:
    found = fit(world(3), asking(needs=(), least=0), placed=4)
    assert (found.fits, found.message) == (True, "all its members have a node")
    some = fit(world(3), asking(needs=(Need("worker", ONE, 2),), least=2), placed=2)
    assert "2 of its 4 members have a node already" in told(some)


def test_what_is_only_limited_is_requested_as_a_server_would() -> None:
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
    first, second = defaulted(pod)["spec"]["containers"]
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
    document = next(iter(documents(JOB.replace("SCARCE", scarce).replace("name: big", f"name: {name}"))))
    kind = kind_of(document)
    assert isinstance(kind, JobKind)
    return document, kind


async def test_a_job_of_a_file_is_held_against_the_nodes_of_a_server() -> None:
    """One that knows neither queues nor groups, and has no gpus."""
    async with local_cluster() as plane:
        easy, hard = await fits(plane.client, [job("memory", "easy"), job("nvidia.com/gpu", "hard")])
    assert (easy.fits, easy.members, easy.least) == (True, 5, 3)
    assert sum(sum(roles.values()) for roles in easy.nodes.values()) == 5
    assert hard.fits is False
    assert hard.missing["nvidia.com/gpu"] == {"needed": "3", "free": "0", "missing": "3"}
