"""Samples the stacks of pods in a cluster: by a command in the container, or by an ephemeral container beside it."""

from collections.abc import Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import Any

from gangline.api.core import Container, Pod
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_all, time_limit
from gangline.base.uuids import random_uuid
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, MethodNotAllowed, NotFound
from gangline.kube.options import PatchType
from gangline.kube.pods import PodSubresources
from gangline.stacks.model import ProcessStack, RankStack
from gangline.stacks.pod_script import IncompleteOutput, script, script_processes
from gangline.stacks.pods import containers, replica_name

PODS: Resource[JSON] = Resource("", "v1", "Pod", "pods", dict[str, Any])
EXEC_TIMEOUT = timedelta(seconds=30)
DEBUG_TIMEOUT = timedelta(minutes=2)
"""How long an ephemeral container may take: its image may have to be pulled."""
POLL_INTERVAL = timedelta(seconds=0.5)
AT_ONCE = 16


class DebugFailed(GanglineError):
    """The ephemeral container cannot start."""


class ClusterStackSampler:
    """A `StackSampler` for pods anywhere. It changes nothing, unless it gets a `debug_image`."""

    def __init__(self, client: Client, clock: Clock, *, native: bool = False, debug_image: str = "") -> None:
        self._client, self._clock = client, clock
        self._native, self._debug_image = native, debug_image

    async def sample(self, pods: Sequence[Pod]) -> tuple[RankStack, ...]:
        """The stacks of the pods, in their order; of a pod whose stacks cannot be read, why."""
        stacks: dict[Key, RankStack] = {}

        async def one(pod: Pod) -> None:
            stacks[pod.metadata.key] = await self._sample(pod)

        await run_all((one(pod) for pod in pods), at_once=AT_ONCE)
        return tuple(stacks[pod.metadata.key] for pod in pods)

    async def _sample(self, pod: Pod) -> RankStack:
        processes: tuple[ProcessStack, ...] = ()
        container = containers(pod)[0]
        timeout = DEBUG_TIMEOUT if self._debug_image else EXEC_TIMEOUT
        try:
            async with time_limit(timeout, self._clock):
                read = self._debug_output if self._debug_image else self._exec_output
                processes = script_processes(await read(pod, container))
            error = "" if processes else "no process is seen in the container"
        except TimeoutError:
            error = f"no answer for {timeout.total_seconds():g} s"
        except IncompleteOutput as broken:
            error = f"the shell in the container did not read the processes: {str(broken) or 'no output'}"
        except Forbidden as denied:
            error = f"{missing_right(debug=bool(self._debug_image))}: {_first_line(denied)}"
        except (NotFound, MethodNotAllowed) as unserved:
            error = _first_line(unserved)
            if self._debug_image and await self._exists(pod):
                error = "the server has no ephemeral containers (its own node runs no images); leave --debug-image out"
        except (DebugFailed, KubeError) as failed:
            error = _first_line(failed)
        return RankStack(replica_name(pod), None, pod.metadata.name, processes, error)

    async def _exists(self, pod: Pod) -> bool:
        try:
            await self._client.get(PODS, pod.metadata.key)
        except KubeError:
            return False
        return True

    async def _exec_output(self, pod: Pod, container: Container) -> str:
        command = ("sh", "-c", script(native=self._native))
        result = await PodSubresources(self._client).run(pod.metadata.key, command, container=container.name)
        output = result.stdout.decode(errors="replace")
        return output if output.strip() else result.stderr.decode(errors="replace")

    async def _debug_output(self, pod: Pod, container: Container) -> str:
        """What the script prints in an ephemeral container that shares the processes of the container."""
        key, name = pod.metadata.key, f"gangline-stacks-{random_uuid()[:8]}"
        body = await self._client.get(PODS, key)
        debug = debug_container(name, self._debug_image, body, container.name, native=self._native)
        await self._client.patch(
            PODS,
            key,
            {"spec": {"ephemeralContainers": [debug]}},
            form=PatchType.STRATEGIC,
            subresource="ephemeralcontainers",
        )
        while not has_ended(await self._client.get(PODS, key), name):
            await self._clock.sleep(POLL_INTERVAL)
        async with aclosing(PodSubresources(self._client).logs(key, container=name)) as lines:
            return b"\n".join([line async for line in lines]).decode(errors="replace")


def has_ended(pod: JSON, name: str) -> bool:
    """Whether an ephemeral container of a pod has ended. Raises `DebugFailed` if it cannot start."""
    statuses = (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    state = next((one.get("state") or {} for one in statuses if one.get("name") == name), {})
    waiting = state.get("waiting") or {}
    reason = str(waiting.get("reason", ""))
    if "Err" in reason or "BackOff" in reason or "Invalid" in reason:
        raise DebugFailed(f"the ephemeral container does not start: {reason} {waiting.get('message', '')}".strip())
    return "terminated" in state


def debug_container(name: str, image: str, pod: JSON, target: str, *, native: bool = False) -> JSON:
    """An ephemeral container that runs the script among the processes of the target, as its user and no more.

    A process may read another one of the same user, so that no right of a container is added, and the rules for pods
    of the namespace hold for it as for the target.
    """
    body: JSON = {
        "name": name,
        "image": image,
        # The kubelet replaces $$ and $(NAME) in commands.
        "command": ["sh", "-c", script(native=native).replace("$", "$$")],
        "targetContainerName": target,
    }
    containers = (pod.get("spec") or {}).get("containers") or ()
    context = next((one.get("securityContext") for one in containers if one.get("name") == target), None)
    return {**body, "securityContext": context} if context else body


def missing_right(*, debug: bool) -> str:
    """The rights that a sample needs, as roles name them."""
    if debug:
        return "this needs the rights to get pods, patch pods/ephemeralcontainers and get pods/log"
    return "this needs the rights to get and create pods/exec"


def _first_line(error: GanglineError) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__
