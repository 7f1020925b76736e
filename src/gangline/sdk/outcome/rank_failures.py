"""Ranks that failed although their job has succeeded: a job with a leader succeeds when its leader does. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import REPLICA_INDEX, REPLICA_TYPE, Failure, JobKind
from gangline.jobs.plan.failures.records import failure_record, first_failed
from gangline.jobs.pods.replicas import Member


def first_rank_failure(kind: JobKind, pods: Iterable[Pod], lines: Mapping[str, Sequence[str]]) -> Failure | None:
    """The rank that failed first, with its log; None if none has. `lines` has log lines by the pod's name."""
    failed = {
        Member(pod.metadata.labels.get(REPLICA_TYPE, ""), int(pod.metadata.labels.get(REPLICA_INDEX, 0))): pod
        for pod in pods
        if pod.status.phase == PodPhase.FAILED
    }
    logs = {pod.metadata.uid: tuple(lines.get(pod.metadata.name, ())) for pod in failed.values()}
    first = first_failed(failed, kind.container, logs)
    if first is None:
        return None
    return failure_record(first.member, first.pod, kind.container, logs, order_known=first.order_known)
