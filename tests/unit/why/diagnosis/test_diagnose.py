"""The rules on cases as clusters report them; and silence where nothing is wrong."""

import re
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.training import Failure
from gangline.api.meta import Condition
from gangline.api.quantity import parse_resources
from gangline.why.diagnosis import decode
from gangline.why.diagnosis.case import EventFact, PodGroupFacts
from gangline.why.diagnosis.diagnose import diagnose, filled_template, with_plural_verb
from gangline.why.diagnosis.report import Diagnosis
from gangline.why.diagnosis.rules.evidence import quoted_line
from gangline.why.diagnosis.rules.table import RULES
from support.cases.why import (
    HEALTHY_SNAPSHOTS,
    PEER_CLOSED_LINE,
    RECORDED_SNAPSHOTS,
    TEMPLATE_PATH,
    failed_condition,
    failed_replica,
    make_condition,
    make_job_facts,
    make_node,
    make_replica_facts,
    make_snapshot,
    minutes_ago,
    running_state,
    terminated_state,
    unschedulable_replica,
    waiting_state,
)
from support.cases.why_faults import PROVOKED_RULES


@pytest.mark.parametrize("rule", RECORDED_SNAPSHOTS)
def test_recorded_fault_is_found(rule: str) -> None:
    found, words = RECORDED_SNAPSHOTS[rule]
    report = diagnose(found)
    assert [cause.rule for cause in report.causes] == [rule], report
    assert words in " ".join((report.cause, *report.next))
    assert report.next, "there is always a next step"
    said = " ".join((report.cause, *report.next))
    assert not re.search(r"\{\w*\}", said), "every word of it is filled in"
    assert not report.healthy


@pytest.mark.parametrize("name", HEALTHY_SNAPSHOTS)
def test_nothing_is_found_in_a_healthy_job(name: str) -> None:
    report = diagnose(HEALTHY_SNAPSHOTS[name])
    assert report.healthy, report.causes
    assert (report.cause, report.evidence, report.next) == ("", (), ())
    assert report.looked_at


def test_every_rule_is_provoked_by_a_test() -> None:
    ids = [rule.id for rule in RULES]
    assert len(ids) == len(set(ids))
    assert set(ids) == RECORDED_SNAPSHOTS.keys() | PROVOKED_RULES


# The team


def test_first_failure_is_the_cause_and_those_who_lost_it_are_not() -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}),
        failed_replica(0, 1, PEER_CLOSED_LINE, at=2),
        failed_replica(1, 137, "epoch 2 step 1100", at=2, reason="OOMKilled", limits={"memory": "32Gi"}),
        failed_replica(2, 1, PEER_CLOSED_LINE, at=1.9),
        nodes=(make_node(),),
        allocated_by_node={},
    )
    report = diagnose(found)
    assert [cause.rule for cause in report.causes] == ["oom-killed"]
    assert report.causes[0].replicas == ("worker-1",)
    told = "\n".join(report.evidence)
    assert "limit 32Gi" in told
    assert "node node-1 has 64Gi" in told
    assert "worker-0 (rank 0) and worker-2 (rank 2) then lost their peer" in told
    assert any("try 48Gi" in step for step in report.next)


@pytest.mark.parametrize(("message", "told"), [("peak memory 33000Mi", "limit 32Gi, peak 33000Mi"), ("", "limit 32Gi")])
def test_a_node_that_knows_the_peak_is_quoted(message: str, told: str) -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 137, at=2, reason="OOMKilled", message=message, limits={"memory": "32Gi"}),
    )
    assert diagnose(found).evidence[0] == told


@pytest.mark.parametrize(
    ("text", "who", "told"),
    [
        ("a and b was killed for it.", "a and b", "a and b were killed for it."),
        ("a and b wants a port.", "a and b", "a and b want a port."),
        ("a and b hangs: no line.", "a and b", "a and b hang: no line."),
        ("a and b cannot write.", "a and b", "a and b cannot write."),
        ("The network of a and b is down.", "a and b", "The network of a and b is down."),
    ],
)
def test_a_sentence_about_several_agrees_with_them(text: str, who: str, told: str) -> None:
    assert with_plural_verb(text, who) == told


