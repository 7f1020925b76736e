"""Replicas are replaced one after the other under work: nothing is lost, nothing is done twice, by the server's audit log.

And a restart writes nothing if nothing needs a change.
"""

import json
import signal
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.operator_process import (
    APIS,
    OperatorProcess,
    create_object,
    job_conditions,
    job_pods,
    running_operator,
    set_phase,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("rolling")]

TFJOB = TRAINING_KINDS[0]
POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived", "ResponseStarted"]}
AGENT = "gangline-operator"
CLIENT_GONE = 504
READS = ("get", "list", "watch")
WORKERS = 2
ROUNDS = (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM)
JOBS_PER_ROUND = 10


class AuditedServer(NamedTuple):
    """A server, and the file in which it records every request before it answers."""

    api: RealServer
    log: Path

    def events(self, offset: int = 0) -> list[Any]:
        """The finished requests of operators since an offset in the file."""
        with self.log.open("rb") as file:
            file.seek(offset)
            found = [json.loads(line) for line in file]
        return [event for event in found if event.get("userAgent", "").startswith(AGENT)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedServer]:
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    folder = tmp_path_factory.mktemp("server")
    policy, log = folder / "policy.yaml", folder / "audit.log"
    policy.write_text(json.dumps({**POLICY, "rules": [{"level": "Metadata"}]}))
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking")
    with RealServer(directory=folder, flags=flags) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        yield AuditedServer(running, log)


def requests_for(
    events: list[Any], verb: str, resource: str, namespace: str, codes: Container[int] = range(200, 300)
) -> Counter[str]:
    """How often the creation, deletion and so on of each object was answered with one of these codes."""
    return Counter(
        event["objectRef"].get("name", "")
        for event in events
        if event["verb"] == verb
        and event.get("objectRef", {}).get("resource") == resource
        and event["objectRef"].get("namespace") == namespace
        and event["responseStatus"]["code"] in codes
    )


def leads(operator: OperatorProcess) -> bool:
    return operator.counted("leader_election_master_status") == 1


def test_replicas_are_replaced_under_work_and_nothing_is_lost_or_done_twice(
    server: AuditedServer, tmp_path: Path
) -> None:
    api, namespace = server.api, "rolling"
    create_object(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    flags = (f"--namespace={namespace}", "--leader-elect", "--leader-election-id=rolling")
    names: list[str] = []

    def submit(number: int) -> None:
        submit_job(api, namespace, TFJOB, f"job-{number:03}")
        names.append(f"job-{number:03}")

    with ExitStack() as replicas, ThreadPoolExecutor(1) as user:
        running = [replicas.enter_context(running_operator(api, tmp_path, *flags)) for _ in range(2)]
        for number, how in enumerate(ROUNDS):
            wait_until_blocking(lambda: any(map(leads, running)), "nobody leads")
            submitted = user.map(submit, range(number * JOBS_PER_ROUND, (number + 1) * JOBS_PER_ROUND))
            leader = next(operator for operator in running if leads(operator))
            # In the middle of its work: some of this round's jobs have pods, others do not exist yet.
            wait_until_blocking(partial(job_pods, api, namespace, f"job-{number * JOBS_PER_ROUND:03}"))
            running.remove(leader)
            code = leader.ended(how)
            if how is signal.SIGTERM:
                assert code == 0
                assert [line["msg"] for line in leader.lines() if line["msg"].startswith("lease")] == ["lease released"]
            running.append(replicas.enter_context(running_operator(api, tmp_path, *flags)))
            list(submitted)
        jobs = len(ROUNDS) * JOBS_PER_ROUND
        assert len(names) == jobs

        def complete() -> bool:
            pods = api.call("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
            return len(pods) == WORKERS * jobs

        def succeeded(name: str) -> bool:
            return job_conditions(api, namespace, TFJOB, name).get("Succeeded") == "True"

        wait_until_blocking(complete, "some jobs have no pods")
        for name in names:
            for pod in job_pods(api, namespace, name):
                set_phase(api, pod, "Succeeded")
        for name in names:
            wait_until_blocking(partial(succeeded, name), f"{name} does not succeed")
    events = server.events()
    expected = Counter(f"{name}-worker-{index}" for name in names for index in range(WORKERS))
    for resource in ("pods", "services"):
        created = requests_for(events, "create", resource, namespace)
        # The server may carry out what a process asked for that is killed meanwhile. Nobody gets that answer.
        unanswered = requests_for(events, "create", resource, namespace, (CLIENT_GONE,))
        assert created + Counter((expected - created).keys() & unanswered.keys()) == expected
        assert requests_for(events, "delete", resource, namespace) == Counter()
        objects = api.call("GET", f"/api/v1/namespaces/{namespace}/{resource}").body["items"]
        assert {found["metadata"]["name"] for found in objects} == expected.keys()
    restarts = api.call("GET", f"{APIS}/namespaces/{namespace}/tfjobs").body["items"]
    assert [job["metadata"]["name"] for job in restarts if job["status"].get("restarts")] == []


def test_a_restart_beside_finished_and_running_jobs_writes_nothing(server: AuditedServer, tmp_path: Path) -> None:
    api, namespace, each = server.api, "steady", 200
    create_object(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "none"}]}}
    spec = {"tfReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": template}}}
    names = {f"job-{number:03}": "Running" if number < each else "Succeeded" for number in range(2 * each)}
    flag = f"--namespace={namespace}"

    def play(name: str) -> None:
        submit_job(api, namespace, TFJOB, name, spec=spec)
        (pod,) = wait_until_blocking(lambda: job_pods(api, namespace, name), f"{name} has no pod")
        set_phase(api, pod, names[name])

    def settled() -> bool:
        jobs = api.call("GET", f"{APIS}/namespaces/{namespace}/tfjobs").body["items"]
        newest = {job["metadata"]["name"]: job["status"]["conditions"][-1]["type"] for job in jobs if "status" in job}
        return newest == names

    with running_operator(api, tmp_path, flag) as operator, ThreadPoolExecutor(8) as users:
        list(users.map(play, names))
        wait_until_blocking(settled, "not all jobs run or have ended", seconds=120)
        operator.counts("gangline_job_all_running_seconds_count", len(names))
        operator.counts("training_operator_jobs_successful_total", each)
        assert operator.ended(signal.SIGTERM) == 0
    offset = server.log.stat().st_size
    with running_operator(api, tmp_path, flag) as operator:
        # Every job has been looked at, and none waits to be.
        wait_until_blocking(
            lambda: (
                operator.counted("controller_runtime_reconcile_total") >= len(names)
                and operator.counted("workqueue_depth") == 0
                and operator.counted("controller_runtime_active_workers") == 0
            )
        )
        # What was counted before is not counted again.
        assert operator.counted("training_operator_jobs_created_total") == 0
        assert operator.counted("training_operator_jobs_successful_total") == 0
        assert operator.counted("gangline_job_all_running_seconds_count") == 0
        assert operator.counted("gangline_job_replica_seconds_total") == 0
        assert operator.counted("gangline_jobs", state="Running") == each
        assert operator.counted("gangline_jobs", state="Succeeded") == each
        assert operator.ended(signal.SIGTERM) == 0
    events = server.events(offset)
    assert [(event["verb"], event["requestURI"]) for event in events if event["verb"] not in READS] == []
    # One list and one watch of each resource, and what the operator asks while it starts: nothing for each job.
    assert 0 < len(events) < 60, Counter(event["requestURI"].partition("?")[0] for event in events)
