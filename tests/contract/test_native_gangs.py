"""Kubernetes' own gang scheduling: `gangline operator --gang-scheduler-name kubernetes` with a kube-apiserver and a
kube-scheduler that have it. Nodes are fake, so these tests say what becomes of pods.

Plain blocking code: all of it is in other processes, and what is awaited is polled for.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.why.collect import collect
from gangline.why.diagnosis.case import DiagnosisTimeouts
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Cause
from support.cluster.installation import installed_rights
from support.cluster.operators import GANGLINE_OPERATOR, install_crds, is_ready
from support.servers.real import HOST, USERS, LoggedProcess, RealServer, cache_dir, free_ports

NEEDED = ("kube-apiserver", "etcd", "kube-scheduler")
KEEPER = "kube-controller-manager"
"""Lets groups go when their last pod has ended. Where it is not built, these tests do as it does."""


class Release(NamedTuple):
    """One that has gang scheduling, and how it is switched on."""

    version: str
    api: str
    gates: str
    # The condition by which a group says that it was placed.
    placed: str

    @property
    def assets(self) -> Path:
        return cache_dir().with_name(self.version)

    @property
    def flags(self) -> tuple[str, str]:
        return f"--feature-gates={self.gates}", f"--runtime-config=scheduling.k8s.io/{self.api}=true"

    @property
    def missing(self) -> bool:
        return not all(self.has(name) for name in NEEDED)

    def has(self, name: str) -> bool:
        return (self.assets / name).is_file()


RELEASES = (
    Release(
        "1.36.3",
        "v1alpha2",
        "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true",
        "PodGroupScheduled",
    ),
    Release("1.37.1", "v1beta1", "GenericWorkload=true", "PodGroupInitiallyScheduled"),
)
# Also where a real server is required: these are too large to be built for every change.
GETTING = (
    "no Kubernetes {0}: KUBERNETES_VERSION={0} hack/kubernetes.sh"
    " kube-apiserver etcd kube-scheduler kube-controller-manager"
)

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("native")]

ACCOUNT = "system:serviceaccount:gangline:gangline-operator"
JOBS = "kubeflow.org/v1/pytorchjobs"
MERGE = "application/merge-patch+json"
PATIENCE = 60.0
HELD = "scheduling.k8s.io/podgroup-protection"
"""The finalizer that every group gets from its server. A controller manager takes it off."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(each, marks=pytest.mark.skipif(each.missing, reason=GETTING.format(each.version)))
        for each in RELEASES
    ],
    ids=lambda release: release.version,
)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def server(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """With our definitions and rights, a kube-scheduler that places gangs and, if there is one, whoever lets them go."""
    folder, users = tmp_path_factory.mktemp("native"), {**USERS, ACCOUNT: ()}
    with RealServer(release.assets, directory=folder, flags=release.flags, users=users) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        for document in installed_rights(
            {"namespace": {"create": True}, "rbac": {"mpiJobs": True}, "gangSchedulerName": "kubernetes"}
        ):
            _apply(running, document)
        beside = [_kube_scheduler(running, release, folder)]
        try:
            if release.has(KEEPER):
                beside.append(_controller_manager(running, release, folder))
            yield running
        finally:
            for process in beside:
                process.kill()


@pytest.fixture(scope="module")
def operator(server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggedProcess]:
    """With the rights of its manifest, and no others."""
    (probes,) = free_ports(1)
    command = [sys.executable, "-m", "gangline", "operator", "--kubeconfig", str(server.kubeconfig)]
    command += ["--context", ACCOUNT, "--gang-scheduler-name", "kubernetes", "--metrics-bind-address=0"]
    command += [f"--health-probe-bind-address={HOST}:{probes}", "--leader-elect=false"]
    process = LoggedProcess(command, tmp_path_factory.mktemp("operator") / "operator.log")
    try:
        process.wait_until(lambda: is_ready(probes))
        yield process
    finally:
        process.kill()


@pytest.fixture
def place(release: Release, server: RealServer, operator: LoggedProcess) -> "Place":
    return Place(release, server, operator)


class Place:
    """One test's namespace and nodes, and whoever is missing: kubelets, and the controller that lets groups go."""

    def __init__(self, release: Release, server: RealServer, operator: LoggedProcess) -> None:
        self.release, self.server, self.operator = release, server, operator
        self.groups, self.workloads = (
            f"scheduling.k8s.io/{release.api}/{plural}" for plural in ("podgroups", "workloads")
        )
        self.namespace = f"native-{uuid.uuid4().hex[:8]}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def call(self, method: str, path: str, body: object = None, media: str = "application/json") -> Any:
        answer = self.server.call(method, path, body, content_type=media)
        assert answer.status in (200, 201), answer
        return answer.body

    def path(self, kind: str, name: str = "") -> str:
        root = "/api/v1" if kind == "pods" else f"/apis/{kind.rpartition('/')[0]}"
        plural = kind.rpartition("/")[2]
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def all(self, kind: str) -> list[Any]:
        found: list[Any] = self.call("GET", self.path(kind))["items"]
        return found

    def get(self, kind: str, name: str) -> Any:
        """None if it is not there."""
        answer = self.server.call("GET", self.path(kind, name))
        return answer.body if answer.status == 200 else None

    def node(self, name: str, cpu: str) -> None:
        name = f"{self.namespace}-{name}"
        labels = {"place": self.namespace, "kubernetes.io/hostname": name}
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
        has = {"cpu": cpu, "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": has, "allocatable": has, "conditions": [ready]}
        self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, MERGE)
        # A new node is tainted until a controller, which there is none of, has seen it ready.
        self.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, MERGE)

    def priority(self, name: str, value: int) -> str:
        """A priority class; gives its name."""
        made = {"metadata": {"name": f"{self.namespace}-{name}"}, "value": value}
        self.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", made)
        return f"{self.namespace}-{name}"

    def submit(self, name: str, workers: int, *, pods: str = "", **policy: Any) -> None:
        """A master and so many workers, one CPU each. `pods`: the priority class of each of them."""
        main = {"name": "pytorch", "image": "i", "resources": {"requests": {"cpu": "1"}}}
        chosen: Any = {"nodeSelector": {"place": self.namespace}, "containers": [main]}
        template = {"spec": {**chosen, **({"priorityClassName": pods} if pods else {})}}
        replicas = {"restartPolicy": "OnFailure", "template": template}
        spec: Any = {
            "runPolicy": {"cleanPodPolicy": "Running", "schedulingPolicy": policy},
            "pytorchReplicaSpecs": {
                "Master": {**replicas, "replicas": 1},
                "Worker": {**replicas, "replicas": workers},
            },
        }
        self.call("POST", self.path(JOBS), {**_kind("PyTorchJob"), "metadata": {"name": name}, "spec": spec})

    def pods(self, job: str) -> list[Any]:
        return [pod for pod in self.all("pods") if pod["metadata"]["name"].startswith(f"{job}-")]

    def bound(self, job: str) -> int:
        return sum("nodeName" in pod["spec"] for pod in self.pods(job))

    def becomes(self, pod: str, phase: str) -> None:
        self.call("PATCH", f"{self.path('pods', pod)}/status", {"status": {"phase": phase}}, MERGE)

    def condition(self, kind: str, name: str, of: str) -> Any:
        found = (self.get(kind, name) or {}).get("status", {}).get("conditions") or ()
        return next((each for each in found if each["type"] == of), None)

    def until(self, what: Callable[[], Any], why: str) -> Any:
        """What it gives, once that is true; meanwhile nodes run what is bound to them, and let go what is to go."""
        end = time.monotonic() + PATIENCE
        while not (found := what()):
            state = [(pod["metadata"]["name"], pod["spec"].get("nodeName")) for pod in self.all("pods")]
            assert time.monotonic() < end, f"{why}: {state}\n{self.operator.log_tail()}"
            self._turn()
            time.sleep(0.05)
        return found

    def _turn(self) -> None:
        for pod in self.all("pods"):
            metadata, phase = pod["metadata"], pod["status"]["phase"]
            if "deletionTimestamp" in metadata:
                gone = f"{self.path('pods', metadata['name'])}?gracePeriodSeconds=0"
                self.server.call("DELETE", gone)
            elif "nodeName" in pod["spec"] and phase == "Pending":
                self.becomes(metadata["name"], "Running")
        for group in () if self.release.has(KEEPER) else self.all(self.groups):
            metadata = group["metadata"]
            if "deletionTimestamp" in metadata and not self._used(metadata["name"]):
                left = {"metadata": {"finalizers": [each for each in metadata["finalizers"] if each != HELD]}}
                self.server.call("PATCH", self.path(self.groups, metadata["name"]), left, content_type=MERGE)

    def _used(self, group: str) -> bool:
        return any(
            pod["spec"].get("schedulingGroup") == {"podGroupName": group}
            and pod["status"]["phase"] not in ("Succeeded", "Failed")
            for pod in self.all("pods")
        )