def test_survivor_whose_clock_is_ahead_is_still_a_consequence() -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, PEER_CLOSED_LINE, at=2.02),
        failed_replica(1, 139, at=2),
    )
    report = diagnose(found)
    assert [(cause.rule, cause.replicas) for cause in report.causes] == [("exit-code", ("worker-1",))]
    assert "SIGSEGV" in report.cause


def test_who_was_sent_away_after_the_failure_did_not_fail_first() -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 143, at=1.9),
        failed_replica(1, 1, "ModuleNotFoundError: No module named 'apex'", at=2),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["module-missing"]


def test_who_fails_in_the_moment_in_which_a_peer_is_killed_fails_because_of_it() -> None:
    clash = {"reason": "PortClash", "message": "port 1 is taken by another process"}
    found = make_snapshot(
        make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}),
        failed_replica(0, 1, "XGBoostError: [updater.cc:542]: Allreduce failed", at=2),
        failed_replica(1, 137, at=2),
        failed_replica(2, 1, at=2, **clash),
    )
    report = diagnose(found)
    assert [(cause.rule, cause.replicas) for cause in report.causes] == [("killed", ("worker-1",))]
    assert any("consequences, not causes" in line for line in report.evidence)


def test_two_who_are_killed_for_memory_are_two_causes() -> None:
    killed = [
        failed_replica(index, 137, at=2, reason="OOMKilled", limits={"memory": f"{index + 1}Gi"}) for index in range(2)
    ]
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), *killed))
    assert [cause.rule for cause in report.causes] == ["oom-killed", "oom-killed"]


def test_same_trouble_of_several_replicas_is_told_once() -> None:
    message = "0/3 nodes are available: 2 Insufficient memory, 1 node(s) had untolerated taint {gpu: true}."
    found = make_snapshot(
        make_job_facts("Created", desired_replicas={"Worker": 8}),
        *(unschedulable_replica(index, message, requests={"memory": "60Gi"}) for index in range(8)),
        nodes=(make_node(), make_node("node-2")),
        allocated_by_node={},
    )
    report = diagnose(found)
    assert [cause.rule for cause in report.causes] == ["unschedulable-resources"]
    assert "worker-0 (rank 0), worker-1 (rank 1), worker-2 (rank 2) and 5 more" in report.cause
    assert len(report.causes[0].replicas) == 8


def test_waiting_peer_is_the_cause_and_the_connection_errors_are_not() -> None:
    found = make_snapshot(
        make_job_facts("Running"),
        make_replica_facts(
            0,
            state=waiting_state("CrashLoopBackOff"),
            last=terminated_state(1),
            restarts=4,
            log=("connect to bert-worker-1:23456: Connection refused",),
        ),
        make_replica_facts(1, "Pending", waiting_state("ErrImagePull", "manifest unknown: not found")),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["image-name"]


def test_peer_is_named_by_its_address() -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, "connect to bert-worker-1:23456 failed: Connection refused"),
        make_replica_facts(1, "Pending", age=1),
    )
    report = diagnose(found)
    assert report.causes[0].rule == "peer-lost"
    assert "worker-1" in report.cause
    assert "bert-worker-1:23456 is worker-1 (rank 1), which is Pending" in report.evidence


def test_failure_that_only_the_status_remembers_is_explained() -> None:
    first = Failure(
        replica="worker-1",
        pod="bert-worker-1",
        exit_code=1,
        reason="Error",
        time=minutes_ago(3),
        log=("MemoryError",),
    )
    found = make_snapshot(
        make_job_facts(
            "Failed",
            failed_condition(message="Job bert has failed because it has reached the specified backoff limit"),
            first_failure=first,
            backoff_limit=3,
            restarts=3,
        )
    )
    report = diagnose(found)
    assert [cause.rule for cause in report.causes] == ["memory-error"]
    assert "it was tried again until the backoff limit of 3 was reached" in report.evidence
    assert any("spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources" in step for step in report.next)


