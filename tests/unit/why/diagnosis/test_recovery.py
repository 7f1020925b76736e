"""What `why` says of a recovery policy: what it did last, and which nodes new pods keep away from."""

from datetime import timedelta

import msgspec

from gangline.api.kubeflow.training import ExcludedNode, RecoveryStatus
from gangline.jobs.plan.recovery.affinity import EXCLUDED_NODES_ANNOTATION
from gangline.why.diagnosis.case import ReplicaFacts
from gangline.why.diagnosis.diagnose import diagnose
from support.cases.why import (
    NOW,
    failed_condition,
    failed_replica,
    make_job_facts,
    make_replica_facts,
    make_snapshot,
    minutes_ago,
    unschedulable_replica,
)

RECORD = RecoveryStatus(
    action="RestartElsewhere",
    cause="evicted",
    message="restarted elsewhere because worker-1 (rank 1) was evicted; node gpu-7 is left out for 1h",
    time=minutes_ago(5),
    excluded_nodes=(
        ExcludedNode(name="gpu-7", until=NOW + timedelta(minutes=55), cause="evicted"),
        ExcludedNode(name="gpu-3", until=minutes_ago(1), cause="killed"),
    ),
)
ACTED = f"its recovery policy acted at 14:55:00: {RECORD.message}"
LEFT_OUT = "node gpu-7 is left out until 15:55:00 (evicted)"


def keeping_away(replica: ReplicaFacts, nodes: str) -> ReplicaFacts:
    metadata = msgspec.structs.replace(replica.pod.metadata, annotations={EXCLUDED_NODES_ANNOTATION: nodes})
    return msgspec.structs.replace(replica, pod=msgspec.structs.replace(replica.pod, metadata=metadata))


def test_a_healthy_job_has_it_as_a_note() -> None:
    report = diagnose(make_snapshot(make_job_facts(recovery=RECORD), make_replica_facts(0), make_replica_facts(1)))
    assert report.healthy
    assert report.notes[-2:] == (ACTED, LEFT_OUT)


def test_a_job_that_waits_has_it_as_evidence() -> None:
    message = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    waiting = keeping_away(unschedulable_replica(0, message), "gpu-7,gpu-9")
    report = diagnose(make_snapshot(make_job_facts(recovery=RECORD), waiting, make_replica_facts(1)))
    assert report.causes[0].rule == "unschedulable-nodes"
    assert report.evidence[-3:] == (
        ACTED,
        LEFT_OUT,
        "its pods keep away from node gpu-9, where it or jobs of other owners failed",
    )


def test_a_job_without_a_policy_has_neither() -> None:
    report = diagnose(make_snapshot(make_job_facts(), make_replica_facts(0), make_replica_facts(1)))
    assert not report.notes


def test_the_cause_of_a_job_that_its_policy_ended_is_said_once() -> None:
    message = "failed because worker-0 stopped with ValueError; a restart would end the same way"
    record = RecoveryStatus(action="Fail", cause="python-exception", message=message, time=minutes_ago(5))
    failed = failed_replica(0, 1, "Traceback (most recent call last):", "ValueError: no")
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition(), recovery=record), failed))
    assert report.evidence[-1] == "its recovery policy ended it at 14:55:00: a restart would end the same way"
