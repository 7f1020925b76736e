"""Waits until CRDs are served and Deployments are ready, and says what they wait for."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from gangline.api.meta import JSON, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.cli.install.cluster_objects import ClusterObjects
from gangline.cli.install.readiness import Rollout, crashing_pods, is_established, rollout
from gangline.cli.install.record import ObjectRef
from gangline.cli.install.screen import InstallScreen, names_text
from gangline.kube.errors import Forbidden, KubeError
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.summary.objects import EVENTS, PODS, object_key

POLL_INTERVAL = timedelta(milliseconds=500)
WARNINGS = "type=Warning"
MAX_LINE_BYTES = 2048


class NotReady(GanglineError):
    """Something did not become ready in time, or cannot become ready."""

    def __init__(self, text: str, *, timed_out: bool) -> None:
        super().__init__(text)
        self.timed_out = timed_out


class Waiter:
    """Waits within one time limit for all, which counts from the first wait. A limit of zero is none."""

    def __init__(self, objects: ClusterObjects, screen: InstallScreen, clock: Clock, timeout: timedelta) -> None:
        self._objects, self._screen, self._clock, self._timeout = objects, screen, clock, timeout
        self._deadline = float("inf")

    async def pause(self, text: str) -> None:
        """Let a moment pass. Raises `NotReady` with the text if the time is over."""
        now = self._clock.monotonic()
        if self._timeout and self._deadline == float("inf"):
            self._deadline = now + self._timeout.total_seconds()
        if now >= self._deadline:
            seconds = round(self._timeout.total_seconds())
            raise NotReady(f"{text}; not ready after {seconds} s, longer with --timeout", timed_out=True)
        await self._clock.sleep(POLL_INTERVAL)

    async def wait_for_crds(self, refs: Sequence[ObjectRef]) -> None:
        """Return when the server serves the kinds of all these definitions."""
        subject = "definitions served"
        missing = list(refs)
        while missing:
            bodies = [(ref, await self._objects.read(ref)) for ref in missing]
            missing = [ref for ref, body in bodies if body is None or not is_established(body)]
            self._screen.show_wait(subject, f"{len(refs) - len(missing)} of {len(refs)}", done=not missing)
            if missing:
                await self.pause(f"not served yet: {names_text([ref.name for ref in missing])}")

    async def wait_for_deletions(self, refs: Sequence[ObjectRef]) -> None:
        """Return when none of these is still being deleted: what is made in it meanwhile would be deleted with it."""
        is_announced = False
        while names := [ref.display_name for ref in refs if await self._is_being_deleted(ref)]:
            text = f"still being deleted: {names_text(names)}"
            if not is_announced:
                self._screen.say(text)
                is_announced = True
            await self.pause(text)

    async def _is_being_deleted(self, ref: ObjectRef) -> bool:
        try:
            body = await self._objects.read(ref)
        except Forbidden:
            return False
        return body is not None and "deletionTimestamp" in body["metadata"]

    async def wait_for_rollouts(self, refs: Sequence[ObjectRef]) -> None:
        """Return when all Deployments are ready. Raises `NotReady`, before the time is over where waiting is no use."""
        waiting = list(refs)
        while waiting:
            rollouts = [(ref, await self._rollout(ref)) for ref in waiting]
            for _, state in rollouts:
                self._screen.show_wait(state.name, state.text, done=state.is_complete)
            waiting = [ref for ref, state in rollouts if not state.is_complete]
            for _, state in rollouts:
                if state.is_hopeless:
                    raise NotReady(f"{state.name}: {state.problem}", timed_out=False)
            if waiting:
                unready = next(state for ref, state in rollouts if ref in waiting)
                await self.pause(f"{unready.name}: {unready.text}")

    async def _rollout(self, ref: ObjectRef) -> Rollout:
        deployment = await self._objects.read(ref)
        if deployment is None:
            raise NotReady(f"{ref.display_name} was deleted meanwhile", timed_out=False)
        state = rollout(deployment, (), ())
        if state.is_complete:
            return state
        pods = await self.pods_of(deployment)
        names = {ref.name, *(str(pod["metadata"]["name"]) for pod in pods)}
        events = await self._objects.list_readable(EVENTS, Selector(ref.namespace, fields=WARNINGS))
        last_lines = {pod["metadata"]["name"]: await self._last_line(pod) for pod in crashing_pods(pods)}
        return rollout(deployment, pods, events_of(events, names), last_lines)

    async def _last_line(self, pod: JSON) -> str:
        """The last line that a container of the pod wrote before it ended; empty if it cannot be read."""
        query = (("previous", "true"), ("tailLines", "1"), ("limitBytes", str(MAX_LINE_BYTES)))
        request = Request("GET", object_path(PODS, object_key(pod), "log"), query, accept="text/plain, */*")
        try:
            text = await self._objects.client.requests.call(request)
        except KubeError:
            return ""
        return " ".join(text.decode(errors="replace").split())

    async def pods_of(self, deployment: JSON) -> list[JSON]:
        """The pods that a Deployment selects."""
        labels = (deployment["spec"].get("selector") or {}).get("matchLabels") or {}
        selector = ",".join(f"{name}={value}" for name, value in sorted(labels.items()))
        return await self._objects.list_readable(PODS, Selector(deployment["metadata"]["namespace"], selector))

    async def wait_until_no_pods(self, deployments: Sequence[JSON]) -> None:
        """Return when no pod of these Deployments runs any more, and those that are deleted are gone."""
        for deployment in deployments:
            name = deployment["metadata"]["name"]
            while pods := [pod for pod in await self.pods_of(deployment) if is_leaving(pod)]:
                names = names_text([pod["metadata"]["name"] for pod in pods])
                self._screen.show_wait(f"{name} stops", f"{len(pods)} pods left")
                await self.pause(f"{name}: still running: {names}")
            self._screen.show_wait(f"{name} stops", "stopped", done=True)


def events_of(events: Iterable[JSON], names: set[str]) -> list[JSON]:
    """The events about a Deployment and its pods by their names. A Service may have the name of a Deployment."""
    about = ((event, event.get("involvedObject") or {}) for event in events)
    return [event for event, it in about if it.get("name") in names and it.get("kind") in ("Deployment", "Pod")]


def is_leaving(pod: JSON) -> bool:
    """Whether a pod of a stopped Deployment is to be waited for. One that was evicted before may stay for long."""
    has_ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return not has_ended or "deletionTimestamp" in pod["metadata"]