@pytest.mark.parametrize("code", [137, 143])
def test_replica_that_was_replaced_is_the_cause_of_a_peer_that_failed_after_it(code: int) -> None:
    first = Failure(replica="worker-1", pod="bert-worker-1", exit_code=code, reason="Error", time=minutes_ago(2))
    complaint = terminated_state(1, at=1.8)
    found = make_snapshot(
        make_job_facts("Failed", failed_condition(), first_failure=first, restarts=1),
        make_replica_facts(0, "Failed", complaint, log=("Rank 1 has gone away",)),
        make_replica_facts(1),
    )
    report = diagnose(found)
    assert [cause.replicas for cause in report.causes] == [("worker-1",)]


def test_complaint_about_a_replacement_that_took_long_to_start_is_its_consequence() -> None:
    first = Failure(replica="worker-1", pod="bert-worker-1", exit_code=137, reason="Error", time=minutes_ago(5))
    found = make_snapshot(
        make_job_facts("Failed", failed_condition(), first_failure=first, restarts=1),
        make_replica_facts(0, "Failed", terminated_state(1, at=1.5), log=("Rank 1 has gone away",)),
        make_replica_facts(1, state=running_state(since=2)),
    )
    assert [cause.replicas for cause in diagnose(found).causes] == [("worker-1",)]


def test_restarting_job_is_told_what_it_restarts_from() -> None:
    first = Failure(replica="worker-1", pod="bert-worker-1", exit_code=137, reason="OOMKilled", time=minutes_ago(0.1))
    found = make_snapshot(
        make_job_facts(
            "Restarting",
            make_condition("Restarting"),
            first_failure=first,
            last_restart_at=minutes_ago(0.1),
            restarts=1,
        ),
        make_replica_facts(0),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["oom-killed"]


def test_failed_pod_that_was_replaced_is_told_by_the_event_of_the_kubeflow_operator() -> None:
    told = EventFact("ExitedWithCode", "Pod: team-a.bert-worker-1 exited with code 137", time=minutes_ago(0.5), count=2)
    found = make_snapshot(
        make_job_facts("Restarting", make_condition("Restarting")), make_replica_facts(0), events=(told,)
    )
    report = diagnose(found)
    assert [(cause.rule, cause.replicas) for cause in report.causes] == [("killed", ("worker-1",))]
    again = msgspec.structs.replace(found, replicas=(make_replica_facts(0), make_replica_facts(1)))
    assert diagnose(again).healthy


def test_job_that_tries_again_and_again_is_not_healthy_in_the_moment_in_which_it_runs() -> None:
    tries = [failed_replica(index, 1, "MemoryError", at=9 - index) for index in range(4)]
    found = make_snapshot(
        make_job_facts(desired_replicas={"": 1}, kind="Job", is_training_job=False),
        *tries,
        make_replica_facts(9),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["memory-error"]


def test_who_still_waits_when_a_job_has_failed_does_not_matter() -> None:
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 3),
        make_replica_facts(1, "Pending", waiting_state("ErrImagePull", "not found")),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["exit-code"]


def test_operator_whose_tries_are_refused_is_there_though_it_writes_no_status() -> None:
    unnoticed = msgspec.structs.replace(RECORDED_SNAPSHOTS["quota"][0], job=make_job_facts("Pending", has_status=False))
    assert [cause.rule for cause in diagnose(unnoticed).causes] == ["quota"]


def test_loop_is_seen_in_the_moment_in_which_it_runs() -> None:
    found = make_snapshot(
        make_job_facts(),
        make_replica_facts(
            0,
            state=running_state(0.1),
            last=terminated_state(1, at=0.2),
            restarts=5,
            previous_logs={"pytorch": ("KeyError: 'x'", "MemoryError")},
        ),
        make_replica_facts(1),
    )
    assert [cause.rule for cause in diagnose(found).causes] == ["memory-error"]


def test_single_program_that_cannot_connect_has_no_peer_to_blame() -> None:
    log = (
        "Traceback (most recent call last):",
        '  File "train.py", line 3',
        "ConnectionRefusedError: [Errno 111] Connection refused",
    )
    report = diagnose(
        make_snapshot(
            make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 1}),
            failed_replica(0, 1, *log),
        )
    )
    assert [cause.rule for cause in report.causes] == ["python-exception"]
    assert "ConnectionRefusedError" in report.cause
    assert any("train.py" in step for step in report.next)


