"""Makes faults in a cluster: by a helper pod, the eviction API, or a command in the pod. Undone when they are over."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.cli.drill.cluster_plan import (
    SIGNAL_FAULTS,
    ClusterPlan,
    Right,
    exec_command,
    helper_pod,
)
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, KubeError, NotFound, TooManyRequests
from gangline.kube.options import WriteOptions
from gangline.kube.pods import PodSubresources
from gangline.summary.objects import NODES, PODS, json_resource, object_key
from gangline.summary.replicas import container_name

ACCESS_REVIEWS = json_resource(
    "authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False
)
HELPER_START = timedelta(seconds=60)
POLL_INTERVAL = timedelta(milliseconds=300)
EXEC_TIME = 30.0
DRY_RUN = WriteOptions(dry_run=True)


async def missing_rights(client: Client, plan: ClusterPlan) -> list[Right]:
    """The rights of a plan that the user does not have. Raises `KubeError` if the server does not say."""
    missing = []
    for right in plan.rights:
        review = await client.create(ACCESS_REVIEWS, right.review())
        if not (review.get("status") or {}).get("allowed"):
            missing.append(right)
    return missing


class ClusterInjector:
    """Makes one fault in a cluster, and undoes it."""

    def __init__(self, client: Client, clock: Clock, request: FaultRequest, image: str = "") -> None:
        """`image`: that of the helper pod, by default the victim's."""
        self._client, self._clock, self._request, self._image = client, clock, request, image

    async def check(self, victims: Sequence[JSON]) -> None:
        """Ask the server whether it would take what is to be created. Raises `InputError`, with what to do."""
        if self._request.fault not in SIGNAL_FAULTS:
            return
        try:
            await self._client.with_options(DRY_RUN).create(PODS, helper_pod(self._request, victims[0], self._image))
        except ApiError as error:
            raise InputError(
                f"--{self._request.fault}: the cluster refuses the pod that sends the signal: {str(error).splitlines()[0]}; "
                "use --evict, or a namespace whose pod security level is privileged"
            ) from error

    @asynccontextmanager
    async def injected(self, victims: Sequence[JSON]) -> AsyncIterator[None]:
        """Make the fault; when the block ends, undo what is left of it. Raises `InputError`."""
        match self._request.fault:
            case FaultKind.EVICT:
                await self._evict(victims)
                yield
            case FaultKind.NODE_LOST:
                async with self._cordoned(str(victims[0]["spec"].get("nodeName", ""))):
                    await self._delete(victims)
                    yield
            case fault if fault in SIGNAL_FAULTS:
                async with self._helper(victims[0]):
                    yield
            case _:
                async with asyncio.TaskGroup() as group:
                    command = group.create_task(self._run_command(victims[0]))
                    yield
                    command.cancel()

    async def _evict(self, victims: Sequence[JSON]) -> None:
        for pod in victims:
            try:
                await PodSubresources(self._client).evict(object_key(pod), uid=pod["metadata"]["uid"])
            except TooManyRequests as error:
                raise InputError(
                    f"{pod['metadata']['name']}: a disruption budget does not allow it: {error}"
                ) from error

    async def _delete(self, victims: Sequence[JSON]) -> None:
        for pod in victims:
            with suppress(NotFound):
                await self._client.delete(PODS, object_key(pod), uid=pod["metadata"]["uid"], grace=timedelta())

    @asynccontextmanager
    async def _cordoned(self, node: str) -> AsyncIterator[None]:
        """Keep new pods from a node for the duration of the fault. A node that is cordoned already stays so."""
        key = Key("", node)
        body = await self._client.get(NODES, key)
        if (body.get("spec") or {}).get("unschedulable"):
            yield
            return
        await self._client.patch(NODES, key, {"spec": {"unschedulable": True}})

        async def uncordon_later() -> None:
            await self._clock.sleep(timedelta(seconds=self._request.seconds))
            await self._client.patch(NODES, key, {"spec": {"unschedulable": None}})

        async with asyncio.TaskGroup() as group:
            task = group.create_task(uncordon_later())
            try:
                yield
            finally:
                task.cancel()
                await asyncio.shield(self._client.patch(NODES, key, {"spec": {"unschedulable": None}}))

    @asynccontextmanager
    async def _helper(self, pod: JSON) -> AsyncIterator[None]:
        helper = await self._client.create(PODS, helper_pod(self._request, pod, self._image))
        key = object_key(helper)
        try:
            await self._wait_for_helper(key)
            yield
        finally:
            with suppress(KubeError):
                await asyncio.shield(self._client.delete(PODS, key))

    async def _wait_for_helper(self, key: Key) -> None:
        """Wait until the helper runs or has ended. Raises `InputError` if it cannot do its work."""
        deadline = self._clock.monotonic() + HELPER_START.total_seconds()
        while True:
            status: JSON = (await self._client.get(PODS, key)).get("status") or {}
            states = [one.get("state") or {} for one in status.get("containerStatuses") or ()]
            waiting: JSON = next((one["waiting"] for one in states if one.get("waiting")), {})
            if status.get("phase") == "Failed":
                ended: JSON = next((one["terminated"] for one in states if one.get("terminated")), {})
                reason = await self._helper_log(key) or ended.get("message") or status.get("reason") or "Failed"
                raise InputError(
                    f"the pod that sends the signal failed: {str(reason).strip().splitlines()[-1]}; "
                    "if its image has no sh, name one that has: --debug-image IMAGE"
                )
            if status.get("phase") in ("Running", "Succeeded"):
                return
            stuck = waiting.get("reason", "") not in ("", "ContainerCreating", "PodInitializing")
            if stuck or self._clock.monotonic() > deadline:
                reason = f"{waiting.get('reason', 'Pending')}: {waiting.get('message', '')}".strip(": ")
                raise InputError(f"the pod that sends the signal does not start: {reason}; try another --debug-image")
            await self._clock.sleep(POLL_INTERVAL)

    async def _helper_log(self, key: Key) -> str:
        with suppress(KubeError):
            lines = [line.decode(errors="replace") async for line in PodSubresources(self._client).logs(key, tail=5)]
            return " ".join(lines)
        return ""

    async def _run_command(self, pod: JSON) -> None:
        """Run the command in the pod, which may end with it."""
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(EXEC_TIME):
                command = exec_command(self._request, pod)
                await PodSubresources(self._client).run(object_key(pod), command, container=container_name(pod))
