"""Calls of the training client for the pods of a job, their logs and events."""

import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JOB_NAME, JOB_ROLE, REPLICA_INDEX, REPLICA_TYPE, JobKind
from gangline.api.meta import JSON, Selector
from gangline.api.scheme import Resource
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.sdk.connection import REQUEST_TIMEOUT_SECONDS, LazyConnection
from gangline.sdk.derived_calls import derived_call
from gangline.sdk.errors import translate_errors
from gangline.sdk.job import job_kind_named
from gangline.sdk.logs import JobLogLine, follow_job_logs

EVENTS: Resource[JSON] = Resource("", "v1", "Event", "events", dict[str, Any])


class PodCalls(LazyConnection):
    """`get_job_pods`, `get_job_pod_names`, `get_job_logs`, `follow_logs`."""

    async def get_job_pods(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        *,
        job_kind: str | None = None,
    ) -> list[Pod]:
        """The pods of a job: all, the master, those of a replica type, or one index."""
        labels = {JOB_NAME: name}
        labels |= {JOB_ROLE: "master"} if is_master else {}
        labels |= {REPLICA_TYPE: _replica_type_label(replica_type, job_kind)} if replica_type else {}
        labels |= {REPLICA_INDEX: str(replica_index)} if replica_index is not None else {}
        async with self._client_call(timeout) as client:
            selector = ",".join(f"{label}={value}" for label, value in labels.items())
            return list((await client.list(Pod, Selector(self._resolved_namespace(namespace), labels=selector))).items)

    get_job_pod_names = derived_call(
        get_job_pods,
        lambda pods: [pod.metadata.name for pod in pods],
        name="get_job_pod_names",
        doc="The names of the pods that `get_job_pods` returns.",
        returns=list[str],
    )

    async def get_job_logs(
        self,
        name: str,
        namespace: str | None = None,
        job_kind: str | None = None,
        is_master: bool = True,
        replica_type: str | None = None,
        replica_index: int | None = None,
        follow: bool = False,
        timeout: float = REQUEST_TIMEOUT_SECONDS,
        verbose: bool = False,
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        """The logs by pod name; and, with `verbose`, the events of the job and its pods.

        With `follow` the lines are also printed as they arrive, until all pods have ended, also those that start later.
        """
        kind = self._resolved_kind(job_kind)
        pod_filter: dict[str, Any] = {
            "is_master": is_master and not replica_type and replica_index is None,
            "replica_type": replica_type,
            "replica_index": replica_index,
            "job_kind": kind.kind,
        }
        if follow:
            texts: dict[str, list[str]] = {}
            async with aclosing(self.follow_logs(name, namespace, **pod_filter)) as lines:
                async for line in lines:
                    sys.stdout.write(f"[Pod {line.pod}]: {line.text}\n")
                    texts.setdefault(line.pod, []).append(line.text)
            logs = {pod: "".join(f"{text}\n" for text in pod_lines) for pod, pod_lines in texts.items()}
        else:
            pods = await self.get_job_pods(name, namespace, timeout=timeout, **pod_filter)
            started = [pod for pod in pods if pod.status.phase != PodPhase.PENDING]
            async with self._client_call(timeout) as client:
                logs = {pod.metadata.name: await _read_log(client, pod, kind.container) for pod in started}
        events = await self._events(kind, name, namespace, list(logs)) if verbose else {}
        return logs, events

    async def follow_logs(
        self,
        name: str,
        namespace: str | None = None,
        is_master: bool = False,
        replica_type: str | None = None,
        replica_index: int | None = None,
        *,
        job_kind: str | None = None,
    ) -> AsyncGenerator[JobLogLine, None]:
        """The log lines of the selected pods as they arrive, until the job has ended."""
        kind, key = self._resolved_kind(job_kind), self._job_key(name, namespace)
        client = await self._open_client()

        def is_selected(pod: Pod) -> bool:
            labels = pod.metadata.labels
            return (
                (not is_master or labels.get(JOB_ROLE) == "master")
                and (not replica_type or labels.get(REPLICA_TYPE) == _replica_type_label(replica_type, job_kind))
                and (replica_index is None or labels.get(REPLICA_INDEX) == str(replica_index))
            )

        async with (
            translate_errors(f"logs of {name}"),
            aclosing(follow_job_logs(client, kind, key, is_selected, self._clock)) as lines,
        ):
            async for line in lines:
                yield line

    async def _events(self, kind: JobKind, name: str, namespace: str | None, pods: list[str]) -> dict[str, list[str]]:
        """Time and message of the events of a job and its pods, by `kind/name`."""
        subjects = {(kind.kind, name), *(("Pod", pod) for pod in pods)}
        lines: dict[str, list[str]] = {}
        async with self._client_call(REQUEST_TIMEOUT_SECONDS) as client:
            events = (await client.list(EVENTS, Selector(self._resolved_namespace(namespace)))).items
        for event in events:
            subject = event.get("involvedObject") or {}
            if (subject.get("kind"), subject.get("name")) in subjects:
                at = event.get("lastTimestamp") or event.get("eventTime") or ""
                line = f"{at[:19].replace('T', ' ')} {event.get('message', '')}"
                lines.setdefault(f"{subject['kind'].lower()}/{subject['name']}", []).append(line)
        return lines


def _replica_type_label(replica_type: str, job_kind: str | None) -> str:
    """The replica type as in labels. Raises `ValueError` for a type that no kind has."""
    kinds = [job_kind_named(job_kind)] if job_kind else list(TRAINING_KINDS)
    known_types = sorted({name.lower() for kind in kinds for name in kind.types})
    if replica_type.lower() not in known_types:
        raise ValueError(f"replica_type: is {replica_type!r}; write one of {', '.join(known_types)}")
    return replica_type.lower()


async def _read_log(client: Client, pod: Pod, container: str) -> str:
    name = training_container_name(pod, container)
    try:
        async with aclosing(PodSubresources(client).logs(pod.metadata.key, container=name)) as lines:
            return "".join([f"{line.decode(errors='replace')}\n" async for line in lines])
    except NotFound:
        return ""
    except KubeError as error:
        return f"{error}\n"