def test_what_a_program_lived_with_is_not_why_it_ended() -> None:
    log = (
        "warning: cannot write the cache: Permission denied: '/home/ana/.cache'",
        "Traceback (most recent call last):",
        "ImportError: No module named 'optional'",
        "going on without it",
        *(f"step {number}" for number in range(20)),
        "Traceback (most recent call last):",
        '  File "train.py", line 9, in main',
        "KeyError: 'label'",
    )
    report = diagnose(
        make_snapshot(
            make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 1}),
            failed_replica(0, 1, *log),
        )
    )
    assert [cause.rule for cause in report.causes] == ["python-exception"]
    assert "KeyError: 'label'" in report.cause


def test_who_could_not_connect_at_first_and_failed_later_is_no_consequence() -> None:
    log = (
        "connect: Connection refused, trying again",
        "Traceback (most recent call last):",
        "KeyError: 'label'",
    )
    found = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, *log, at=3),
        failed_replica(1, 1, PEER_CLOSED_LINE, at=2),
    )
    report = diagnose(found)
    assert [(cause.rule, cause.replicas) for cause in report.causes] == [("python-exception", ("worker-0",))]


def test_what_led_to_the_last_exception_is_read_too() -> None:
    log = (
        "Traceback (most recent call last):",
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/x'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        "RuntimeError: cannot load",
    )
    report = diagnose(
        make_snapshot(
            make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 1}),
            failed_replica(0, 1, *log),
        )
    )
    assert [cause.rule for cause in report.causes] == ["file-missing"]


def test_how_far_a_pod_is_from_fitting() -> None:
    found = make_snapshot(
        make_job_facts("Created", desired_replicas={"Worker": 1}),
        unschedulable_replica(0, "0/1 nodes are available: 1 Insufficient cpu.", requests={"cpu": "6"}),
        nodes=(make_node(),),
        allocated_by_node={"node-1": parse_resources({"cpu": "5500m"})},
    )
    assert "the freest of 1 node has 2500m left: 3500m too little" in diagnose(found).cause


def test_a_gang_of_which_one_would_fit_lacks_no_negative_amount() -> None:
    found = make_snapshot(
        make_job_facts("Created", desired_replicas={"Worker": 1}),
        unschedulable_replica(0, "0/1 nodes are available: 1 Insufficient cpu.", requests={"cpu": "1"}),
        nodes=(make_node(),),
        allocated_by_node={"node-1": parse_resources({"cpu": "4"})},
    )
    told = diagnose(found).cause
    assert "the freest of 1 node has 4 left, enough for one but not for all that wait" in told


def test_unread_places_are_told() -> None:
    found = msgspec.structs.replace(
        HEALTHY_SNAPSHOTS["running under the Kubeflow operator"], unreadable=("nodes: forbidden",)
    )
    assert diagnose(found).unread == ("nodes: forbidden",)


def test_next_step_that_needs_what_nobody_knows_is_left_out() -> None:
    assert filled_template("raise {field}", {}) == ""
    assert filled_template("raise {field}", {"field": "x"}) == "raise x"


def test_what_to_do_after_a_run_that_ended_is_to_run_it_again() -> None:
    """Its plane is no more: nothing can be deleted, submitted or restarted there."""
    recorded = make_job_facts(
        "Failed",
        failed_condition(),
        run_ended_at=minutes_ago(0),
        run_command="cd /home/me && gangline run --nproc 2 -- python train.py",
    )
    report = diagnose(make_snapshot(recorded, failed_replica(0, 3, "boom")))
    assert "run it again after the change: cd /home/me && gangline run --nproc 2 -- python train.py" in report.next
    assert not any("kubectl" in step for step in report.next)


def test_a_job_of_a_stopped_plane_needs_the_plane_first() -> None:
    recorded = make_job_facts("Failed", failed_condition(), run_ended_at=minutes_ago(0))
    report = diagnose(make_snapshot(recorded, failed_replica(0, 3, "boom")))
    assert "start the plane of this machine again: gangline up --detach" in report.next


def test_a_healthy_job_whose_run_was_stopped_says_that_it_was() -> None:
    stopped = make_job_facts(
        "Running",
        run_ended_at=minutes_ago(0),
        run_end_reason="the run was interrupted",
        run_command="gangline run job.yaml",
    )
    report = diagnose(make_snapshot(stopped, make_replica_facts(0), make_replica_facts(1)))
    assert (report.causes[0].rule, report.cause) == ("run-stopped", "the run was interrupted.")
    assert report.next == ("run it again: gangline run job.yaml",)
    assert report.summary == "PyTorchJob team-a/bert was Running, all 2 replicas up."


