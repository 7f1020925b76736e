"""Diagnoses of teams: who was first, who only suffers, who waits, and which rank a replica has."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.training import Failure
from gangline.api.meta import Condition
from gangline.api.quantity import parse_resources
from gangline.cli.jobs.why import PARTLY_READ_TEXT, report_text
from gangline.sdk.ship.manifests import UNPACK_CONTAINER
from gangline.why.diagnosis.case import DiagnosisTimeouts, EventFact, JobSnapshot, ReplicaFacts, VolumeFact
from gangline.why.diagnosis.diagnose import diagnose, with_ranks
from gangline.why.diagnosis.report import Diagnosis
from gangline.why.diagnosis.rules import not_started
from support.builders.stacks import all_reduce, own_stack, rank, reading
from support.cases.why import (
    failed_condition,
    failed_replica,
    failed_unpacking,
    make_condition,
    make_job_facts,
    make_replica_facts,
    make_snapshot,
    minutes_ago,
    terminated_state,
    waiting_state,
)

LED = {"Master": 1, "Worker": 2}
IDLE, BUSY = parse_resources({"cpu": "1m"})["cpu"], parse_resources({"cpu": "900m"})["cpu"]


def causes(report: Diagnosis) -> list[tuple[str, tuple[str, ...]]]:
    return [(cause.rule, cause.replicas) for cause in report.causes]


def as_master(replica: ReplicaFacts) -> ReplicaFacts:
    """The replica as the master of its team."""
    metadata = msgspec.structs.replace(replica.pod.metadata, name="bert-master-0", uid="u-m")
    return msgspec.structs.replace(
        replica, name="master-0", type="Master", pod=msgspec.structs.replace(replica.pod, metadata=metadata)
    )


# Silence


def silent_team(**more: Any) -> JobSnapshot:
    replicas = (make_replica_facts(index, last_log_at=minutes_ago(25), **more) for index in range(2))
    return make_snapshot(make_job_facts(), *replicas)


def test_a_silent_job_whose_cpu_use_is_unknown_is_not_called_healthy() -> None:
    case = msgspec.structs.replace(silent_team(), usage_error="the server has no metrics API (metrics.k8s.io)")
    report = diagnose(case)
    assert report.healthy
    (unread,) = report.unread
    assert unread.startswith("CPU use of the pods: the server has no metrics API (metrics.k8s.io)")
    assert PARTLY_READ_TEXT in report_text(report)


def test_cpu_use_of_a_job_that_writes_lines_is_not_missed() -> None:
    case = make_snapshot(make_job_facts(), make_replica_facts(0), make_replica_facts(1), usage_error="forbidden")
    assert diagnose(case).unread == ()


def test_a_silent_and_idle_job_hangs() -> None:
    report = diagnose(silent_team(cpu=IDLE))
    assert causes(report) == [("hung", ("worker-0", "worker-1"))]
    assert report.cause.startswith("worker-0 (rank 0) and worker-1 (rank 1) hang: ")
    assert report.unread == ()


def test_a_job_that_is_silent_for_a_minute_says_how_to_ask_again() -> None:
    quiet = (make_replica_facts(index, last_log_at=minutes_ago(1.5)) for index in range(2))
    patient = DiagnosisTimeouts(hung_after=timedelta(minutes=10))
    (note,) = diagnose(make_snapshot(make_job_facts(), *quiet, timeouts=patient)).notes
    assert note == (
        "no replica has written a line for 90 s; does it hang? gangline why bert --hung-after 60s -n team-a"
    )


def test_a_silent_job_that_uses_the_cpu_is_not_hung() -> None:
    report = diagnose(silent_team(cpu=BUSY))
    assert report.healthy
    assert report.notes == ("no replica has written a line for 25 min, though they use the CPU",)


def test_a_hang_names_the_rank_that_the_others_wait_for() -> None:
    stacks = (rank(0, frames=all_reduce()), rank(1, frames=reading()))
    report = diagnose(msgspec.structs.replace(silent_team(cpu=IDLE), stacks=stacks))
    assert report.cause == (
        "worker-0 (rank 0) and worker-1 (rank 1) hang: no line and no CPU for 25 min. "
        "The others wait for worker-1 (rank 1)."
    )
    assert report.evidence[0] == (
        "worker-0 (rank 0) waits in all_reduce (train.py:88); worker-1 (rank 1) reads data (data.py:31)"
    )
    assert report.next[0] == "see where every rank stands: gangline stacks bert -n team-a"


def test_ranks_that_wait_for_each_other_at_full_speed_hang() -> None:
    """As with Open MPI. One that computes for long in one call looks the same, but does not wait for its team."""
    stacks = (rank(0, frames=all_reduce()), rank(1, frames=all_reduce(90)))
    both = frozenset({"worker-0", "worker-1"})
    report = diagnose(msgspec.structs.replace(silent_team(cpu=BUSY), stacks=stacks, unmoved=both))
    assert causes(report) == [("hung", ("worker-0", "worker-1"))]
    assert "hang: no line, and CPU only to wait, for 25 min." in report.cause
    assert diagnose(msgspec.structs.replace(silent_team(cpu=BUSY), stacks=stacks)).healthy
    computing = (stacks[0], rank(1, frames=own_stack()))
    assert diagnose(msgspec.structs.replace(silent_team(cpu=BUSY), stacks=computing, unmoved=both)).healthy


def test_a_run_that_was_stopped_in_silence_says_so() -> None:
    facts = make_job_facts(run_ended_at=minutes_ago(0), run_end_reason="the run was interrupted")
    report = diagnose(msgspec.structs.replace(silent_team(), job=facts))
    assert report.causes[0].rule == "run-stopped"
    assert report.evidence == ("no replica had written a line for 25 min then",)
    assert report.next[-1] == "does it hang? type this while it runs: gangline why bert"


# Probes


def test_a_failing_readiness_probe_is_no_health() -> None:
    event = EventFact(
        "Unhealthy", "Readiness probe failed: no such file\n", warning=True, time=minutes_ago(1), count=12
    )
    report = diagnose(make_snapshot(make_job_facts(), make_replica_facts(0, events=(event,)), make_replica_facts(1)))
    assert causes(report) == [("not-ready", ("worker-0",))]
    assert any("Readiness probe failed: no such file (at " in line and "12 times" in line for line in report.evidence)


def test_a_pod_that_stays_unready_without_an_event_is_found() -> None:
    unready = make_condition("Ready", "ContainersNotReady", "containers with unready status: [pytorch]", "False")
    unready = msgspec.structs.replace(unready, last_transition_time=minutes_ago(20))
    report = diagnose(
        make_snapshot(make_job_facts(), make_replica_facts(0, conditions=(unready,)), make_replica_facts(1))
    )
    assert causes(report) == [("not-ready", ("worker-0",))]


def test_a_probe_that_passes_by_now_is_no_cause() -> None:
    event = EventFact("Unhealthy", "Readiness probe failed: not yet", warning=True, time=minutes_ago(20))
    replica = make_replica_facts(0, events=(event,))
    status = replica.pod.status
    ready = tuple(msgspec.structs.replace(one, ready=True) for one in status.container_statuses)
    pod = msgspec.structs.replace(replica.pod, status=msgspec.structs.replace(status, container_statuses=ready))
    assert diagnose(make_snapshot(make_job_facts(), msgspec.structs.replace(replica, pod=pod))).healthy


@pytest.mark.parametrize("code", [137, 143, 3])
def test_who_was_killed_by_its_own_liveness_probe_is_the_cause(code: int) -> None:
    killing = EventFact(
        "Unhealthy",
        "Liveness probe failed: HTTP probe failed with statuscode: 500",
        warning=True,
        time=minutes_ago(2.2),
    )
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, "RuntimeError: the ring is broken, worker-1 no longer answers", at=2.0),
        failed_replica(1, code, "step 7", at=2.0, events=(killing,)),
    )
    report = diagnose(case)
    assert causes(report)[0] == ("probe-failed", ("worker-1",))
    assert len(report.causes) == 1
    assert "livenessProbe" in report.cause


@pytest.mark.parametrize(("first_seen", "rule"), [(2.2, "probe-failed"), (1.5, "exit-code")])
def test_a_probe_that_ended_a_pod_which_is_gone_is_the_cause(first_seen: float, rule: str) -> None:
    """The probe goes on failing in the next round: when it failed last says nothing of the first failure."""
    probe = EventFact(
        "Unhealthy",
        "Liveness probe failed: command failed",
        warning=True,
        time=minutes_ago(0.5),
        first_seen=minutes_ago(first_seen),
    )
    failure = Failure(replica="worker-1", pod="train-worker-1", exit_code=143, reason="Error", time=minutes_ago(2))
    job = make_job_facts("Failed", failed_condition(), first_failure=failure)
    case = msgspec.structs.replace(make_snapshot(job), first_failure_events=(probe,))
    assert causes(diagnose(case)) == [(rule, ("worker-1",))]


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (137, "Error", "worker-1 (rank 1), exit code 137 (SIGKILL)"),
        (137, "OOMKilled", "worker-1 (rank 1), exit code 137 (OOMKilled)"),
        (1, "Error", "worker-1 (rank 1), exit code 1"),
        (None, "Evicted", "worker-1 (rank 1), Evicted"),
    ],
)
def test_the_note_about_a_restart_says_how_the_replica_ended(code: int | None, reason: str, words: str) -> None:
    failure = Failure(replica="worker-1", pod="bert-worker-1", exit_code=code, reason=reason, time=minutes_ago(20))
    report = diagnose(make_snapshot(make_job_facts("Succeeded", restarts=1, first_failure=failure)))
    assert report.notes == (f"it restarted once on its way; the last failure: {words}",)


def test_a_probe_event_of_an_earlier_run_is_not_why_it_ended() -> None:
    old = EventFact("Unhealthy", "Liveness probe failed: timeout", warning=True, time=minutes_ago(30))
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(1, 1, "Traceback (most recent call last):", "ValueError: bad", at=2, events=(old,)),
    )
    assert causes(diagnose(case)) == [("python-exception", ("worker-1",))]


# Who was first


def error_at(replica: ReplicaFacts, seconds: float) -> ReplicaFacts:
    """The replica with the time of its traceback, so many seconds before it ended."""
    state = replica.pod.status.container_statuses[0].state.terminated
    assert state is not None
    assert state.finished_at is not None
    moment = state.finished_at - timedelta(seconds=seconds)
    return msgspec.structs.replace(replica, error_times={"pytorch": (moment, moment)})


@pytest.mark.parametrize(
    "complaint", ["ValueError: rank 1 is not there", "Fatal: der Kollege antwortet nicht", "AssertionError"]
)
def test_whose_error_came_first_is_the_cause_even_if_it_ended_last(complaint: str) -> None:
    """The one with the error may take its time to end; its peers complain in words that nobody knows, and end first."""
    header = "Traceback (most recent call last):"
    case = make_snapshot(
        make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}),
        error_at(failed_replica(0, 1, header, complaint, at=2.05), 0.2),
        error_at(failed_replica(1, 1, header, "KeyError: 'label'", at=2.0), 4),
        error_at(failed_replica(2, 1, header, complaint, at=2.05), 0.1),
    )
    report = diagnose(case)
    assert causes(report) == [("python-exception", ("worker-1",))]
    assert "KeyError" in report.cause
    assert any(line.startswith("worker-0 (rank 0) and worker-2 (rank 2) then ") for line in report.evidence)


def test_who_was_killed_comes_before_a_complaint_in_the_same_second() -> None:
    header = "Traceback (most recent call last):"
    complaint = failed_replica(0, 1, header, "ValueError: nobody there", at=2)
    complaint = msgspec.structs.replace(
        complaint, error_times={"pytorch": (minutes_ago(2) + timedelta(milliseconds=300),) * 2}
    )
    case = make_snapshot(make_job_facts("Failed", failed_condition()), complaint, failed_replica(1, 137, at=2))
    assert causes(diagnose(case)) == [("killed", ("worker-1",))]


def test_the_same_error_of_all_replicas_is_one_cause_of_all() -> None:
    lines = ("Traceback (most recent call last):", "ValueError: no shard {}")
    replicas = (failed_replica(i, 1, *(line.format(7) for line in lines), at=2 - i / 60) for i in range(3))
    case = make_snapshot(make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 3}), *replicas)
    assert causes(diagnose(case)) == [("python-exception", ("worker-0", "worker-1", "worker-2"))]


# Stragglers


def test_a_straggler_of_two_is_found() -> None:
    case = make_snapshot(
        make_job_facts(), make_replica_facts(0, log=("step 400",)), make_replica_facts(1, log=("step 90",))
    )
    report = diagnose(case)
    assert causes(report) == [("straggler", ("worker-1",))]
    assert "slower than its peer" in report.cause
    assert report.next == ("look at what it does: gangline logs bert --replica worker/1 -n team-a",), "it is one node"


def test_a_slow_master_is_found_among_its_workers() -> None:
    case = make_snapshot(
        make_job_facts(desired_replicas=LED),
        as_master(make_replica_facts(0, log=("step 90",))),
        make_replica_facts(0, log=("step 400",)),
        make_replica_facts(1, log=("step 398",)),
    )
    report = diagnose(case)
    assert causes(report) == [("straggler", ("master-0",))]
    assert report.cause.startswith("master-0 (rank 0) is slower than the others")
    assert "worker-1 (rank 2) 398" in report.evidence[0]


def test_the_evaluator_is_not_compared() -> None:
    evaluator = msgspec.structs.replace(make_replica_facts(1, log=("step 5",)), type="Evaluator", name="evaluator-0")
    case = make_snapshot(make_job_facts(kind="TFJob"), make_replica_facts(0, log=("step 400",)), evaluator)
    assert diagnose(case).healthy


# The size of the team, and peers that leave


def with_variable(replica: ReplicaFacts, name: str, value: str) -> ReplicaFacts:
    return msgspec.structs.replace(replica, variables={"pytorch": {name: value}})


def test_a_hang_with_another_world_size_than_the_job_has_is_explained_by_it() -> None:
    replicas = (
        with_variable(make_replica_facts(index, last_log_at=minutes_ago(25), cpu=IDLE), "WORLD_SIZE", "4")
        for index in range(2)
    )
    report = diagnose(make_snapshot(make_job_facts(), *replicas))
    assert causes(report) == [("world-size", ("worker-0", "worker-1"))]
    assert "wait for 4 ranks (WORLD_SIZE), and the job has 2 (2 Workers)" in report.cause


def test_a_rendezvous_timeout_with_another_world_size_is_explained_by_it() -> None:
    failed = with_variable(failed_replica(0, 1, "TimeoutError: barrier timed out"), "WORLD_SIZE", "4")
    case = make_snapshot(make_job_facts("Failed", failed_condition()), failed, make_replica_facts(1))
    assert causes(diagnose(case)) == [("world-size", ("worker-0",))]


def test_the_right_world_size_is_no_cause() -> None:
    failed = with_variable(failed_replica(0, 1, "TimeoutError: barrier timed out"), "WORLD_SIZE", "2")
    case = make_snapshot(make_job_facts("Failed", failed_condition()), failed, make_replica_facts(1))
    assert causes(diagnose(case)) == [("rendezvous-timeout", ("worker-0",))]


def test_a_failure_in_unknown_words_mentions_the_peer_that_had_left_in_peace() -> None:
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()),
        failed_replica(0, 1, "Traceback (most recent call last):", "AssertionError: the ring has a hole"),
        make_replica_facts(1, "Succeeded", terminated_state(0, at=2.1, reason="Completed")),
    )
    report = diagnose(case)
    assert causes(report) == [("python-exception", ("worker-0",))]
    assert any(line.startswith("worker-1 (rank 1) had ended with exit code 0 before that") for line in report.evidence)


# Programs of other languages

RUST_OLD = ("thread 'main' panicked at 'called `Option::unwrap()` on a `None` value', src/main.rs:12:9",)
GO = (
    "panic: runtime error: index out of range [5] with length 3",
    "",
    "goroutine 1 [running]:",
    "main.main()",
    "\t/src/train/main.go:9 +0x1d",
    "exit status 2",
)
CPP = ("terminate called after throwing an instance of 'std::runtime_error'", "  what():  no more shards")
JAVASCRIPT = ("/w/m.js:1", "throw new Error('no gpu')", "", "Error: no gpu", "    at Object.<anonymous> (/w/m.js:1:7)")
JAVA = (
    'Exception in thread "main" java.lang.NullPointerException: model is null',
    "\tat org.example.Train.main(Train.java:12)",
)


@pytest.mark.parametrize(
    ("lines", "what", "frame"),
    [
        (RUST_OLD, "called `Option::unwrap()` on a `None` value", "src/main.rs:12:9"),
        (GO, "runtime error: index out of range [5] with length 3", "/src/train/main.go:9"),
        (CPP, "no more shards", ""),
        (JAVA, "java.lang.NullPointerException: model is null", "Train.java:12"),
        (("train: train.c:7: main: Assertion `x > 0' failed.",), "train.c:7: main: Assertion `x > 0' failed.", ""),
        (JAVASCRIPT, "an uncaught exception: Error: no gpu", "/w/m.js:1:7"),
        (("cannot open data at m.pl line 1.",), "an error: cannot open data", "m.pl line 1"),
        (("fatal error: all goroutines are asleep - deadlock!",), "all goroutines are asleep", ""),
    ],
)
def test_a_panic_is_quoted_with_its_place(lines: tuple[str, ...], what: str, frame: str) -> None:
    case = make_snapshot(make_job_facts("Failed", failed_condition()), failed_replica(0, 2, "step 1", *lines))
    report = diagnose(case)
    assert causes(report) == [("panic", ("worker-0",))]
    assert what in report.cause
    assert any(frame in step for step in report.next if step.startswith("look there")) == bool(frame)


# Exceptions of Python

TRACEBACK = "Traceback (most recent call last):"
GROUP = (
    "  + Exception Group Traceback (most recent call last):",
    '  |   File "/w/train.py", line 1, in <module>',
    "  | ExceptionGroup: several (2 sub-exceptions)",
    "  +-+---------------- 1 ----------------",
    "    | ValueError: a",
    "    +------------------------------------",
)
LIBRARY = (
    TRACEBACK,
    '  File "/w/train.py", line 7, in <module>',
    '  File "/usr/lib/python3.11/json/decoder.py", line 353, in raw_decode',
    "json.decoder.JSONDecodeError: Expecting value",
)


@pytest.mark.parametrize(
    ("lines", "error", "place"),
    [
        (GROUP, "ExceptionGroup: several (2 sub-exceptions)", 'File "/w/train.py", line 1'),
        (
            (TRACEBACK, '  File "/w/a.py", line 2, in <module>', "Boom: no luck"),
            "Boom: no luck",
            'File "/w/a.py", line 2',
        ),
        (LIBRARY, "json.decoder.JSONDecodeError: Expecting value", 'File "/w/train.py", line 7'),
    ],
)
def test_an_exception_is_named_with_the_line_of_the_users_program(
    lines: tuple[str, ...], error: str, place: str
) -> None:
    case = make_snapshot(make_job_facts("Failed", failed_condition()), failed_replica(0, 1, "step 1", *lines))
    report = diagnose(case)
    assert causes(report) == [("python-exception", ("worker-0",))]
    assert report.cause.endswith(f"stopped with {error}")
    assert report.next[0].startswith(f"look there: {place}")


def test_the_rank_that_torch_writes_before_its_lines_is_not_part_of_the_place() -> None:
    lines = (TRACEBACK, '  File "/w/train.py", line 4, in <module>', "ValueError: loss is nan")
    failed = failed_replica(0, 1, *(f"[rank0]: {line}" for line in lines))
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), failed))
    assert report.cause.endswith("stopped with ValueError: loss is nan")
    assert report.next[0] == 'look there: File "/w/train.py", line 4, in <module>'


def test_an_exception_that_says_only_that_the_others_did_not_come_is_a_rendezvous() -> None:
    lines = (
        TRACEBACK,
        '  File "/w/train.py", line 4',
        "torch.distributed.DistStoreError: wait timeout after 5000ms, keys: /0",
    )
    case = make_snapshot(
        make_job_facts("Failed", failed_condition()), failed_replica(0, 1, *lines), make_replica_facts(1)
    )
    assert causes(diagnose(case)) == [("rendezvous-timeout", ("worker-0",))]


OF_SERVICE = (TRACEBACK, '  File "/usr/lib/python3.11/urllib/request.py", line 1351, in do_open')
OF_CHILD = (TRACEBACK, '  File "/w/train.py", line 4, in encode', "    encoder.stdin.write(frame)")
OF_MEMBER = (
    "  + Exception Group Traceback (most recent call last):",
    f"    | {TRACEBACK}:",
    '    |   File "/w/t.py", line 4',
)


@pytest.mark.parametrize(
    ("lines", "rule", "words"),
    [
        (
            (*OF_SERVICE, "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"),
            "service-unavailable",
            "needs a service that does not answer now",
        ),
        ((*OF_CHILD, "BrokenPipeError: [Errno 32] Broken pipe"), "python-exception", "BrokenPipeError"),
        ((*OF_MEMBER, "    | ValueError: odd", "    +----"), "python-exception", "stopped with ValueError: odd"),
    ],
)
def test_an_error_about_something_else_than_peers_has_its_own_reason(
    lines: tuple[str, ...], rule: str, words: str
) -> None:
    job = make_job_facts("Failed", failed_condition())
    report = diagnose(make_snapshot(job, failed_replica(0, 1, *lines), make_replica_facts(1)))
    assert causes(report) == [(rule, ("worker-0",))]
    assert words in report.cause


# Scripts, which have no file


def of_script(replica: ReplicaFacts) -> ReplicaFacts:
    """The replica of a job that `gangline run` made from a command."""
    container = msgspec.structs.replace(replica.pod.spec.containers[0], image="local")
    spec = msgspec.structs.replace(replica.pod.spec, containers=(container,))
    return msgspec.structs.replace(replica, pod=msgspec.structs.replace(replica.pod, spec=spec))


def of_run(replica: ReplicaFacts, flags: str = "") -> Diagnosis:
    command = f"cd /w && gangline run --nproc 2{flags} -- python train.py"
    job = make_job_facts("Failed", failed_condition(), run_ended_at=minutes_ago(0), run_command=command)
    return diagnose(make_snapshot(job, of_script(replica)))


def test_a_script_without_memory_is_run_with_a_larger_limit() -> None:
    failed = failed_replica(0, 137, reason="OOMKilled", limits={"memory": "128Mi"})
    report = of_run(failed, " --limit memory=128Mi")
    expected = "cd /w && gangline run --nproc 2 --limit memory=192Mi -- python train.py"
    assert f"raise its limit, or lower the batch size: {expected}" in report.next


def test_a_file_that_a_script_misses_belongs_into_its_folder() -> None:
    report = of_run(failed_replica(0, 1, "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'"))
    assert report.next[0] == "the command runs in /w: create the file, or correct the path"


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("exec: ./run.sh: Permission denied", "make it executable: chmod +x ./run.sh"),
        ('exec: "trainer": executable file not found in $PATH', "is it installed? which trainer"),
    ],
)
def test_a_program_of_a_script_that_cannot_be_started_is_looked_for(message: str, step: str) -> None:
    assert of_run(failed_replica(0, 128, reason="StartError", message=message)).next[0] == step


@pytest.mark.parametrize(
    ("failed", "program", "copied"),
    [
        (failed_unpacking(2, "tar: invalid option -- 'z'"), "gzip", True),
        (failed_unpacking(1, "tar: can't execute 'gzip': No such file or directory"), "gzip", True),
        (
            failed_unpacking(128, reason="StartError", message='exec: "tar": executable file not found in $PATH'),
            "tar",
            True,
        ),
        (
            failed_unpacking(128, reason="StartError", message='exec: "cp": executable file not found in $PATH'),
            "cp",
            False,
        ),
    ],
)
def test_the_program_that_unpacks_a_folder_is_named(failed: ReplicaFacts, program: str, copied: bool) -> None:
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), failed))
    assert [cause.rule for cause in report.causes] == ["unpacker-missing"]
    assert f"has no {program}, which its folder is unpacked with" in report.cause
    assert any("at most 100 files" in step for step in report.next) is copied


def test_another_failure_of_unpacking_has_another_cause() -> None:
    full = failed_unpacking(2, "tar: model.bin: Cannot write: No space left on device")
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), full))
    assert [cause.rule for cause in report.causes] == ["disk-full"]


def test_the_container_that_unpacks_is_the_one_that_a_run_adds() -> None:
    assert not_started.UNPACK_CONTAINER == UNPACK_CONTAINER


def test_a_script_is_never_told_to_change_a_spec() -> None:
    for line in ("PermissionError: [Errno 13] Permission denied: '/x'", "prog: error: argument --lr: invalid"):
        assert not any("spec." in step for step in of_run(failed_replica(0, 1, line)).next)


def test_an_empty_log_is_not_to_be_looked_at() -> None:
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), failed_replica(0, 134)))
    assert "its log is empty" in report.evidence
    assert not any("gangline logs" in step for step in report.next)


# What is left of deleted pods


def test_advice_about_a_pod_that_is_gone_does_not_name_its_log() -> None:
    failure = Failure(replica="worker-0", pod="bert-worker-0", exit_code=4, time=minutes_ago(1), log=("bad data",))
    condition = failed_condition("PyTorchJobFailed", "Job bert has failed because it has reached the backoff limit")
    report = diagnose(make_snapshot(make_job_facts("Failed", condition, first_failure=failure, backoff_limit=1)))
    assert any("bad data" in line for line in report.evidence)
    assert not any("gangline logs" in step for step in report.next)
    assert any("restartPolicy: Never, and spec.runPolicy.cleanPodPolicy: None" in step for step in report.next)


def test_a_log_of_which_nothing_was_kept_is_not_called_empty() -> None:
    failure = Failure(replica="worker-0", pod="bert-worker-0", exit_code=4, time=minutes_ago(1))
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition(), first_failure=failure)))
    assert "no line of its log was kept" in report.evidence
    assert "its log is empty" not in report.evidence


# What an image has, and a ConfigMap lacks


def image_only(message: str, **job: Any) -> Diagnosis:
    failed = failed_replica(0, 128, reason="StartError", message=message)
    return diagnose(make_snapshot(make_job_facts("Failed", failed_condition(), **job), failed))


def test_the_mapping_that_the_node_names_is_added_to_the_command_of_the_run() -> None:
    message = (
        'image "kubeflow/mnist:1": /opt/mnist.py exists only in the image (pods run as processes of this machine); '
        "add --image-map /opt=.; or run the image with --runtime podman or docker; see docs/node.md, Images"
    )
    report = image_only(message, run_command="cd /w && gangline run job.yaml", run_ended_at=minutes_ago(0))
    assert "cd /w && gangline run job.yaml --image-map /opt=." in report.next[0]
    report = image_only(message, run_command="cd /w && gangline run --nproc 2 -- python x", run_ended_at=minutes_ago(0))
    assert "gangline run --nproc 2 --image-map /opt=. -- python x" in report.next[0]


def test_what_must_be_done_before_the_mapping_comes_first_and_engines_that_do_not_run_are_not_advised() -> None:
    message = (
        'image "kubeflow/mnist:1": the pod names no command, and the image\'s own is not known; put your script, such as '
        "train.py, into /w and add --image-map 'kubeflow/mnist=python train.py'; or run the image with podman or docker "
        "(docker: Cannot connect to the Docker daemon); see docs/node.md, Images"
    )
    report = image_only(message, run_command="cd /w && gangline run job.yaml", run_ended_at=minutes_ago(0))
    assert report.next[1] == "put your script, such as train.py, into /w"
    assert report.next[2].endswith("gangline run job.yaml --image-map 'kubeflow/mnist=python train.py'")
    assert not any("podman" in step for step in report.next)


def test_without_a_mapping_in_the_message_the_entry_to_write_is_shown() -> None:
    message = 'image "kubeflow/mnist:1": /opt/mnist.py exists only in the image; map it in the images file'
    report = image_only(message)
    assert report.next[0].endswith("kubeflow/mnist:1: {paths: {/opt: .}}")
    assert report.next[1].endswith(": gangline down && gangline up --detach --images images.yaml")


def test_a_missing_item_of_a_volume_names_its_config_map() -> None:
    message = 'MountVolume.SetUp failed for volume "cfg" : references non-existent config key: train.yaml'
    volumes = (VolumeFact("cfg", "configMap", object_name="settings"), VolumeFact("b", "configMap", object_name="x"))
    pending = make_replica_facts(
        0,
        "Pending",
        waiting_state("ContainerCreating"),
        age=1,
        volumes=volumes,
        events=(EventFact("FailedMount", message, warning=True, time=minutes_ago(1)),),
    )
    report = diagnose(make_snapshot(make_job_facts("Created", desired_replicas={"Worker": 1}), pending))
    assert report.cause == "worker-0 needs key train.yaml of ConfigMap settings, which is not in it."
    assert "see which keys it has: kubectl get configmap settings -n team-a -o yaml" in report.next


def test_a_missing_module_of_a_script_is_installed_into_its_python() -> None:
    failed = failed_replica(0, 1, "Traceback (most recent call last):", "ModuleNotFoundError: No module named 'cv2'")
    container = msgspec.structs.replace(failed.pod.spec.containers[0], image="local")
    pod = msgspec.structs.replace(failed.pod, spec=msgspec.structs.replace(failed.pod.spec, containers=(container,)))
    failed = msgspec.structs.replace(failed, pod=pod, commands={"pytorch": ("/venv/bin/python", "train.py")})
    report = diagnose(make_snapshot(make_job_facts("Failed", failed_condition()), failed))
    assert report.next[0] == "install it: /venv/bin/python -m pip install opencv-python"


# Ranks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("worker-1 failed", "worker-1 (rank 2) failed"),
        ("a peer (worker-0) left", "a peer (worker-0, rank 1) left"),
        ("pod bert-worker-1 and spec.worker-1", "pod bert-worker-1 and spec.worker-1"),
        ("worker-1 (rank 2) failed", "worker-1 (rank 2) failed"),
        ("node-1 and worker-9", "node-1 and worker-9"),
    ],
)
def test_ranks_are_shown_beside_replica_names(text: str, expected: str) -> None:
    assert with_ranks(text, make_job_facts(desired_replicas=LED)) == expected


def test_ranks_that_are_not_fixed_are_not_shown() -> None:
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, ranks_per_replica=None)) == "worker-1"
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, kind="TFJob")) == "worker-1"


def test_several_processes_of_a_replica_have_several_ranks() -> None:
    assert with_ranks("worker-1", make_job_facts(desired_replicas=LED, ranks_per_replica=4)) == "worker-1 (ranks 8-11)"


def test_a_job_of_one_replica_needs_no_ranks() -> None:
    case = make_snapshot(
        make_job_facts(desired_replicas={"Worker": 1}),
        make_replica_facts(0, state=waiting_state("CrashLoopBackOff"), last=terminated_state(3), restarts=3),
    )
    assert diagnose(case).cause.startswith("worker-0 ended")


def test_a_stalled_job_that_uses_the_cpu_is_explained_by_its_operator() -> None:
    """Its silence says nothing: it could compute."""
    message = "no progress for 96 s: worker-0 (rank 0) waits in all_reduce (train.py:88); worker-1 (rank 1) reads data"
    condition = Condition(type="Stalled", status="True", reason="RankStands", message=message)
    case = silent_team(cpu=BUSY)
    case = msgspec.structs.replace(
        case, job=msgspec.structs.replace(case.job, state="Stalled", conditions=(condition,))
    )
    report = diagnose(case)
    assert [rule for rule, _ in causes(report)] == ["stalled"]
    assert "still: no progress for 96 s." in report.cause
    assert report.evidence[0].startswith("worker-0 (rank 0) waits in all_reduce")
    assert report.next[0] == "see where every rank stands: gangline stacks bert -n team-a"
    # Where it is over, or the idle team speaks for itself, the rule is silent.
    over = msgspec.structs.replace(condition, status="False")
    ended = msgspec.structs.replace(case, job=msgspec.structs.replace(case.job, state="Running", conditions=(over,)))
    assert diagnose(ended).healthy
    idle = silent_team(cpu=IDLE)
    idle = msgspec.structs.replace(idle, job=msgspec.structs.replace(idle.job, conditions=(condition,)))
    assert [rule for rule, _ in causes(diagnose(idle))] == ["hung"]
