"""Why jobs wait that have not begun, or lost their pods: what is said of their gangs and pods, in a few words.

A job's own status does not have it. One or two requests more, and only where a job waits.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheme import Resource
from gangline.cli.output import job_rows
from gangline.cli.resources.lookup import PODS
from gangline.cli.resources.replicas import JOB_NAME
from gangline.kube.client import Client
from gangline.kube.errors import KubeError

PODGROUPS: Resource[JSON] = Resource("scheduling.gangline.dev", "v1alpha1", "PodGroup", "podgroups", dict[str, Any])
MAX_JOBS_QUERIED = 50
"""Of so many jobs at most the pods are asked for: a selector has its limits."""
NORMAL_WAIT_REASONS = ("", "ContainerCreating", "PodInitializing")
_MEMBER_COUNT = re.compile(r"^\d+/\d+ members running; ")


async def pending_reasons(client: Client, jobs: Sequence[JSON], namespace: str) -> dict[Key, str]:
    """Why each job waits that does, as far as it is known. Whatever may not be read says nothing."""
    waiting = [_object_key(job) for job in jobs if job_rows.may_wait(job) and job_rows.conditions(job)]
    if not waiting:
        return {}
    found = podgroup_reasons(await _list_readable(client, PODGROUPS, Selector(namespace)))
    others = [key for key in waiting if key not in found][:MAX_JOBS_QUERIED]
    if others:
        names = ",".join(sorted({key.name for key in others}))
        found |= pod_reasons(await _list_readable(client, PODS, Selector(namespace, f"{JOB_NAME} in ({names})")))
    return {key: found[key] for key in waiting if key in found}


def podgroup_reasons(groups: Iterable[JSON]) -> dict[Key, str]:
    """What their scheduler says of gangs that wait, by the job's key."""
    states = ((_object_key(group), (group.get("status") or {}).get("state") or {}) for group in groups)
    return {
        key: _MEMBER_COUNT.sub("", state["message"])
        for key, state in states
        if state.get("phase") != "Running" and state.get("message")
    }


def pod_reasons(pods: Iterable[JSON]) -> dict[Key, str]:
    """Of each job the first pod that cannot go on, with its reason."""
    found: dict[Key, str] = {}
    for pod in sorted(pods, key=_object_key):
        key, why = _object_key(pod), _pod_reason(pod.get("status") or {})
        job = Key(key.namespace, (pod["metadata"].get("labels") or {}).get(JOB_NAME, ""))
        if why:
            found.setdefault(job, f"{key.name.removeprefix(f'{job.name}-')}: {why}")
    return found


def _pod_reason(status: Mapping[str, Any]) -> str:
    for each in status.get("conditions") or ():
        if each.get("type") == "PodScheduled" and each.get("status") == "False":
            return str(each.get("message") or each.get("reason") or "").rstrip(".")
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    states = ((each.get("state") or {}).get("waiting") or {} for each in containers)
    return next((state["reason"] for state in states if state.get("reason", "") not in NORMAL_WAIT_REASONS), "")


async def _list_readable(client: Client, kind: Resource[JSON], where: Selector) -> tuple[JSON, ...]:
    try:
        return tuple((await client.list(kind, where)).items)
    except KubeError:
        return ()


def _object_key(body: JSON) -> Key:
    return Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