# What is written


def test_the_server_takes_workload_group_and_pods_as_we_write_them(place: Place) -> None:
    place.node("a", "8")
    place.submit("job", 3)
    place.until(lambda: len(place.pods("job")) == 4, "not all pods were made")
    workload, group = place.get(place.workloads, "job"), place.get(place.groups, "job")
    policy = {"gang": {"minCount": 4}}
    assert workload["spec"]["controllerRef"] == {
        "apiGroup": "kubeflow.org",
        "kind": "PyTorchJob",
        "name": "job",
    }
    (template,) = workload["spec"]["podGroupTemplates"]
    assert template["schedulingPolicy"] == group["spec"]["schedulingPolicy"] == policy
    assert group["spec"]["disruptionMode"] == template["disruptionMode"]
    if place.release.api == "v1alpha2":
        wanted: Any = {"workload": {"workloadName": "job", "podGroupTemplateName": template["name"]}}
        assert group["spec"]["podGroupTemplateRef"] == wanted
        assert template["disruptionMode"] == "PodGroup"
    else:
        wanted = {"workloadName": "job", "templateName": template["name"]}
        assert group["spec"]["workloadRef"] == wanted
        assert template["disruptionMode"] == {"all": {}}
    for made in (workload, group):
        (owner,) = made["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("PyTorchJob", "job", True)
    for pod in place.pods("job"):
        assert pod["spec"]["schedulingGroup"] == {"podGroupName": "job"}
        assert pod["spec"]["schedulerName"] == "default-scheduler"


# All or none


async def causes(place: Place, name: str) -> tuple[Cause, ...]:
    """What `gangline why` says of a job, though it is young."""
    where = load_connection(kubeconfig=str(place.server.kubeconfig), environ={}, home=place.server.directory)
    at_once = DiagnosisTimeouts(unnoticed_after=timedelta())
    async with HttpTransport(where) as transport:
        seen = await collect(Client(transport), name, place.namespace, SystemClock(), at_once)
    return diagnose(seen).causes


def test_a_gang_that_fits_is_bound_as_a_whole_runs_and_leaves_nothing_behind(place: Place) -> None:
    for name in ("a", "b"):
        place.node(name, "2")
    place.submit("job", 3)
    place.until(lambda: place.bound("job") == 4, "not all were bound")
    said = place.until(lambda: place.condition(place.groups, "job", place.release.placed), "the group says nothing")
    assert said["status"] == "True"
    place.until(lambda: _holds(place.condition(JOBS, "job", "Running")), "the job does not run")
    place.becomes("job-master-0", "Succeeded")
    place.until(lambda: _holds(place.condition(JOBS, "job", "Succeeded")), "the job did not succeed")
    place.until(lambda: place.get(place.groups, "job") is None, "its group is still there")
    place.until(lambda: place.get(place.workloads, "job") is None, "its workload is still there")


def test_of_a_gang_that_is_too_large_nothing_is_bound_until_all_of_it_fits(place: Place) -> None:
    for name in ("a", "b"):
        place.node(name, "2")
    place.submit("large", 4)
    said = place.until(lambda: place.condition(place.groups, "large", place.release.placed), "the group says nothing")
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert place.bound("large") == 0
    (cause,) = asyncio.run(causes(place, "large"))
    assert cause.rule == "gang-does-not-fit"
    assert said["message"] in " ".join(cause.evidence)
    # It blocks nobody.
    place.submit("small", 1)
    place.until(lambda: place.bound("small") == 2, "the small one was not bound")
    assert place.bound("large") == 0
    for name in ("c", "d"):
        place.node(name, "2")
    place.until(lambda: place.bound("large") == 5, "it was not bound when there was room")


def test_with_fewer_needed_than_there_are_as_many_are_bound_as_fit(place: Place) -> None:
    place.node("a", "3")
    place.submit("job", 3, minAvailable=2)
    place.until(lambda: place.bound("job") == 3, "those that fit were not bound")
    assert place.get(place.groups, "job")["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}


# Its life


def test_a_lost_member_is_made_again_and_joins_its_gang(place: Place) -> None:
    place.node("a", "4")
    place.submit("job", 3)
    place.until(lambda: _holds(place.condition(JOBS, "job", "Running")), "the job does not run")
    _lose(place, "job-worker-1")


def test_a_member_that_is_lost_when_others_have_succeeded_does_not_wait_for_those(place: Place) -> None:
    place.node("a", "4")
    place.submit("job", 3)
    place.until(lambda: _holds(place.condition(JOBS, "job", "Running")), "the job does not run")
    place.becomes("job-worker-0", "Succeeded")
    _lose(place, "job-worker-1")


def test_a_member_that_is_lost_when_the_job_was_made_smaller_does_not_wait_for_more(place: Place) -> None:
    place.node("a", "4")
    place.submit("job", 3)
    place.until(lambda: _holds(place.condition(JOBS, "job", "Running")), "the job does not run")
    smaller = {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}}
    place.call("PATCH", place.path(JOBS, "job"), smaller, MERGE)
    place.until(lambda: len(place.pods("job")) == 3, "it was not made smaller")
    _lose(place, "job-worker-1")


def test_a_member_that_is_lost_after_the_jobs_class_has_changed_has_the_class_of_its_group(
    place: Place,
) -> None:
    place.node("a", "2")
    place.submit("job", 1, priorityClass=place.priority("low", 1))
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    body = {"spec": {"runPolicy": {"schedulingPolicy": {"priorityClass": place.priority("high", 9)}}}}
    place.call("PATCH", place.path(JOBS, "job"), body, MERGE)
    lost = place.get("pods", "job-worker-0")["metadata"]["uid"]
    place.call("DELETE", f"{place.path('pods', 'job-worker-0')}?gracePeriodSeconds=0")
    place.until(lambda: _another(place, "job-worker-0", lost), "it was not replaced")


def test_a_suspended_job_has_no_group_and_a_resumed_one_a_new_one(place: Place) -> None:
    place.node("a", "2")
    place.submit("job", 1)
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    before = place.get(place.groups, "job")["metadata"]["uid"]
    _suspend(place, "job", suspend=True)
    place.until(lambda: not place.pods("job"), "pods are still there")
    place.until(lambda: not place.all(place.groups) and not place.all(place.workloads), "groups are still there")
    _suspend(place, "job", suspend=False)
    place.until(lambda: place.bound("job") == 2, "it was not bound again")
    assert place.get(place.groups, "job")["metadata"]["uid"] != before


def test_a_job_resumed_while_its_group_is_on_its_way_out_waits_for_a_new_one(place: Place) -> None:
    place.node("a", "2")
    place.submit("job", 1)
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    before = place.get(place.groups, "job")["metadata"]["uid"]
    _suspend(place, "job", suspend=True)
    # Not `until`: nobody lets anything go yet.
    end = time.monotonic() + PATIENCE
    while "deletionTimestamp" not in place.get(place.groups, "job")["metadata"]:
        assert time.monotonic() < end
        time.sleep(0.05)
    _suspend(place, "job", suspend=False)
    place.until(
        lambda: (place.get(place.groups, "job") or {}).get("metadata", {}).get("uid") not in (None, before),
        "",
    )
    place.until(lambda: place.bound("job") == 2, "it was not bound again")


def test_a_job_made_again_under_its_name_waits_for_what_the_old_one_left(place: Place) -> None:
    if not place.release.has(KEEPER):
        pytest.skip(f"nobody collects what a deleted job leaves: no {KEEPER} {place.release.version}")
    place.node("a", "2")
    place.submit("job", 1)
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    before = {pod["metadata"]["uid"] for pod in place.pods("job")}
    place.call("DELETE", place.path(JOBS, "job"))
    place.submit("job", 1)

    def anew() -> bool:
        now = {pod["metadata"]["uid"] for pod in place.pods("job")}
        return len(now) == 2 and not now & before and place.bound("job") == 2

    place.until(anew, "the new one was not bound")
    assert place.condition(JOBS, "job", "Blocked") is None


def test_a_job_that_needs_fewer_from_now_on_is_not_told_that_its_group_cannot_be_changed(
    place: Place,
) -> None:
    place.node("a", "2")
    place.submit("job", 2)
    place.until(lambda: place.condition(place.groups, "job", place.release.placed), "the group says nothing")
    assert place.bound("job") == 0
    policy = {"minAvailable": 2, "priorityClass": place.priority("high", 9)}
    body = {"spec": {"runPolicy": {"schedulingPolicy": policy}}}
    place.call("PATCH", place.path(JOBS, "job"), body, MERGE)
    if place.release.api == "v1alpha2":
        # Nothing of a group can be changed there. The next one will be as the job says.
        _suspend(place, "job", suspend=True)
        place.until(lambda: not place.all(place.groups), "its group is still there")
        _suspend(place, "job", suspend=False)
    place.until(lambda: place.bound("job") == 2, "those that fit were not bound")
    assert place.get(place.groups, "job")["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert place.condition(JOBS, "job", "Blocked") is None


def test_a_gang_gives_way_as_a_whole_and_comes_back_as_a_whole(place: Place) -> None:
    high = place.priority("high", 9)
    place.node("a", "4")
    place.submit("low", 3)
    place.until(lambda: _holds(place.condition(JOBS, "low", "Running")), "the job does not run")
    before = {pod["metadata"]["uid"] for pod in place.pods("low")}
    place.submit("high", 1, pods=high, priorityClass=high)
    place.until(lambda: place.bound("high") == 2, "there was no room made")

    def waits() -> bool:
        """Its owner has made others, for which there is no room as a whole."""
        now = {pod["metadata"]["uid"] for pod in place.pods("low")}
        return len(now) == 4 and not now & before and not place.bound("low")

    place.until(waits, "it did not give way as a whole")
    assert place.bound("high") == 2
    _suspend(place, "high", suspend=True)
    place.until(lambda: place.bound("low") == 4, "it did not come back when there was room")


# What is refused


def test_a_class_that_does_not_exist_is_told_in_the_servers_words_and_the_job_goes_on_when_it_does(
    place: Place,
) -> None:
    name = f"{place.namespace}-high"
    place.node("a", "2")
    place.submit("job", 1, priorityClass=name)
    told = place.until(lambda: place.condition(JOBS, "job", "Blocked"), "the job says nothing")
    assert told["status"] == "True"
    assert name in told["message"]
    assert place.pods("job") == []
    assert place.priority("high", 1000) == name
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    assert place.get(place.groups, "job")["spec"]["priority"] == 1000
    assert {pod["spec"]["priority"] for pod in place.pods("job")} == {1000}


def test_a_class_that_only_the_templates_name_is_that_of_the_group(place: Place) -> None:
    place.node("a", "2")
    place.submit("job", 1, pods=place.priority("high", 1000))
    place.until(lambda: place.bound("job") == 2, "it was not bound")
    assert place.get(place.groups, "job")["spec"]["priority"] == 1000


def _holds(condition: Any) -> bool:
    return condition is not None and condition["status"] == "True"


def _lose(place: Place, name: str) -> None:
    """A member is gone, and is replaced."""
    lost = place.get("pods", name)["metadata"]["uid"]
    place.call("DELETE", f"{place.path('pods', name)}?gracePeriodSeconds=0")
    place.until(lambda: _another(place, name, lost), "it was not replaced")


def _another(place: Place, pod: str, lost: str) -> bool:
    """Whether there is another of that name, and it is bound."""
    found = place.get("pods", pod)
    return found is not None and found["metadata"]["uid"] != lost and "nodeName" in found["spec"]


def _suspend(place: Place, job: str, *, suspend: bool) -> None:
    place.call("PATCH", place.path(JOBS, job), {"spec": {"runPolicy": {"suspend": suspend}}}, MERGE)


def _kind(kind: str) -> dict[str, str]:
    return {"apiVersion": "kubeflow.org/v1", "kind": kind}


def _apply(server: RealServer, document: Any) -> None:
    plurals = {"Namespace": "namespaces", "ServiceAccount": "serviceaccounts", "Role": "roles"}
    plurals |= {
        "ClusterRole": "clusterroles",
        "ClusterRoleBinding": "clusterrolebindings",
        "RoleBinding": "rolebindings",
    }
    version, metadata = document["apiVersion"], document["metadata"]
    root = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    home = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
    answer = server.call("POST", f"{root}{home}/{plurals[document['kind']]}", document)
    assert answer.status in (201, 409), answer


def _kube_scheduler(server: RealServer, release: Release, folder: Path) -> LoggedProcess:
    (port,) = free_ports(1)
    config, log = folder / "kube-scheduler.json", folder / "kube-scheduler.log"
    content = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(server.kubeconfig)},
        "leaderElection": {"leaderElect": False},
    }
    config.write_text(json.dumps(content))
    command = [str(release.assets / "kube-scheduler"), f"--config={config}", f"--secure-port={port}"]
    command += [f"--bind-address={HOST}", f"--cert-dir={folder}", release.flags[0]]
    process = LoggedProcess(command, log)
    process.wait_until(lambda: "Serving securely" in log.read_text())
    return process


def _controller_manager(server: RealServer, release: Release, folder: Path) -> LoggedProcess:
    """Only what has to do with groups: its other controllers would take our nodes for dead."""
    (port,) = free_ports(1)
    log = folder / "kube-controller-manager.log"
    command = [str(release.assets / KEEPER), f"--kubeconfig={server.kubeconfig}", f"--secure-port={port}"]
    command += [
        "--controllers=podgroup-protection-controller,garbage-collector-controller",
        "--leader-elect=false",
        f"--bind-address={HOST}",
    ]
    command += [f"--cert-dir={folder}", release.flags[0]]
    process = LoggedProcess(command, log)
    process.wait_until(lambda: "Serving securely" in log.read_text())
    return process
