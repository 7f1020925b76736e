"""Plays job scenarios against whatever operator serves kubeflow.org, many at a time, each in its own namespace.

The steps of a scenario (tests/support/cases/kubeflow.py):

    pods: {SUFFIX: WHAT}    moves the pod JOB-SUFFIX, or with `all` every pod; WHAT is a phase, `delete`, `evicted`,
                            `unready` (Running, but not ready),
                            {exit: 1}, {exit: 137, reason: OOMKilled}, {restarts: 2} or {waiting: REASON}
    patch: {...}            a merge patch of the job
    scale: 3                the job's scale subresource
    remove: [services/X]    deletes objects behind the operator's back
    delete: true            deletes the job
    wait: 4                 seconds

The node is fake: nothing but this moves pods, and terminating pods go a moment later. A pod of a batch/v1 Job is named
by that Job: the pods of JOB-launcher are moved by `launcher` while they have not ended, and compared by their phases.
"""

import asyncio
import base64
import itertools
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import aiohttp

from gangline.base.clock import Clock
from support.cases.kubeflow import ExpectedDifference, Scenario, differences, is_settled
from support.servers.real import StandaloneServer

NODE_NAME = "fake-node"
JOB_PLURALS = ("tfjobs", "pytorchjobs", "xgboostjobs", "mpijobs", "paddlejobs", "jaxjobs")
OWNED_PATHS: Mapping[str, str] = MappingProxyType(
    {
        "pods": "/api/v1",
        "services": "/api/v1",
        "configmaps": "/api/v1",
        "serviceaccounts": "/api/v1",
        "roles": "/apis/rbac.authorization.k8s.io/v1",
        "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
        "horizontalpodautoscalers": "/apis/autoscaling/v2",
        "secrets": "/api/v1",
        "jobs": "/apis/batch/v1",
    }
)
JOB_PATHS: Mapping[str, str] = MappingProxyType(dict.fromkeys(JOB_PLURALS, "/apis/kubeflow.org/v1"))
MPI_V2_PATHS: Mapping[str, str] = MappingProxyType({"mpijobs": "/apis/kubeflow.org/v2beta1"})
JOB_CONTROLLER_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
# Every namespace has these.
NAMESPACE_DEFAULTS = ("configmaps/kube-root-ca.crt", "serviceaccounts/default")
SERVER_SET_FIELDS = (
    *("uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "selfLink", "namespace"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
MERGE_PATCH = "application/merge-patch+json"
MAX_LINE_BYTES = 2**22
TERMINATION_DELAY = timedelta(seconds=0.2)  # long enough for an operator to see it
POLL_INTERVAL = timedelta(seconds=0.05)


class SettleTimes(NamedTuple):
    """When the world has settled: nothing has changed for so many seconds."""

    quiet_seconds: float = 0.6
    mismatch_seconds: float = 30.0  # as long as it is not what was expected: the machine may be busy
    max_seconds: float = 90.0  # an operator may never settle


CHECK_TIMES = SettleTimes()
RECORD_TIMES = SettleTimes(quiet_seconds=1.5, mismatch_seconds=1.5)


class RequestRefused(Exception):
    """The server rejected a request. Carries its response."""


class WatchedObjects:
    """The relevant objects on a server, kept current by watches, by namespace and then by `resource/name`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        clock: Clock,
        group: asyncio.TaskGroup,
        job_paths: Mapping[str, str] = JOB_PATHS,
    ) -> None:
        self._session, self._clock, self._group = session, clock, group
        self.paths: Mapping[str, str] = {**OWNED_PATHS, **job_paths, "events": "/api/v1"}
        self._objects: dict[str, dict[str, Any]] = defaultdict(dict)
        self._changed_at: dict[str, float] = {}
        self._terminating: set[str] = set()  # UIDs

    async def follow(self, resource: str) -> None:
        """List once, then watch; never returns."""
        path = f"{self.paths[resource]}/{resource}"
        while True:
            page = await send_request(self._session, "GET", path)
            for item in page["items"]:
                self._apply_event(resource, "ADDED", item)
            params = {"watch": "true", "resourceVersion": page["metadata"]["resourceVersion"]}
            async with self._session.get(path, params=params) as response:
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    self._apply_event(resource, event["type"], event["object"])

    def objects(self, namespace: str) -> Mapping[str, Any]:
        return self._objects[namespace]

    def touch(self, namespace: str) -> None:
        """Restart the settling time of a namespace."""
        self._changed_at[namespace] = self._clock.monotonic()

    def changed_at(self, namespace: str) -> float:
        """The monotonic time of the last change in a namespace."""
        return self._changed_at[namespace]

    def _apply_event(self, resource: str, what: str, item: Any) -> None:
        namespace, name = item["metadata"]["namespace"], item["metadata"]["name"]
        here = self._objects[namespace]
        if resource == "events":
            # Only the set of them matters, and some operators repeat theirs without end.
            key = f"events/{item.get('type')} {item.get('reason')} {item['involvedObject']['kind']}"
            if key not in here:
                self.touch(namespace)
            here[key] = item
            return
        self.touch(namespace)
        if what == "DELETED":
            here.pop(f"{resource}/{name}", None)
            return
        here[f"{resource}/{name}"] = item
        uid = item["metadata"]["uid"]
        if resource == "pods" and "deletionTimestamp" in item["metadata"] and uid not in self._terminating:
            self._terminating.add(uid)
            self._group.create_task(self._finish_deletion(namespace, name, uid))

    async def _finish_deletion(self, namespace: str, name: str, uid: str) -> None:
        """The kubelet's part."""
        await self._clock.sleep(TERMINATION_DELAY)
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await send_request(
            self._session, "DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", body, okay=(404, 409)
        )


class ScenarioPlayer:
    """Plays scenarios on one server. Make it with `scenario_player`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        world: WatchedObjects,
        clock: Clock,
        known: Sequence[ExpectedDifference],
    ) -> None:
        self._session, self._world, self._clock, self._known = session, world, clock, known
        self._numbers = itertools.count(10000)

    async def play_all(
        self,
        cases: Iterable[tuple[Scenario, list[Any] | None]],
        patience: SettleTimes = CHECK_TIMES,
        at_once: int = 64,
    ) -> dict[str, list[Any]]:
        """The shots of each, by name. What was recorded before says what to wait for; None waits for quiet only.

        Most of the time each of them waits for quiet, so many go at once; those that take longest go first.
        """
        found: dict[str, list[Any]] = {}
        turns = asyncio.Semaphore(at_once)

        async def one(scenario: Scenario, expected: list[Any] | None) -> None:
            async with turns:
                found[scenario.name] = await self.play(scenario, expected, patience)

        async with asyncio.TaskGroup() as group:
            for scenario, expected in sorted(cases, key=lambda case: case[0].wait_seconds, reverse=True):
                group.create_task(one(scenario, expected))
        return found

    async def play(self, scenario: Scenario, expected: list[Any] | None, patience: SettleTimes) -> list[Any]:
        namespace = f"diff-{scenario.name}-{next(self._numbers)}"
        await send_request(self._session, "POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        playing = _ScenarioRun(self._session, self._world, self._clock, namespace, scenario.job)
        shots = []
        for number, step in enumerate(["create", *scenario.steps]):
            label = step if isinstance(step, str) else json.dumps(step)
            try:
                await playing.act(step)
            except RequestRefused as refused:
                shots.append({"step": label, "refused": str(refused)})
                break
            self._world.touch(namespace)

            def is_expected(shot: Any, number: int = number) -> bool:
                if expected is None:
                    return True
                wanted = {**expected[number], "step": None}
                at = f"{scenario.name}[{number}]"
                return is_settled(at, differences(at, wanted, {**shot, "step": None}), self._known)

            shots.append({"step": label, **await playing.settle(is_expected, patience)})
        await send_request(self._session, "DELETE", f"/api/v1/namespaces/{namespace}")
        return shots


class _ScenarioRun:
    """A scenario being played."""

    def __init__(
        self, session: aiohttp.ClientSession, world: WatchedObjects, clock: Clock, namespace: str, job: Any
    ) -> None:
        self._session, self._world, self._clock, self._namespace = session, world, clock, namespace
        self._job, self._name = job, job["metadata"]["name"]
        self._plural = job["kind"].lower() + "s"
        self._jobs = f"/apis/{job['apiVersion']}/namespaces/{namespace}/{self._plural}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    async def act(self, step: Any) -> None:
        if step == "create":
            await send_request(self._session, "POST", self._jobs, self._job)
            return
        ((verb, argument),) = step.items()
        path = f"{self._jobs}/{self._name}"
        match verb:
            case "pods":
                for suffix, what in argument.items():
                    await self._move_pods(suffix, what)
            case "patch":
                await send_request(self._session, "PATCH", path, argument, MERGE_PATCH)
            case "scale":
                await send_request(
                    self._session, "PATCH", f"{path}/scale", {"spec": {"replicas": argument}}, MERGE_PATCH
                )
            case "remove":
                for place in argument:
                    resource, name = place.split("/")
                    await send_request(
                        self._session,
                        "DELETE",
                        f"{OWNED_PATHS[resource]}/namespaces/{self._namespace}/{resource}/{name}",
                        {"propagationPolicy": "Background"},
                    )
            case "delete":
                await send_request(self._session, "DELETE", path)
            case "wait":
                await self._clock.sleep(timedelta(seconds=argument))
            case _:
                raise ValueError(f"unknown step {verb!r}")

    async def settle(self, is_expected: Callable[[Any], bool], patience: SettleTimes) -> Any:
        """The objects once nothing changes any more."""
        ends = self._clock.monotonic() + patience.max_seconds
        looked = 0.0
        while self._clock.monotonic() < ends:
            since = self._world.changed_at(self._namespace)
            quiet = self._clock.monotonic() - since
            if quiet > patience.mismatch_seconds:
                break
            if quiet > patience.quiet_seconds and since != looked:  # once after each change
                looked = since
                shot = self._take_shot()
                if is_expected(shot):
                    return shot
            await self._clock.sleep(POLL_INTERVAL)
        return self._take_shot()

    def _take_shot(self) -> Any:
        there = self._world.objects(self._namespace)
        compared = {key: item for key, item in there.items() if _is_compared(key, item)}
        shot = {
            "objects": {**_normalized_objects(compared), **_launched_pods(compared.values())},
            "job": _job_summary(there.get(f"{self._plural}/{self._name}")),
            "events": sorted(key.partition("/")[2].split(" ") for key in there if key.startswith("events/")),
        }
        return json.loads(json.dumps(shot).replace(self._namespace, "NS"))

    async def _move_pods(self, suffix: str, what: Any) -> None:
        for pod in (await send_request(self._session, "GET", self._pods))["items"]:
            name = pod["metadata"]["name"]
            leaving = "deletionTimestamp" in pod["metadata"]
            launcher = _owning_job(pod)
            ended = launcher and pod["status"].get("phase") in ("Succeeded", "Failed")
            if leaving or ended or suffix not in ("all", (launcher or name).removeprefix(f"{self._name}-")):
                continue
            if what == "delete":
                await send_request(self._session, "DELETE", f"{self._pods}/{name}", {"gracePeriodSeconds": 0})
            else:
                now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
                status = {"status": pod_status(pod, what, now)}
                await send_request(self._session, "PATCH", f"{self._pods}/{name}/status", status, MERGE_PATCH)


def _is_compared(key: str, item: Any) -> bool:
    resource = key.partition("/")[0]
    leaving = resource == "pods" and "deletionTimestamp" in item["metadata"]
    return resource in OWNED_PATHS and key not in NAMESPACE_DEFAULTS and not leaving


def _owning_job(item: Any) -> str:
    """The name of the batch/v1 Job that owns the object; empty if none does."""
    owners = item["metadata"].get("ownerReferences") or ()
    return next((one["name"] for one in owners if one["kind"] == "Job"), "")


def _normalized_objects(objects: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _normalized(key, item) for key, item in objects.items() if not _owning_job(item)}


def _launched_pods(objects: Iterable[Any]) -> dict[str, Any]:
    """The pods of batch/v1 Jobs, whose names are random: their phases in the order of creation, by the name of the Job."""
    phases: dict[str, list[str]] = defaultdict(list)
    for item in sorted(objects, key=lambda item: item["metadata"]["creationTimestamp"]):
        if owner := _owning_job(item):
            phases[f"pods of jobs/{owner}"].append(item["status"].get("phase"))
    return dict(phases)


def _without_uids(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if key not in JOB_CONTROLLER_LABELS}


def _key_form(encoded: str) -> str:
    """The form of a random key in a Secret, such as its PEM label or its algorithm."""
    text = base64.b64decode(encoded).decode()
    return text.splitlines()[0] if text.startswith("-----") else text.split()[0]


def _normalized(key: str, item: Any) -> Any:
    """Without what differs from server to server, and from one run to the next."""
    kept = {name: value for name, value in item.items() if name not in ("status", "apiVersion", "kind")}
    meta = {name: value for name, value in item["metadata"].items() if name not in SERVER_SET_FIELDS}
    if "ownerReferences" in meta:
        meta["ownerReferences"] = [
            {name: value for name, value in one.items() if name != "uid"} for one in meta["ownerReferences"]
        ]
    kept["metadata"] = meta
    if key.startswith("pods/"):
        kept["phase"] = item["status"].get("phase")
    if key.startswith("secrets/"):
        kept["data"] = {name: _key_form(value) for name, value in (item.get("data") or {}).items()}
    if key.startswith("jobs/"):
        template = item["spec"]["template"]
        template = {**template, "metadata": {**template["metadata"], "creationTimestamp": None}}
        template["metadata"]["labels"] = _without_uids(template["metadata"].get("labels") or {})
        template["metadata"]["ownerReferences"] = [
            {name: value for name, value in one.items() if name != "uid"}
            for one in template["metadata"].get("ownerReferences") or ()
        ]
        kept["spec"] = {**item["spec"], "selector": None, "template": template}
        if "labels" in meta:
            meta["labels"] = _without_uids(meta["labels"])
    return kept


def _job_summary(job: Any) -> Any:
    if job is None:
        return None
    status = job.get("status") or {}
    counters = ("active", "succeeded", "failed", "selector")
    replicas = {
        name: {key: value[key] for key in counters if value.get(key)}
        for name, value in (status.get("replicaStatuses") or {}).items()
    }
    return {
        "conditions": [
            {key: condition.get(key) for key in ("type", "status", "reason", "message")}
            for condition in status.get("conditions") or ()
        ],
        "replicaStatuses": replicas or None,
        "started": bool(status.get("startTime")),
        "completed": bool(status.get("completionTime")),
    }


def pod_status(pod: Any, what: Any, now: str) -> Any:
    """What a kubelet would report."""
    if what == "evicted":
        gone: list[Any] = []  # nothing is known of its containers any more
        return {"phase": "Failed", "reason": "Evicted", "containerStatuses": gone, "conditions": gone}
    unready = what == "unready"
    what = "Running" if unready else what
    phase = what if isinstance(what, str) else _pod_phase(what)
    containers = [_container_status(one, phase, what, now) for one in pod["spec"]["containers"]]
    ready = {
        "type": "Ready",
        "status": "True" if phase == "Running" and not unready else "False",
        "lastTransitionTime": now,
    }
    started = phase != "Pending" or (isinstance(what, dict) and "waiting" in what)
    return {
        "phase": phase,
        "startTime": now,
        "podIP": "10.0.0.1",
        "containerStatuses": containers if started else [],
        "conditions": [ready],
    }


def _pod_phase(what: Mapping[str, Any]) -> str:
    if "exit" in what:
        return "Failed"
    return "Pending" if "waiting" in what else "Running"


def _container_status(spec: Any, phase: str, what: Any, now: str) -> Any:
    told: Mapping[str, Any] = what if isinstance(what, dict) else {}
    if phase == "Running":
        state: Any = {"running": {"startedAt": now}}
    elif phase == "Pending":
        state = {"waiting": {"reason": told.get("waiting"), "message": "as it was told"}}
    else:
        code = 0 if phase == "Succeeded" else told.get("exit", 1)
        reason = told.get("reason") or ("Error" if code else "Completed")
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": now}}
    return {
        "name": spec["name"],
        "image": spec["image"],
        "imageID": "",
        "ready": phase == "Running",
        "restartCount": told.get("restarts", 0),
        "state": state,
    }


async def send_request(
    session: aiohttp.ClientSession,
    method: str,
    path: str,
    body: Any = None,
    content_type: str = "application/json",
    okay: tuple[int, ...] = (),
) -> Any:
    """One request; `okay` are the accepted statuses above 299. Raises RequestRefused for the others."""
    data = None if body is None else json.dumps(body)
    async with session.request(method, path, data=data, headers={"Content-Type": content_type}) as response:
        text = await response.text()
        if response.status >= 300 and response.status not in okay:
            raise RequestRefused(f"{method} {path}: {response.status} {text[:500]}")
        return json.loads(text)


@asynccontextmanager
async def scenario_player(
    server: StandaloneServer,
    clock: Clock,
    known: Sequence[ExpectedDifference] = (),
    job_paths: Mapping[str, str] = JOB_PATHS,
) -> AsyncIterator[ScenarioPlayer]:
    """One who follows what happens on the server, and waits for what is known to be different to be so.

    The kinds of `job_paths` must be served there, and a controller manager run.
    """
    trust = ssl.create_default_context(cafile=str(server.ca))
    async with (
        aiohttp.ClientSession(
            server.url,
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            headers={"Authorization": f"Bearer {server.token}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            read_bufsize=MAX_LINE_BYTES,
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        await send_request(session, "POST", "/api/v1/nodes", {"metadata": {"name": NODE_NAME}}, okay=(409,))
        world = WatchedObjects(session, clock, group, job_paths)
        followers = [group.create_task(world.follow(resource)) for resource in world.paths]
        yield ScenarioPlayer(session, world, clock, known)
        for follower in followers:
            follower.cancel()
