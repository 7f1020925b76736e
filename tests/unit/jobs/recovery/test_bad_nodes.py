"""Nodes on which jobs of different owners failed are avoided by others, softly and then strictly, and forgiven."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import ExcludedNode, JobStatus, RecoveryStatus
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.node_records import MAX_INCIDENTS, NodeRecords, NodeRecordSource
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.plan.recovery.affinity import NodeAvoidance
from gangline.jobs.plan.recovery.bad_nodes import (
    BadNodeLimits,
    NodeIncident,
    NodeOwner,
    bad_nodes,
    job_incidents,
    most_avoided,
    node_avoidance,
)
from gangline.runtime.informer import Delta
from gangline.testing.builders import make_job
from support.builders.observed_jobs import OBSERVED_AT, created_body, job_services, observed_job

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NODES = tuple(f"n{index}" for index in range(40))
TORCH = PyTorch()


def incident(node: str = "n1", owner: str = "team-a", cause: str = "evicted", minutes: float = 5) -> NodeIncident:
    return NodeIncident(node, NodeOwner(owner, "default"), cause, NOW - timedelta(minutes=minutes))


def found(*incidents: NodeIncident, nodes: Any = NODES, now: datetime = NOW, **limits: Any) -> dict[str, bool]:
    """The nodes that are avoided, and whether strictly."""
    return {node.name: node.is_excluded for node in bad_nodes(incidents, nodes, now, BadNodeLimits(**limits))}


def test_failures_of_one_owner_avoid_nothing() -> None:
    assert found(incident(), incident(cause="killed"), incident(minutes=9)) == {}


def test_two_owners_are_a_preference_and_three_a_rule() -> None:
    assert found(incident(), incident(owner="team-b")) == {"n1": False}
    assert found(incident(), incident(owner="team-b"), incident(owner="team-c")) == {"n1": True}


def test_jobs_of_one_namespace_with_other_accounts_are_of_other_owners() -> None:
    others = [NodeIncident("n1", NodeOwner("team-a", account), "evicted", NOW) for account in ("ann", "bob")]
    assert found(*others) == {"n1": False}


def test_failures_are_forgiven() -> None:
    two = (incident(), incident(owner="team-b", minutes=30))
    assert found(*two, now=NOW + timedelta(minutes=29)) == {"n1": False}
    assert found(*two, now=NOW + timedelta(minutes=30)) == {}


def test_never_more_than_a_share_and_the_worst_first() -> None:
    incidents = [
        incident(node, owner)
        for node, owners in (("n1", "ab"), ("n2", "abc"), ("n3", "abcd"), ("n4", "ab"))
        for owner in owners
    ]
    assert list(found(*incidents)) == ["n3", "n2", "n1", "n4"]
    assert list(found(*incidents, share=0.05)) == ["n3", "n2"]
    assert list(found(*incidents, nodes=NODES[:9])) == ["n3"]
    assert found(*incidents, share=0.0) == {}
    # Three nodes are too few to spare one.
    assert found(incident("n1", "a"), incident("n1", "b"), nodes=("n1", "n2", "n3")) == {}
    assert found(incident("n1", "a"), incident("n1", "b"), nodes=("n1", "n2", "n3", "n4")) == {"n1": False}


INCIDENTS = st.builds(
    NodeIncident,
    st.sampled_from(NODES),
    st.builds(NodeOwner, st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["x", "y"])),
    st.sampled_from(["evicted", "killed"]),
    st.integers(0, 200).map(lambda minutes: NOW - timedelta(minutes=minutes)),
)


@given(st.lists(INCIDENTS, max_size=200), st.integers(0, 40), st.floats(0, 1))
def test_what_must_hold_of_bad_nodes_holds(incidents: list[NodeIncident], count: int, share: float) -> None:
    nodes, limits = NODES[:count], BadNodeLimits(share=share)
    bad = bad_nodes(incidents, nodes, NOW, limits)
    recent = [one for one in incidents if NOW - one.time < limits.forgive_after]
    known = {*nodes, *(one.node for one in recent)}
    assert len(bad) <= max(len(known) * share, 1)
    assert len(bad) <= most_avoided(len(known), share)
    assert len(known) >= 4 or not bad
    for node in bad:
        owners = {one.owner for one in recent if one.node == node.name}
        assert (node.owners, node.is_excluded) == (len(owners), len(owners) >= 3)
        assert len(owners) >= 2
    # In time all are forgiven.
    assert not bad_nodes(incidents, nodes, NOW + timedelta(hours=1), limits)


# What jobs tell


def failed_job(namespace: str = "team-a", cause: str = "evicted", node: str = "n1", **status: Any) -> Any:
    record = RecoveryStatus(action="RestartElsewhere", cause=cause, node=node, time=NOW, **status)
    job = make_job(PYTORCHJOB, worker=1, policy={"recovery": "auto"})
    metadata = msgspec.structs.replace(job.metadata, namespace=namespace)
    return msgspec.structs.replace(job, metadata=metadata, status=JobStatus(recovery=record))


def test_a_status_tells_of_the_last_failure_and_of_nodes_that_are_left_out() -> None:
    earlier = ExcludedNode(name="n7", since=NOW - timedelta(minutes=9), until=NOW, cause="killed")
    job = failed_job(excluded_nodes=(earlier,))
    owner = NodeOwner("team-a", "default")
    assert job_incidents(job, TORCH.replicas(job)) == {
        NodeIncident("n1", owner, "evicted", NOW),
        NodeIncident("n7", owner, "killed", NOW - timedelta(minutes=9)),
    }


@pytest.mark.parametrize("cause", ["python-exception", "oom-killed", "no-route", "hung"])
def test_what_a_node_is_not_to_blame_for_does_not_count(cause: str) -> None:
    job = failed_job(cause=cause)
    assert not job_incidents(job, TORCH.replicas(job))


def test_records_are_made_of_what_the_cache_of_jobs_shows() -> None:
    records = NodeRecords(BadNodeLimits(), lambda: NODES)
    source = NodeRecordSource(msgspec.UNSET, TORCH, records)  # type: ignore[arg-type]
    for namespace in ("team-a", "team-a", "team-b"):
        source._observe_delta(Delta(None, failed_job(namespace)))
    (bad,) = records.bad_nodes(NOW)
    assert (bad.name, bad.owners) == ("n1", 2)
    assert bad.reason == "jobs of 2 owners failed there (evicted)"
    # A job that is deleted meanwhile does not take its experience with it.
    source._observe_delta(Delta(failed_job("team-c"), None))
    assert records.avoidance(NOW + timedelta(seconds=6)).excluded == ("n1",)
    assert records.avoidance(NOW + timedelta(hours=1)).excluded == ()


def test_records_are_bounded() -> None:
    records = NodeRecords(BadNodeLimits(), lambda: NODES)
    records.add(incident(f"n{index}") for index in range(MAX_INCIDENTS + 5))
    assert len(records._incidents) == MAX_INCIDENTS


# What new pods get


AVOIDED = node_avoidance(
    bad_nodes(
        [incident("n1", owner) for owner in "abc"] + [incident("n2", owner) for owner in "ab"],
        NODES,
        NOW,
        BadNodeLimits(),
    )
)


def planned(recovery: str | None, bad: NodeAvoidance = AVOIDED) -> Any:
    policy = {"recovery": recovery} if recovery else {}
    job = make_job(PYTORCHJOB, worker=1, policy=policy)
    children = observed_job(TORCH, job, services=job_services(TORCH, job)).children
    return reconcile_plan(TORCH, ObservedJob.of(TORCH, job, OBSERVED_AT, children, bad_nodes=bad))


def test_pods_of_jobs_with_a_policy_keep_away_from_bad_nodes_and_events_say_so() -> None:
    plan = planned("auto")
    affinity = created_body(plan, "job-worker-0")["spec"]["affinity"]["nodeAffinity"]
    required, preferred = affinity.values()
    names = [field["values"] for term in required["nodeSelectorTerms"] for field in term["matchFields"]]
    assert names == [["n1"]]
    assert [term["preference"]["matchFields"][0]["values"] for term in preferred] == [["n2"]]
    assert [event.message for event in plan.events if event.reason == "NodeAvoided"] == [
        "New pods do not start on node n1: jobs of 3 owners failed there (evicted)",
        "New pods should not start on node n2: jobs of 2 owners failed there (evicted)",
    ]


def test_pods_of_other_jobs_are_what_they_were() -> None:
    plan = planned(None)
    assert plan == planned(None, NodeAvoidance())
    assert "affinity" not in created_body(plan, "job-worker-0")["spec"]