def gang_report(*, phase: str, reason: str, message: str) -> Diagnosis:
    """Of a team of two that waits, as our own scheduler tells it."""
    group = {
        "apiVersion": "scheduling.gangline.dev/v1alpha1",
        "metadata": {"name": "bert"},
        "spec": {"minMember": 2},
        "status": {"state": {"phase": phase, "reason": reason, "message": message}},
    }
    refused = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="0/3 nodes: 3 lack cpu")
    waiting = [make_replica_facts(index, "Pending", node="", age=12, conditions=(refused,)) for index in range(2)]
    return diagnose(make_snapshot(make_job_facts("Created"), *waiting, pod_group=decode.pod_group_facts(group)))


@pytest.mark.parametrize(("phase", "word"), [("Pending", "start"), ("Unschedulable", "stay")])
def test_a_gang_of_ours_that_does_not_fit_is_told_once_in_the_schedulers_words(phase: str, word: str) -> None:
    report = gang_report(phase=phase, reason="NotEnoughResources", message="0/2 members running; 0/3 nodes: 3 lack cpu")
    (cause,) = report.causes
    assert cause.rule == "gang-does-not-fit"
    assert cause.cause == f"The team must {word} together (2 members) and does not fit: 0/3 nodes: 3 lack cpu."
    assert "kubectl describe podgroups.scheduling.gangline.dev bert -n team-a" in cause.next


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("0/2 nodes: 1 lack cpu, 1 tainted", "wait for others to end"),
        ("0/2 nodes: 2 at their limit of pods", "wait for others to end"),
        (
            "0/2 nodes: 2 do not match the node selector",
            f"correct nodeSelector or affinity of {TEMPLATE_PATH}",
        ),
        ("0/2 nodes: 2 tainted", f"tolerate the taint in {TEMPLATE_PATH}.tolerations"),
        ("0/2 nodes: 2 cordoned", "let pods on the nodes again"),
        ("0/2 nodes: 2 outside the topology domain", "label nodes with the key"),
    ],
)
def test_nobody_is_told_to_wait_for_others_where_that_is_no_use(said: str, step: str) -> None:
    report = gang_report(phase="Pending", reason="NotEnoughResources", message=f"0/2 members running; {said}")
    assert report.next[0].startswith(step)


@pytest.mark.parametrize(
    ("each", "nodes", "far", "step"),
    [
        ("4", ("8", "8"), "needs 8 cpu, 0 free.", "wait for others to end"),
        ("9", ("8", "8"), "needs 18 cpu, 0 free of 16 in all.", "ask for fewer replicas"),
        ("9", ("8", "8", "8"), "needs 18 cpu, 0 free.", "ask for fewer replicas"),
    ],
    ids=["would fit", "more than all have", "more than one has"],
)
def test_what_is_more_than_there_is_is_not_to_be_waited_for(
    each: str, nodes: tuple[str, ...], far: str, step: str
) -> None:
    state = {"phase": "Pending", "reason": "NotEnoughResources", "message": "0/2 members running"}
    group = {
        "apiVersion": "scheduling.gangline.dev/v1alpha1",
        "metadata": {"name": "bert"},
        "spec": {"minMember": 2},
        "status": {"state": state},
    }
    waits = [make_replica_facts(index, "Pending", node="", age=12, requests={"cpu": each}) for index in range(2)]
    there = tuple(make_node(f"n{number}", cpu=size) for number, size in enumerate(nodes))
    taken = {one.metadata.name: parse_resources(one.status.allocatable) for one in there}
    report = diagnose(
        make_snapshot(
            make_job_facts("Created"),
            *waits,
            pod_group=decode.pod_group_facts(group),
            nodes=there,
            allocated_by_node=taken,
        )
    )
    assert report.cause.endswith(far)
    assert report.next[0].startswith(step)


def test_a_gang_of_ours_that_waits_for_its_queue_is_not_said_not_to_fit() -> None:
    report = gang_report(phase="Pending", reason="", message="0/2 members running; queue default is at its cap")
    (cause,) = report.causes
    assert cause.rule == "gang-waits-its-turn"
    assert "queue default is at its cap" in cause.cause


