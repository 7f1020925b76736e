"""Plays the faults of a recording in a job on this machine, at the same steps or times, and takes note of who failed."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.drill import fault_response
from gangline.api.kubeflow.training import DRILL_ANNOTATION, JOB_NAME, ConditionType, JobKind
from gangline.api.meta import Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import background_tasks, run_every
from gangline.jobs.pods.replicas import training_status
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.progress.line import Progress
from gangline.replay.bundle import FaultCause, JobBundle, RecordedFault, RecordedVerdict
from gangline.replay.comparison import comparison_lines, fault_text
from gangline.replay.cues import Cue, PlayedProcess, cue, fails_by_itself, fault_request
from gangline.replay.faults import STALLED
from gangline.replay.local_job import LocalReplay
from gangline.replay.stand_in import time_scale
from gangline.replay.verdict import verdict_of
from gangline.runtime.informer import Delta, Informer
from gangline.summary.objects import ServerJob, json_resource
from gangline.summary.replicas import list_replicas
from gangline.why.collect import collect
from gangline.why.diagnosis.case import DiagnosisTimeouts
from gangline.why.diagnosis.diagnose import diagnose

POLL_INTERVAL = timedelta(milliseconds=100)
RECOVERED_SECONDS = 5.0
"""How long all replicas must run again before a job counts as recovered."""
HANG_FOUND = "the recorded hang has come again, and the watch over jobs has found it; the replay ends here"

Say = Callable[[str], None]
EndJob = Callable[[str], Awaitable[None]]
"""Ends the job as failed, with a message: a job that hangs does not end by itself."""


class _Process(msgspec.Struct):
    """The newest process of a replica."""

    pod: Pod
    attempt: tuple[str, int]
    since: float
    step: float | None = None
    # Injected into this process, or seen to fail by itself.
    is_done: bool = False
    ended: bool = False


class FaultPlayer:
    """Plays one bundle. `on_progress` gets the reports of the replicas; `run` injects what is due."""

    def __init__(self, bundle: JobBundle, replay: LocalReplay, kind: JobKind, clock: Clock) -> None:
        self._bundle, self._replay, self._kind, self._clock = bundle, replay, kind, clock
        self._key = Key(replay.job["metadata"].get("namespace") or "default", replay.job["metadata"]["name"])
        self._scale = time_scale(bundle.first_fault)
        self._processes: dict[str, _Process] = {}
        # Faults that were played, or came by themselves, by replica.
        self._played: set[str] = set()
        self._first_at: float | None = None
        self._wakeup = asyncio.Event()
        self.verdict: RecordedVerdict | None = None
        """Who failed first in the replay; None until `conclude`."""

    def on_progress(self, replica: str, progress: Progress) -> str | None:
        """Take a report of a replica. Called by whoever follows the job."""
        process = self._processes.get(replica)
        if process is not None:
            process.step = progress.step
            self._wakeup.set()
        return None

    async def run(self, client: Client, say: Say, end_job: EndJob) -> None:
        """Inject faults until cancelled."""
        pods = Informer(
            client, Pod, Selector(self._key.namespace, labels=f"{JOB_NAME}={self._key.name}"), clock=self._clock
        )
        async with background_tasks(pods.run(), run_every(POLL_INTERVAL, self._wake, self._clock)):
            with pods.subscribe(lambda delta: self._on_pod(delta, say)):
                await self._play(client, say, end_job)

    async def _wake(self) -> None:
        self._wakeup.set()

    async def _play(self, client: Client, say: Say, end_job: EndJob) -> None:
        hangs = any(fault.cause is FaultCause.HANG for fault in self._bundle.faults)
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            for fault in self._bundle.faults:
                if self._is_due(fault):
                    await self._inject(client, fault, say)
            if self.verdict is not None:
                continue
            if hangs and await self._is_stalled(client):
                await self.conclude(client)
                await end_job(HANG_FOUND)
            elif self._has_recovered():
                for line in comparison_lines(self._bundle.verdict, await self.conclude(client)):
                    say(line)
                say("replay: the job has recovered, as recorded; it goes on (Ctrl-C stops it)")

    def _has_recovered(self) -> bool:
        """Whether the fault is over, and all replicas have been running again for a while, as in the recording."""
        if self._first_at is None or self._bundle.verdict.state in ("Failed", STALLED):
            return False
        now = self._clock.monotonic()
        return bool(self._processes) and all(
            not process.ended and now - max(process.since, self._first_at) >= RECOVERED_SECONDS
            for process in self._processes.values()
        )

    def _is_due(self, fault: RecordedFault) -> bool:
        process = self._processes.get(fault.replica)
        if process is None or process.is_done or process.ended:
            return False
        if fault.replica in self._played and not fault.repeats:
            return False
        is_stand_in = self._replay.is_stand_in(fault.replica)
        if fault.is_consequence:
            # Programs lose their peer by themselves, and stand-ins have none.
            waited = self._clock.monotonic() - self._first_at if self._first_at is not None else -1.0
            return is_stand_in and waited >= fault.delay
        age = self._clock.monotonic() - process.since
        return cue(fault, PlayedProcess(age, process.step, is_stand_in), self._scale) is Cue.NOW

    async def _inject(self, client: Client, fault: RecordedFault, say: Say) -> None:
        process = self._processes[fault.replica]
        process.is_done = True
        self._played.add(fault.replica)
        record = self._bundle.replica(fault.replica)
        # A program that is ended from outside has written its own log.
        needs_log = self._replay.is_stand_in(fault.replica) or fails_by_itself(fault)
        log = record.log if record is not None and needs_log else ()
        request = fault_request(fault, uuid.uuid4().hex, log)
        body = {
            "metadata": {
                "uid": process.pod.metadata.uid,
                "annotations": {DRILL_ANNOTATION: msgspec.json.encode(request).decode()},
            }
        }
        late = (
            ""
            if self._replay.is_stand_in(fault.replica) or not fails_by_itself(fault)
            else " (it did not fail by itself)"
        )
        say(f"replay: {fault_text(fault)}, as recorded{late}")
        try:
            await client.patch(Pod, process.pod.metadata.key, body)
        except KubeError as error:
            say(f"replay: {fault.replica}: the fault could not be injected: {error}")

    def _on_pod(self, delta: Delta[Pod], say: Say) -> None:
        pod = delta.newest
        replica = pod.metadata.name.removeprefix(f"{self._key.name}-")
        answer = fault_response(pod.metadata.annotations)
        before = fault_response(delta.before.metadata.annotations) if delta.before is not None else None
        if answer is not None and answer.refuses and answer != before:
            say(f"replay: {replica}: {answer.refuses}")
        status = training_status(pod, self._kind.container)
        running = status.state.running is not None
        attempt = (pod.metadata.uid, status.restart_count)
        process = self._processes.get(replica)
        if running and (process is None or process.attempt != attempt):
            process = self._processes[replica] = _Process(pod, attempt, self._clock.monotonic())
        if process is not None and not running and not process.ended and process.attempt[0] == pod.metadata.uid:
            process.ended = True
            self._note_end(replica, pod)
        self._wakeup.set()

    def _note_end(self, replica: str, pod: Pod) -> None:
        """Take note of a replica that failed, by itself or not: the same fault is not injected again."""
        status = training_status(pod, self._kind.container)
        states = (status.state.terminated, status.last_state.terminated)
        failed = pod.status.phase == "Failed" or any(one is not None and one.exit_code for one in states)
        if not failed:
            return
        self._played.add(replica)
        first = self._bundle.first_fault
        if first is not None and replica == first.replica and self._first_at is None:
            self._first_at = self._clock.monotonic()

    async def _is_stalled(self, client: Client) -> bool:
        try:
            job = await client.get(self._kind.model, self._key)
        except KubeError:
            return False
        return bool(job.status.holds(ConditionType.STALLED))

    async def conclude(self, client: Client) -> RecordedVerdict:
        """Ask `why` about the replayed job, once."""
        if self.verdict is None:
            resource = self._kind.resource
            bodies = json_resource(resource.group, resource.version, resource.kind, resource.plural)
            body = await client.get(bodies, self._key)
            target = f"{self._kind.kind}/{self._key.name}"
            try:
                case = await collect(client, target, self._key.namespace, self._clock, DiagnosisTimeouts())
                report = await asyncio.to_thread(diagnose, case)
            except GanglineError:
                report = None
            pods = await list_replicas(client, ServerJob(bodies, body))
            self.verdict = verdict_of(body, pods, report)
        return self.verdict
