"""Why jobs wait for their pods, in a few words, from the status of their PodGroups and pods.

The job's own status does not say it. It takes one or two further requests, made only if a job may wait.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.cli.output import job_rows
from gangline.cli.resources.job_state import conditions
from gangline.cli.resources.lookup import PODS, object_key
from gangline.cli.resources.replicas import JOB_NAME
from gangline.kube.client import Client
from gangline.kube.errors import KubeError

PODGROUPS: Resource[JSON] = Resource("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups", dict[str, Any])
MAX_JOBS_QUERIED = 50
"""The most job names in one label selector, whose length servers limit."""
NORMAL_WAIT_REASONS = ("", "ContainerCreating", "PodInitializing", "Completed", "Error")
_MEMBER_COUNT = re.compile(r"^\d+/\d+ members running; ")


async def pending_reasons(client: Client, jobs: Sequence[JSON], namespace: str) -> dict[Key, str]:
    """Why each waiting job waits, where a reason is known. Lists that the user may not read give no reasons."""
    waiting = [object_key(job) for job in jobs if job_rows.may_wait(job) and conditions(job)]
    if not waiting:
        return {}
    reasons = podgroup_reasons(await _list_readable(client, PODGROUPS, Selector(namespace)))
    unexplained = [key for key in waiting if key not in reasons][:MAX_JOBS_QUERIED]
    if unexplained:
        names = ",".join(sorted({key.name for key in unexplained}))
        reasons |= pod_reasons(await _list_readable(client, PODS, Selector(namespace, f"{JOB_NAME} in ({names})")))
    return {key: reasons[key] for key in waiting if key in reasons}


def podgroup_reasons(groups: Iterable[JSON]) -> dict[Key, str]:
    """The scheduler's messages about gangs that do not run, by job."""
    states = ((object_key(group), (group.get("status") or {}).get("state") or {}) for group in groups)
    return {
        key: _MEMBER_COUNT.sub("", state["message"])
        for key, state in states
        if state.get("phase") != "Running" and state.get("message")
    }


def pod_reasons(pods: Iterable[JSON]) -> dict[Key, str]:
    """For each job its first pod that cannot start, with the reason: `worker-1: ImagePullBackOff`."""
    reasons: dict[Key, str] = {}
    for pod in sorted(pods, key=object_key):
        key, reason = object_key(pod), _pod_reason(pod.get("status") or {})
        job = Key(key.namespace, (pod["metadata"].get("labels") or {}).get(JOB_NAME, ""))
        if reason:
            reasons.setdefault(job, f"{key.name.removeprefix(f'{job.name}-')}: {reason}")
    return reasons


def _pod_reason(status: Mapping[str, Any]) -> str:
    """Why a pod is not scheduled, or why its first stuck container waits; empty if neither."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or condition.get("reason") or "").rstrip(".")
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    states = ((container.get("state") or {}).get("waiting") or {} for container in containers)
    return next((state["reason"] for state in states if state.get("reason", "") not in NORMAL_WAIT_REASONS), "")


async def _list_readable(client: Client, kind: Resource[JSON], selector: Selector) -> tuple[JSON, ...]:
    """The selected objects; empty if the server refuses or does not have the kind."""
    try:
        return tuple((await client.list(kind, selector)).items)
    except KubeError:
        return ()