@pytest.mark.parametrize(
    ("reason", "said", "rule"),
    [
        ("NotEnoughResources", "0/3 nodes: 3 lack cpu", "gang-does-not-fit"),
        ("", "queue default is at its cap", "gang-waits-its-turn"),
    ],
)
def test_what_our_scheduler_says_is_told_from_the_first_moment(reason: str, said: str, rule: str) -> None:
    """It has tried: there is nothing to wait for, and `gangline get jobs` says it too."""
    group = {
        "apiVersion": "scheduling.gangline.dev/v1alpha1",
        "metadata": {"name": "bert"},
        "spec": {"minMember": 2},
        "status": {"state": {"phase": "Pending", "reason": reason, "message": f"0/2 members running; {said}"}},
    }
    waiting = [make_replica_facts(index, "Pending", node="", age=0.02) for index in range(2)]
    report = diagnose(
        make_snapshot(
            make_job_facts("Created", created_at=minutes_ago(0.02)),
            *waiting,
            pod_group=decode.pod_group_facts(group),
        )
    )
    assert [cause.rule for cause in report.causes] == [rule]


def test_a_gang_that_goes_on_with_all_its_replicas_is_not_said_to_have_too_few() -> None:
    group = PodGroupFacts(
        "bert", "Recovering", 3, message="2/3 members running", is_gangline=True, reason="NotEnoughTasks"
    )
    assert diagnose(
        make_snapshot(make_job_facts(), make_replica_facts(0), make_replica_facts(1), pod_group=group)
    ).healthy


def test_of_devices_the_limit_is_what_to_change() -> None:
    said = make_condition("PodScheduled", "Unschedulable", "0/1 nodes: 1 Insufficient nvidia.com/gpu.", "False")
    waits = make_replica_facts(0, "Pending", node="", age=12, limits={"nvidia.com/gpu": "2"}, conditions=(said,))
    there = make_node(**{"nvidia_com/gpu": "1"})
    (cause,) = diagnose(
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            waits,
            nodes=(there,),
            allocated_by_node={},
        )
    ).causes
    field = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits[nvidia.com/gpu]"
    assert any(field in step for step in cause.next), cause.next


NOT_PLACED = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"  # 1.36, 1.37


