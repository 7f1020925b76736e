"""Rounds: no pod of a job's new round is created before the last pod of an earlier round is gone.

A round is one set of replicas that start together. A restart of all replicas begins a new one, and so does a suspension.
A replica of the new round that met one of the old round would join a team that is about to end.
"""

from datetime import datetime, timedelta

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.training import RestartLedger, RestartScope
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.actions import ConfirmEnded, ConfirmJob
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import restart_scope
from gangline.jobs.pods.labels import member_labels
from gangline.jobs.pods.replicas import all_pods, round_number

STILL_TERMINATING = "PodStillTerminating"
"""Reason of condition Blocked, and of an event: a pod of the last round does not end."""
MAX_EARLY_CONFIRMATIONS = 16
"""A round of a large job asks the server only once, when it is about to begin."""
OVERDUE_AFTER = timedelta(seconds=30)
"""A pod that exists for this long after its grace period needs a person: its node may be lost."""


def with_next_round(ledger: RestartLedger, *, renews_addresses: bool, charged: bool) -> RestartLedger:
    """The ledger in a new round. `charged`: the round counts as a restart of the job."""
    number = ledger.round + 1
    return msgspec.structs.replace(
        ledger,
        round=number,
        addresses=number if renews_addresses else ledger.addresses,
        renewals=ledger.renewals + (not charged),
        complete=False,
    )


def after_suspension(framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger) -> RestartLedger:
    """The ledger of a job that is being suspended.

    A new round where all replicas restart together, and on one machine, where addresses go with the deleted services.
    Elsewhere pods are as v1 creates them, without a round, and wait for those that are being deleted.
    """
    together = restart_scope(observed.job, framework.run_policy(observed.job)) is RestartScope.JOB
    if together or observed.site.shared_host:
        return with_next_round(ledger, renews_addresses=observed.site.shared_host, charged=False)
    return msgspec.structs.replace(ledger, draining=True)


def unended_pods(framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger) -> tuple[Pod, ...]:
    """The pods that must be gone before a pod is created.

    Those of earlier rounds, whatever the scope. With scope Job, and after a suspension, also every pod that is being
    deleted: it may have worked with the replicas that are still missing. Orphans count if the job is about to adopt them.
    """
    scope = restart_scope(observed.job, framework.run_policy(observed.job))
    together = scope is RestartScope.JOB or ledger.draining
    names = set(observed.gang.names.values()) if observed.children.orphans else ()
    orphans = (
        child for _, child in observed.children.orphans if isinstance(child, Pod) and child.metadata.name in names
    )
    return tuple(
        pod
        for pod in (*all_pods(observed.gang), *orphans)
        if round_number(pod.metadata) < ledger.round or (together and observed.is_being_deleted(pod))
    )


def confirmations(
    framework: Framework[J], observed: ObservedJob[J], ledger: RestartLedger
) -> tuple[ConfirmJob | ConfirmEnded, ...]:
    """What the server must confirm before pods are created, because caches may be late or lack pods without labels.

    Nothing of a job without a status: writing the first one confirms that there is none.
    """
    together = restart_scope(observed.job, framework.run_policy(observed.job)) is RestartScope.JOB
    if not (together or ledger.round) or not observed.job.status.conditions:
        return ()
    return (ConfirmJob(), *_unseen_pods(observed, ledger))


def early_confirmations(observed: ObservedJob[J], ledger: RestartLedger) -> tuple[ConfirmEnded, ...]:
    """What is worth asking while the next round waits: a pod without labels is found, and deleted, with the others."""
    unseen = _unseen_pods(observed, ledger)
    return unseen if len(unseen) <= MAX_EARLY_CONFIRMATIONS else ()


def _unseen_pods(observed: ObservedJob[J], ledger: RestartLedger) -> tuple[ConfirmEnded, ...]:
    """The pods of an earlier round that may exist although the cache does not show them."""
    job, gang = observed.job, observed.gang
    if not ledger.round:
        return ()
    return tuple(
        ConfirmEnded(gang.names[member], ledger.round, member_labels(job, member)) for member in gang.missing()
    )


def overdue_pod(pods: tuple[Pod, ...], now: datetime) -> tuple[Pod | None, timedelta | None]:
    """The pod that should have ended long ago, if there is one; else the time until one is overdue."""
    due = {
        pod.metadata.name: pod.metadata.deletion_timestamp + OVERDUE_AFTER - now
        for pod in pods
        if pod.metadata.deletion_timestamp is not None
    }
    late = (pod for pod in pods if due.get(pod.metadata.name, timedelta.max) <= timedelta())
    return next(late, None), min((delay for delay in due.values() if delay > timedelta()), default=None)


def overdue_message(pod: Pod) -> str:
    """What a person must know about a pod that does not end."""
    metadata, node = pod.metadata, pod.spec.node_name
    where = f" on node {node}" if node else ""
    force = f"kubectl delete pod {metadata.name} -n {metadata.namespace} --force --grace-period=0"
    return (
        f"pod {metadata.name}{where} should have ended at {metadata.deletion_timestamp:%H:%M:%S} and still exists; the"
        f" replicas start again when it is gone. If {f'node {node}' if node else 'its node'} is lost, and the pod's"
        f" processes with it: {force}"
    )
