"""The endpoint for progress beside both API servers, with tokens that they issue: who may report, and what arrives."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import aiohttp
import pytest

from gangline.api.core import Namespace, Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, JobKind
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock, SystemClock
from gangline.jobs.pods.progress_reporting import progress_audience, progress_path
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists
from gangline.kube.transport.api import Request
from gangline.operator.definitions import create_crds
from gangline.operator.progress.endpoint import MAX_BODY_BYTES, REPORT_BURST, listening_socket, progress_endpoint
from gangline.operator.progress.writer import ProgressWriter
from gangline.runtime.health import BindAddress
from gangline.testing.clock import FakeClock
from support.builders.objects import unique_name

ACCOUNTS: Resource[JSON] = Resource("", "v1", "ServiceAccount", "serviceaccounts", dict[str, Any])
FIRST = {"progressPercentage": 0, "metrics": [{"name": "total_steps", "value": "20"}]}
LAST = {"progressPercentage": 100, "estimatedRemainingSeconds": 0, "metrics": [{"name": "loss", "value": "0.25"}]}


class Answer(NamedTuple):
    """Status and message of an answer."""

    status: int
    message: str
    body: JSON


class ReportingTeam:
    """A namespace with an account and jobs, whose pods report."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create_account(self) -> None:
        await self.client.create(ACCOUNTS, {"metadata": {"name": "trainer", "namespace": self.namespace}})

    async def create_pod(self, job: str, *, kind: JobKind = PYTORCHJOB, is_owned: bool = True) -> Pod:
        """A pod that the job controls."""
        jobs = self.client.unstructured(kind.resource)
        template = {"spec": {"containers": [{"name": kind.container, "image": "none"}]}}
        spec = {kind.replicas: {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": template}}}
        try:
            made = await self.client.create(
                jobs, {"metadata": {"name": job, "namespace": self.namespace}, "spec": spec}
            )
        except AlreadyExists:
            made = await self.client.get(jobs, Key(self.namespace, job))
        owner = {"apiVersion": "kubeflow.org/v1", "kind": kind.kind, "name": job, "uid": made["metadata"]["uid"]}
        owners = [{**owner, "controller": True}] if is_owned else []
        metadata = {"name": unique_name(job), "namespace": self.namespace, "ownerReferences": owners}
        body = {"metadata": metadata, "spec": {**template["spec"], "serviceAccountName": "trainer"}}
        return await self.client.create(Pod, body)

    async def token(self, pod: Pod | None, audience: str, **spec: object) -> str:
        """A token for an audience, bound to the pod."""
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid} if pod else None
        body = {"spec": {"audiences": [audience], "boundObjectRef": bound, **spec}}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/trainer/token"
        request = Request("POST", path, (), json.dumps(body).encode(), "application/json")
        return str(json.loads(await self.client.requests.call(request))["status"]["token"])

    async def job_token(self, pod: Pod, job: str, kind: JobKind = PYTORCHJOB) -> str:
        return await self.token(pod, progress_audience(kind.plural, Key(self.namespace, job)))

    def path(self, job: str, kind: JobKind = PYTORCHJOB) -> str:
        return progress_path(kind.plural, Key(self.namespace, job))

    async def progress(self, pod: Pod) -> JSON | None:
        """What the annotation of the pod says."""
        current = await self.client.get(Pod, pod.metadata.key)
        text = current.metadata.annotations.get(PROGRESS_ANNOTATION)
        return None if text is None else json.loads(text)["progress"]


class Endpoint:
    """A client of a running endpoint."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self.port = session, port

    async def post(
        self,
        path: str,
        token: str | None,
        report: JSON | bytes | AsyncIterator[bytes] = LAST,
        *,
        scheme: str = "Bearer",
        method: str = "POST",
    ) -> Answer:
        headers = {"Content-Type": "application/json", **({"Authorization": f"{scheme} {token}"} if token else {})}
        data = json.dumps({"trainerStatus": report}).encode() if isinstance(report, dict) else report
        async with self._session.request(method, path, data=data, headers=headers) as response:
            body = await response.json()
            return Answer(response.status, body.get("message", ""), body)


@asynccontextmanager
async def running_endpoint(client: Client, clock: Clock | None = None) -> AsyncIterator[Endpoint]:
    clock = clock or SystemClock()
    writer, listener = ProgressWriter(client, clock), listening_socket(BindAddress("127.0.0.1", 0))
    port = listener.getsockname()[1]
    async with (
        writer.running(),
        progress_endpoint(client, [PYTORCHJOB, TFJOB], writer, listener, clock),
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):
        yield Endpoint(session, port)


@pytest.fixture
async def team(client: Client, namespace: str) -> ReportingTeam:
    await create_crds(client, SystemClock(), [PYTORCHJOB, TFJOB])
    team = ReportingTeam(client, namespace)
    await team.create_account()
    return team


@pytest.fixture
async def endpoint(client: Client) -> AsyncIterator[Endpoint]:
    async with running_endpoint(client) as running:
        yield running


async def test_a_pod_reports_for_its_job(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod = await team.create_pod("bert")
    token = await team.job_token(pod, "bert")
    first = await endpoint.post(team.path("bert"), token, FIRST)
    assert (first.status, first.body) == (200, {"progress": {"step": 0, "total": 20, "metrics": {}}})
    last = await endpoint.post(team.path("bert"), token, LAST)
    assert last.status == 200
    # Written before it was answered: the program ends now. In the steps of the first report.
    assert await team.progress(pod) == {"step": 20, "total": 20, "loss": 0.25, "remaining_seconds": 0}


async def test_a_token_of_another_pod_annotates_that_pod_alone(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, other = await team.create_pod("bert"), await team.create_pod("bert")
    assert (await endpoint.post(team.path("bert"), await team.job_token(other, "bert"))).status == 200
    assert await team.progress(pod) is None
    assert await team.progress(other) is not None


async def test_a_pod_cannot_report_for_another_job(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, other = await team.create_pod("bert"), await team.create_pod("gpt")
    # With its own token, and with one that it asks for itself with the other job's audience.
    answer = await endpoint.post(team.path("gpt"), await team.job_token(pod, "bert"))
    assert (answer.status, answer.message) == (401, "the token is not for progress of this job")
    answer = await endpoint.post(team.path("gpt"), await team.job_token(pod, "gpt"))
    assert (answer.status, answer.message) == (
        403,
        f'pod "{pod.metadata.name}" does not belong to PyTorchJob "gpt"',
    )
    # Nor for a job of that name and another kind.
    answer = await endpoint.post(team.path("bert", TFJOB), await team.job_token(pod, "bert", TFJOB))
    assert answer.status == 403
    assert await team.progress(pod) is None
    assert await team.progress(other) is None


async def test_a_pod_without_a_job_reports_nothing(team: ReportingTeam, endpoint: Endpoint) -> None:
    await team.create_pod("bert")
    stranger = await team.create_pod("bert", is_owned=False)
    assert (await endpoint.post(team.path("bert"), await team.job_token(stranger, "bert"))).status == 403
    assert await team.progress(stranger) is None


async def test_a_pod_of_another_namespace_reports_nothing(
    team: ReportingTeam, endpoint: Endpoint, client: Client
) -> None:
    other = ReportingTeam(client, unique_name("other"))
    await client.create(Namespace, {"metadata": {"name": other.namespace}})
    await other.create_account()
    pod, spy = await team.create_pod("bert"), await other.create_pod("bert")
    token = await other.token(spy, progress_audience(PYTORCHJOB.plural, Key(team.namespace, "bert")))
    answer = await endpoint.post(team.path("bert"), token)
    assert (answer.status, answer.message) == (403, "the token is not that of a pod in the job's namespace")
    assert await team.progress(pod) is None


async def test_tokens_for_others_are_refused(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    audience = progress_audience(PYTORCHJOB.plural, Key(team.namespace, "bert"))
    for token in (await team.token(pod, "https://kubernetes.default.svc"), await team.token(pod, f"x{audience}")):
        assert (await endpoint.post(path, token)).status == 401
    # Of an account, not of a pod.
    assert (await endpoint.post(path, await team.token(None, audience))).status == 403
    assert await team.progress(pod) is None


async def test_what_is_no_token_is_refused(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")
    head, claims, signature = token.split(".")
    forged = f"{head}.{claims}.{signature[::-1]}"
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    assert (await endpoint.post(path, None)).message == "a bearer token is needed"
    assert (await endpoint.post(path, token, scheme="Basic")).status == 401
    for text in (forged, f"{unsigned}.{claims}.", "x.y.z", "made-up", f"{head}..{signature}"):
        answer = await endpoint.post(path, text)
        assert answer.status == 401, text
    assert await team.progress(pod) is None


async def test_an_expired_token_is_refused(team: ReportingTeam, client: Client) -> None:
    pod = await team.create_pod("bert")
    token = await team.job_token(pod, "bert")
    async with running_endpoint(client, FakeClock(datetime.now(UTC) + timedelta(hours=2))) as endpoint:
        answer = await endpoint.post(team.path("bert"), token)
    assert (answer.status, answer.message) == (401, "the token has expired; read its file again")


async def test_a_pod_that_is_gone_reports_nothing(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod = await team.create_pod("bert")
    token = await team.job_token(pod, "bert")
    await team.client.delete(Pod, pod.metadata.key, grace=timedelta())
    assert (await endpoint.post(team.path("bert"), token)).status in (401, 403)


async def test_a_new_pod_of_that_name_is_not_annotated_for_the_old_one(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod = await team.create_pod("bert")
    token = await team.job_token(pod, "bert")
    assert (await endpoint.post(team.path("bert"), token, FIRST)).status == 200
    await team.client.delete(Pod, pod.metadata.key, grace=timedelta())
    owner = pod.metadata.owner_references[0]
    owners = [
        {"apiVersion": owner.api_version, "kind": owner.kind, "name": "bert", "uid": owner.uid, "controller": True}
    ]
    metadata = {"name": pod.metadata.name, "namespace": team.namespace, "ownerReferences": owners}
    spec = {"containers": [{"name": "pytorch", "image": "none"}], "serviceAccountName": "trainer"}
    successor = await team.client.create(Pod, {"metadata": metadata, "spec": spec})
    # The token is still remembered as good: what counts is the uid.
    await endpoint.post(team.path("bert"), token, LAST)
    assert await team.progress(successor) is None


async def test_bad_bodies_are_refused_in_one_sentence(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")
    for body, message in (
        (b"{", "the body is not JSON"),
        (b"[]", 'the body has no object "trainerStatus"'),
        (b'{"trainerStatus": 3}', 'the body has no object "trainerStatus"'),
        (b'{"trainerStatus": {"progressPercentage": "7"}}', "trainerStatus.progressPercentage: is not a number"),
        (b'{"trainerStatus": {"progressPercentage": 101}}', "trainerStatus.progressPercentage: is 101"),
        (b'{"trainerStatus": {"metrics": {"loss": 1}}}', "trainerStatus.metrics: is not a list"),
    ):
        answer = await endpoint.post(path, token, body)
        assert answer.status == 400
        assert answer.message.startswith(message)
    assert await team.progress(pod) is None


async def test_a_body_that_is_too_large_is_refused(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")
    answer = await endpoint.post(path, token, b"x" * (MAX_BODY_BYTES + 1))
    assert (answer.status, answer.message) == (413, "the body is larger than 64 KiB")
    fitting = {"trainerStatus": {**LAST, "filling": ""}}
    fitting["trainerStatus"]["filling"] = "x" * (MAX_BODY_BYTES - len(json.dumps(fitting)))
    assert (await endpoint.post(path, token, json.dumps(fitting).encode())).status == 200


async def test_a_large_body_without_a_length_is_refused_too(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 1024 + 1):
            yield b"x" * 1024

    assert (await endpoint.post(path, token, parts())).status == 413


async def test_a_body_that_does_not_arrive_is_not_waited_for(team: ReportingTeam, client: Client) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")
    clock = FakeClock(datetime.now(UTC))
    head = f"POST {path} HTTP/1.1\r\nHost: operator\r\nAuthorization: Bearer {token}\r\nContent-Length: 2\r\n\r\n"
    async with running_endpoint(client, clock) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(f"{head}{{".encode())
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(reader.readline())
            while not answer.done():
                await asyncio.sleep(0.01)
                await clock.advance(timedelta(milliseconds=200))
        assert answer.result().split()[1] == b"408"
        # It comes after all: the connection can end.
        writer.write(b"}")
        writer.close()
        await reader.read()


async def test_other_paths_and_methods_are_refused(team: ReportingTeam, endpoint: Endpoint) -> None:
    pod, path = await team.create_pod("bert"), team.path("bert")
    token = await team.job_token(pod, "bert")
    assert (await endpoint.post("/", token)).status == 404
    assert (await endpoint.post(f"{path}/more", token)).status == 404
    assert (await endpoint.post(path.replace("pytorchjobs", "xgboostjobs"), token)).message == (
        'this operator serves no "xgboostjobs"'
    )
    assert (await endpoint.post(path, token, method="PUT")).status == 405


async def test_a_pod_that_reports_too_often_is_told_so_and_others_are_not(
    team: ReportingTeam, endpoint: Endpoint
) -> None:
    pod, other = await team.create_pod("bert"), await team.create_pod("gpt")
    token = await team.job_token(pod, "bert")
    statuses = [(await endpoint.post(team.path("bert"), token, FIRST)).status for _ in range(REPORT_BURST * 2)]
    assert statuses[:REPORT_BURST] == [200] * REPORT_BURST
    assert 429 in statuses
    assert (await endpoint.post(team.path("gpt"), await team.job_token(other, "gpt"))).status == 200
    assert await team.progress(other) is not None


async def test_of_two_operators_none_replaces_a_newer_report(team: ReportingTeam, client: Client) -> None:
    pod = await team.create_pod("bert")
    token, path = await team.job_token(pod, "bert"), team.path("bert")
    async with running_endpoint(client) as first:
        async with running_endpoint(client) as second:
            assert (await first.post(path, token, FIRST)).status == 200
            # This one waits for its turn in the first operator, while the second one writes the last.
            assert (await first.post(path, token, {"progressPercentage": 50})).status == 200
            assert (await second.post(path, token, LAST)).status == 200
        written = await team.progress(pod)
    assert written is not None
    assert written["loss"] == 0.25
    # The first has ended, and has written what was waiting, unless it is older.
    assert await team.progress(pod) == written


async def test_what_waits_is_written_when_the_operator_stops(team: ReportingTeam, client: Client) -> None:
    pod = await team.create_pod("bert")
    token, path = await team.job_token(pod, "bert"), team.path("bert")
    async with running_endpoint(client) as endpoint:
        assert (await endpoint.post(path, token, FIRST)).status == 200
        for percentage in (10, 20, 30):
            assert (await endpoint.post(path, token, {"progressPercentage": percentage})).status == 200
    assert await team.progress(pod) == {"step": 6, "total": 20}