def native_gang(message: str, age: float) -> Diagnosis:
    """Of a team of two that waits for so many minutes, as Kubernetes' own scheduler tells it of each member."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "metadata": {"name": "bert"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": [{"status": "False", "message": "pod group is unschedulable"}]},
    }
    refused = make_condition("PodScheduled", "Unschedulable", message, "False")
    told = EventFact("FailedScheduling", message, warning=True, time=minutes_ago(age))
    members = [
        make_replica_facts(index, "Pending", node="", age=age, conditions=(refused,), events=(told,))
        for index in range(2)
    ]
    return diagnose(
        make_snapshot(
            make_job_facts("Created", created_at=minutes_ago(age)),
            *members,
            pod_group=decode.pod_group_facts(group),
        )
    )


@pytest.mark.parametrize(
    "message",
    [NOT_PLACED, "pod group is unschedulable, minCount (2) cannot be satisfied: 0 scheduled, 1 remaining"],
)
def test_what_is_said_of_a_group_of_kubernetes_own_is_not_taken_for_a_volume(message: str) -> None:
    assert [cause.rule for cause in native_gang(message, age=12).causes] == ["gang-does-not-fit"]


def test_what_is_said_of_a_young_group_of_kubernetes_own_is_not_blamed_on_nodes() -> None:
    assert native_gang(NOT_PLACED, age=0.1).causes == ()
    short = "0/2 nodes are available: 2 Insufficient cpu."
    assert [cause.rule for cause in native_gang(short, age=0.1).causes] == ["unschedulable-resources"]


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_new_job_whose_pods_come_before_its_status_is_being_started(phase: str) -> None:
    young = make_job_facts("Pending", has_status=False, created_at=minutes_ago(0.05))
    made = [
        make_replica_facts(index, phase, node="" if phase == "Pending" else "node-1", age=0.05) for index in range(2)
    ]
    report = diagnose(make_snapshot(young, *made))
    assert report.healthy
    assert report.notes == ("it was created 3 s ago; it is being started, and its status comes next",)


def test_a_new_job_that_nobody_has_begun_with_lacks_no_operator_yet() -> None:
    report = diagnose(make_snapshot(make_job_facts("Pending", has_status=False, created_at=minutes_ago(0.05))))
    assert report.healthy
    assert report.notes == ("it was created 3 s ago; nobody has looked at it yet",)


def test_where_there_is_a_podgroup_of_it_there_is_an_operator() -> None:
    begun = PodGroupFacts("bert", "Inqueue", 2)
    report = diagnose(
        make_snapshot(make_job_facts("Pending", has_status=False, created_at=minutes_ago(2)), pod_group=begun)
    )
    assert "no-operator" not in [cause.rule for cause in report.causes]


def test_a_job_that_has_pods_is_not_told_that_its_spec_cannot_run() -> None:
    # Whoever made them has laxer rules than we.
    young = make_job_facts("Pending", has_status=False, created_at=minutes_ago(0.05), problems=("spec.x: write y",))
    assert diagnose(make_snapshot(young, make_replica_facts(0, "Pending", node="", age=0.05))).healthy


def queue_report(queue: str, queues: tuple[str, ...] | None, *, attempt: str = "", **about: Any) -> Diagnosis:
    """Of a job that has just been made, with its queue and those that exist."""
    group = {
        "apiVersion": "scheduling.gangline.dev/v1alpha1",
        "metadata": {"name": "bert"},
        "spec": {"minMember": 2, "queue": queue},
        "status": {"state": {"phase": "Pending", "message": f"0/2 members running{attempt and '; '}{attempt}"}},
    }
    waiting = [make_replica_facts(index, "Pending", node="", age=0.05) for index in range(2)]
    young = {"created_at": minutes_ago(0.05), **about}
    return diagnose(
        make_snapshot(
            make_job_facts("Created", **young),
            *waiting,
            pod_group=decode.pod_group_facts(group),
            queues=queues,
        )
    )


def test_a_queue_that_does_not_exist_is_named_at_once_with_what_to_type() -> None:
    (cause,) = queue_report("reserch", ("production", "research")).causes
    assert cause.rule == "no-queue"
    assert "queues that exist: production, research" in cause.evidence
    move, make, field = cause.next
    assert move.endswith(
        "kubectl patch podgroups.scheduling.gangline.dev bert -n team-a"
        """ --type merge -p '{"spec":{"queue":"research"}}'"""
    )
    assert '"kind":"Queue","metadata":{"name":"reserch"}' in make
    assert "spec.runPolicy.schedulingPolicy.queue" in field


def test_a_queue_that_does_not_exist_is_told_once_when_the_scheduler_has_said_so_too() -> None:
    said = "queue 'q' does not exist: create it, or use 'default'"
    (cause,) = queue_report("q", (), attempt=said, created_at=minutes_ago(60)).causes
    assert (cause.rule, cause.evidence[1:]) == (
        "no-queue",
        ("queues that exist: none", f"the scheduler says: {said}"),
    )


@pytest.mark.parametrize(
    ("queue", "queues"),
    [("research", ("research",)), ("", ()), ("default", ()), ("research", None)],
    ids=["exists", "none named", "default", "not readable"],
)
def test_a_queue_that_may_be_there_is_no_cause(queue: str, queues: tuple[str, ...] | None) -> None:
    assert queue_report(queue, queues).healthy


def test_a_suspended_job_needs_no_queue_yet() -> None:
    assert queue_report("q", (), suspended=True).healthy


def test_a_gang_of_ours_that_lacks_members_is_nothing_of_its_own() -> None:
    # Whatever keeps pods from being made has a rule of its own.
    report = gang_report(phase="Pending", reason="NotEnoughTasks", message="0/2 members running, 1 of 2 exist")
    assert "gang-does-not-fit" not in [cause.rule for cause in report.causes]


def test_of_a_progress_bar_the_last_state_is_quoted() -> None:
    assert quoted_line("worker-0", "\r 1%|#\r99%|####Traceback\r\n") == "  worker-0│ 99%|####Traceback"
