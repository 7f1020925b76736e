"""What the pods of jobs tell beyond the jobs' own status: how many are ready, and why a job waits, in a few words.

It takes one to three further requests, made only if a job may wait or may have pods that run without being ready.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.summary import job_rows
from gangline.summary.job_rows import PodDetails
from gangline.summary.job_state import conditions
from gangline.summary.objects import EVENTS, PODS, object_key
from gangline.summary.replicas import JOB_NAME

PODGROUPS: Resource[JSON] = Resource("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups", dict[str, Any])
WORKLOADS: Resource[JSON] = Resource("kueue.x-k8s.io", "v1beta1", "Workload", "workloads", dict[str, Any])
"""In which Kueue says why it does not admit a job."""
MAX_JOBS_QUERIED = 50
"""The most job names in one label selector, whose length servers limit. For more, the pods of all jobs are listed."""
NORMAL_WAIT_REASONS = ("", "ContainerCreating", "PodInitializing", "Completed", "Error")
IMAGE_REASONS = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
START_EVENT_REASONS = ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "FailedCreatePod", "FailedCreate")
"""The events that tell why a pod does not start, or does not exist, where no status does."""
WARNINGS = "type=Warning"
_MEMBER_COUNT = re.compile(r"^\d+/\d+ members running; ")
_MOUNT_PREFIX = re.compile(r'^MountVolume\.\w+ failed(?: for volume "[^"]*")? ?: ')


async def read_pod_details(client: Client, jobs: Sequence[JSON], namespace: str) -> dict[Key, PodDetails]:
    """The details of the jobs that need them. Lists that the user may not read give none."""
    observed = [job for job in jobs if conditions(job) and job_rows.needs_pods(job)]
    if not observed:
        return {}
    reasons: dict[Key, str] = {}
    if any(map(job_rows.waits_for_kueue, observed)):
        reasons |= workload_reasons(await _list_readable(client, WORKLOADS, Selector(namespace)))
    waiting = [object_key(job) for job in observed if job_rows.may_wait(job)]
    if waiting:
        reasons |= podgroup_reasons(await _list_readable(client, PODGROUPS, Selector(namespace)))
    unexplained = {
        object_key(job) for job in observed if object_key(job) not in reasons and not job_rows.waits_for_kueue(job)
    }
    ready: Mapping[Key, int] = {}
    if unexplained:
        pods = await _list_readable(client, PODS, Selector(namespace, _pod_labels(unexplained)))
        reasons |= pod_reasons(pods)
        ready = ready_counts(pods)
        owners = _owners({key for key in waiting if key not in reasons}, pods)
        if owners:
            events = await _list_readable(client, EVENTS, Selector(namespace, fields=WARNINGS))
            reasons |= event_reasons(events, owners)
    keys = map(object_key, observed)
    return {key: PodDetails(reasons.get(key, ""), ready.get(key)) for key in keys if key in reasons or key in ready}


def pod_details(job: JSON, pods: Sequence[JSON], events: Iterable[JSON]) -> PodDetails:
    """The details of one job whose pods and events are at hand."""
    key = object_key(job)
    reasons = pod_reasons(pods)
    if key not in reasons and job_rows.may_wait(job):
        reasons |= event_reasons(events, _owners({key}, pods))
    return PodDetails(reasons.get(key, ""), ready_counts(pods).get(key) if job_rows.needs_pods(job) else None)


def _pod_labels(jobs: Iterable[Key]) -> str:
    names = sorted({key.name for key in jobs})
    return f"{JOB_NAME} in ({','.join(names)})" if len(names) <= MAX_JOBS_QUERIED else JOB_NAME


def podgroup_reasons(groups: Iterable[JSON]) -> dict[Key, str]:
    """The scheduler's messages about gangs that do not run, by job."""
    states = ((object_key(group), (group.get("status") or {}).get("state") or {}) for group in groups)
    return {
        key: _MEMBER_COUNT.sub("", state["message"])
        for key, state in states
        if state.get("phase") != "Running" and state.get("message")
    }


def workload_reasons(workloads: Iterable[JSON]) -> dict[Key, str]:
    """Kueue's messages about jobs that it has not admitted, by job."""
    reasons: dict[Key, str] = {}
    for workload in workloads:
        messages = [
            str(item.get("message") or item.get("reason") or "")
            for item in (workload.get("status") or {}).get("conditions") or ()
            if item.get("type") in ("QuotaReserved", "Admitted") and item.get("status") == "False"
        ]
        for owner in workload["metadata"].get("ownerReferences") or ():
            if messages and messages[0]:
                reasons[Key(workload["metadata"].get("namespace", ""), owner.get("name", ""))] = _one_line(messages[0])
    return reasons


