"""Notifications of `gangline operator` beside a real kube-apiserver: with the rights of the chart, over crashes and a
change of the leader."""

import json
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from support.cluster.installation import installed_rights
from support.cluster.operator_process import (
    OperatorProcess,
    apply_object,
    bring_job_to,
    create_object,
    running_operator,
    submit_job,
)
from support.cluster.operators import GANGLINE_OPERATOR, install_crds
from support.requirements import skip_or_fail
from support.servers.real import USERS, RealServer, find_assets
from support.servers.receiver import ReceivedRequest, WebhookReceiver, webhook_receiver
from support.waiting import wait_until_blocking

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("operator")]

OPERATOR = "system:serviceaccount:gangline:gangline-operator"
JOURNAL = "/api/v1/namespaces/gangline/configmaps/1ca428e5.training-operator.kubeflow.org-notifications"
ELECTION = ("--leader-elect", "--leader-election-namespace=gangline")
TFJOB, PYTORCHJOB = TRAINING_KINDS[:2]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """With our definitions, and the rights of an installation with notifications."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("server"), users={**USERS, OPERATOR: ()}) as running:
        install_crds(running, GANGLINE_OPERATOR.crds())
        values = {"namespace": {"create": True}, "rbac": {"mpiJobs": False}, "notifications": {"config": "routes: []"}}
        for document in installed_rights(values):
            apply_object(running, document)
        yield running


@pytest.fixture
def namespace(server: RealServer) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    create_object(server, "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver() as running:
        yield running


def flags(folder: Path, receiver: WebhookReceiver, namespace: str) -> tuple[str, ...]:
    file = folder / "routes.yaml"
    route = {"name": "all", "url": f"{receiver.url}/", "namespaces": [namespace]}
    dead = {"name": "dead", "url": "http://127.0.0.1:1/", "namespaces": [namespace]}
    file.write_text(yaml.safe_dump({"routes": [route, dead]}))
    kinds = ("--enable-scheme=TFJob", "--enable-scheme=PyTorchJob")
    return (*ELECTION, *kinds, f"--notifications-file={file}")


def test_with_the_rights_of_the_chart_jobs_are_reported_and_counted(
    server: RealServer, namespace: str, tmp_path: Path, receiver: WebhookReceiver
) -> None:
    with running_operator(server, tmp_path, *flags(tmp_path, receiver, namespace), context=OPERATOR) as operator:
        submit_job(server, namespace, TFJOB, "good")
        submit_job(server, namespace, PYTORCHJOB, "bad")
        bring_job_to(server, namespace, TFJOB, "good", "Running")
        bring_job_to(server, namespace, TFJOB, "good", "Succeeded")
        bring_job_to(server, namespace, PYTORCHJOB, "bad", "Failed")
        receiver.wait_for("good succeeded")
        receiver.wait_for("bad failed")
        operator.counts("gangline_notifications_total", len(receiver.requests), route="all", result="delivered")
        assert operator.counted("gangline_notifications_total", route="dead", result="delivered") == 0
        operator.counts("gangline_notification_queue_length", len(receiver.requests), route="dead")
        assert operator.ended(signal.SIGTERM) == 0
        assert [line for line in operator.lines() if "forbidden" in json.dumps(line)] == []
    assert [label for label in receiver.labels() if label.startswith("good")] == [
        "good created",
        "good running",
        "good succeeded",
    ]
    failed = next(request.json for request in receiver.requests if request.label == "bad failed")
    assert "exit 1" in failed["cause"]
    assert failed["why"] == f"gangline why bad -n {namespace}"
    records = server.call("GET", JOURNAL).body["data"]
    assert len(json.loads(records[failed["uid"]])[2]["dead"]) >= 2


def test_after_a_kill_between_delivery_and_remembering_one_is_repeated_and_none_is_lost(
    server: RealServer, namespace: str, tmp_path: Path, receiver: WebhookReceiver
) -> None:
    operators: list[OperatorProcess] = []

    def kill_at_first_run(request: ReceivedRequest) -> None:
        if request.label == "job running" and receiver.labels().count("job running") == 1:
            operators[0].process.kill()

    arguments = flags(tmp_path, receiver, namespace)
    # Without an election the next one need not wait for the Lease.
    arguments = ("--leader-election-namespace=gangline", "--take-over", *arguments[2:])
    with running_operator(server, tmp_path, *arguments, context=OPERATOR) as operator:
        operators.append(operator)
        receiver.before_answer = kill_at_first_run
        submit_job(server, namespace, TFJOB, "job")
        bring_job_to(server, namespace, TFJOB, "job", "Running")
        receiver.wait_for("job running")
        wait_until_blocking(lambda: not operator.process.is_running, "it was not killed")
    with running_operator(server, tmp_path, *arguments, context=OPERATOR) as operator:
        receiver.wait_for("job running", count=2)
        bring_job_to(server, namespace, TFJOB, "job", "Succeeded")
        receiver.wait_for("job succeeded")
        assert operator.ended(signal.SIGTERM) == 0
    assert list(dict.fromkeys(receiver.labels())) == ["job created", "job running", "job succeeded"]
    assert max(Counter(request.id for request in receiver.requests).values()) == 2
    before = len(receiver.requests)
    with running_operator(server, tmp_path, *arguments, context=OPERATOR) as operator:
        submit_job(server, namespace, TFJOB, "next")
        receiver.wait_for("next created")
        assert operator.ended(signal.SIGTERM) == 0
    assert [label for label in receiver.labels()[before:] if label.startswith("job ")] == []


def test_only_the_leader_delivers_and_the_next_one_goes_on(
    server: RealServer, namespace: str, tmp_path: Path, receiver: WebhookReceiver
) -> None:
    arguments = flags(tmp_path, receiver, namespace)
    with (
        running_operator(server, tmp_path, *arguments, context=OPERATOR) as first,
        running_operator(server, tmp_path, *arguments, context=OPERATOR) as second,
    ):
        submit_job(server, namespace, TFJOB, "job")
        receiver.wait_for("job created")
        leaders = [one for one in (first, second) if one.counted("leader_election_master_status") == 1]
        assert len(leaders) == 1
        leader, other = leaders[0], second if leaders[0] is first else first
        assert other.counted("gangline_notifications_total", route="all") == 0
        assert leader.ended(signal.SIGTERM) == 0
        bring_job_to(server, namespace, TFJOB, "job", "Running")
        receiver.wait_for("job running")
        other.counts("gangline_notifications_total", 1, route="all", result="delivered")
        assert other.ended(signal.SIGTERM) == 0
    assert receiver.labels() == ["job created", "job running"]