def pod_reasons(pods: Iterable[JSON]) -> dict[Key, str]:
    """For each job its first pod that cannot start or is not ready, with the reason: `worker-1: ImagePullBackOff`."""
    reasons: dict[Key, str] = {}
    for pod in sorted(pods, key=object_key):
        job, reason = _job_key(pod), pod_reason(pod)
        if reason:
            reasons.setdefault(job, f"{_replica(pod, job)}: {reason}")
    return reasons


def ready_counts(pods: Iterable[JSON]) -> dict[Key, int]:
    """The number of pods that are ready, by job, of every job that has pods."""
    counts: dict[Key, int] = {}
    for pod in pods:
        job = _job_key(pod)
        counts[job] = counts.get(job, 0) + (is_ready(pod) and "deletionTimestamp" not in pod["metadata"])
    return counts


def event_reasons(events: Iterable[JSON], owners: Mapping[Key, Key]) -> dict[Key, str]:
    """For each job why the first of its pods does not start, or why it has none: the newest event about that.

    `owners`: the job by the key of each object whose events count.
    """
    newest: dict[Key, tuple[str, str]] = {}
    for event in events:
        key = Key(
            str((event.get("metadata") or {}).get("namespace", "")),
            str((event.get("involvedObject") or {}).get("name", "")),
        )
        if key in owners and event.get("reason") in START_EVENT_REASONS:
            stamp = str(event.get("lastTimestamp") or event.get("eventTime") or "")
            if stamp >= newest.get(key, ("", ""))[0]:
                newest[key] = (stamp, _MOUNT_PREFIX.sub("", _one_line(str(event.get("message", "")))))
    reasons: dict[Key, str] = {}
    for key, (_, message) in sorted(newest.items()):
        job = owners[key]
        prefix = "" if key == job else f"{key.name.removeprefix(f'{job.name}-')}: "
        reasons.setdefault(job, f"{prefix}{message}")
    return reasons


def _owners(jobs: Collection[Key], pods: Sequence[JSON]) -> dict[Key, Key]:
    """The job of each of its pods that waits to start; a job without pods stands for itself."""
    with_pods = {_job_key(pod) for pod in pods}
    waiting = {
        object_key(pod): _job_key(pod)
        for pod in pods
        if _job_key(pod) in jobs and (pod.get("status") or {}).get("phase", "Pending") == "Pending"
    }
    return waiting | {job: job for job in jobs if job not in with_pods}


def _job_key(pod: JSON) -> Key:
    return Key(object_key(pod).namespace, (pod["metadata"].get("labels") or {}).get(JOB_NAME, ""))


def _replica(pod: JSON, job: Key) -> str:
    return object_key(pod).name.removeprefix(f"{job.name}-")


def is_ready(pod: JSON) -> bool:
    """Whether a pod is ready."""
    items = (pod.get("status") or {}).get("conditions") or ()
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in items)


def pod_reason(pod: JSON) -> str:
    """Why a pod is not scheduled, or why its first stuck container waits or is not ready; empty if nothing is wrong."""
    status: Mapping[str, Any] = pod.get("status") or {}
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _one_line(str(condition.get("message") or condition.get("reason") or "")).rstrip(".")
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    reasons = [reason for container in containers if (reason := _waiting_reason(container))]
    if not reasons and status.get("phase") == "Running" and not is_ready(pod):
        reasons = _failing_probes(pod)
    return reasons[0] if reasons else ""


def _waiting_reason(container: JSON) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason, message = str(waiting.get("reason") or ""), _one_line(str(waiting.get("message") or ""))
    if reason in NORMAL_WAIT_REASONS:
        return ""
    if reason in IMAGE_REASONS:
        return " ".join(filter(None, (reason, str(container.get("image") or ""))))
    if reason == "CreateContainerConfigError":
        return message or reason
    code = ((container.get("lastState") or {}).get("terminated") or {}).get("exitCode")
    return reason if code is None else f"{reason}, exit {code}"


def _failing_probes(pod: JSON) -> list[str]:
    """Containers that run and are not ready, with the probe they wait for."""
    statuses = {item.get("name"): item for item in (pod.get("status") or {}).get("containerStatuses") or ()}
    texts = []
    for container in (pod.get("spec") or {}).get("containers") or ():
        status = statuses.get(container.get("name")) or {}
        if status.get("ready", True) or "running" not in (status.get("state") or {}):
            continue
        probe = "startup" if container.get("startupProbe") and not status.get("started") else "readiness"
        if container.get(f"{probe}Probe"):
            texts.append(f"not ready: its {probe} probe has not succeeded")
    return texts


def _one_line(text: str) -> str:
    return " ".join(text.split())


async def _list_readable(client: Client, kind: Resource[JSON], selector: Selector) -> tuple[JSON, ...]:
    """The selected objects; empty if the server refuses or does not have the kind."""
    try:
        return tuple((await client.list(kind, selector)).items)
    except KubeError:
        return ()
