"""Whatever servers say, there is an answer, whole and always the same."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.cli.jobs.why import report_json, report_text
from gangline.why.diagnosis.case import (
    ClaimFact,
    JobSnapshot,
    OperatorFacts,
    PodGroupFacts,
    ReplicaFacts,
    VolumeFact,
)
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.diagnosis.report import Diagnosis
from support.cases.why import (
    BACK_OFF_MESSAGE,
    FORBIDDEN_MESSAGE,
    NCCL_TIMEOUT_LINE,
    PEER_CLOSED_LINE,
    failed_condition,
    make_condition,
    make_job_facts,
    make_node,
    make_replica_facts,
    make_snapshot,
    minutes_ago,
    running_state,
    terminated_state,
    waiting_state,
    warning_event,
)

LINES = (
    PEER_CLOSED_LINE,
    NCCL_TIMEOUT_LINE,
    "Traceback (most recent call last):",
    "ValueError: x {y}",
    "OSError: [Errno 98] Address already in use",
    "No space left on device: '/data'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'a{b}'",
    "step 100 loss 0.1",
    "socket.gaierror: [Errno -2] Name or service not known",
    "",
)
MESSAGES = (
    "",
    BACK_OFF_MESSAGE,
    'configmap "c" not found',
    "couldn't find key k in Secret ml/s",
    'persistentvolumeclaim "p" not found',
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "0/0 nodes are available: no nodes.",
    'image "i": /x exists only in the image; map it',
    'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
    f"{FORBIDDEN_MESSAGE}exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
    "odd {braces} and %s",
)
REASONS = (
    "",
    "Error",
    "OOMKilled",
    "Evicted",
    "NodeLost",
    "PortClash",
    "StartError",
    "DeadlineExceeded",
    "OutOfcpu",
    "Unschedulable",
    "FailedMount",
    "FailedCreatePod",
    "ExitedWithCode",
)
WAITS = (
    "",
    "CrashLoopBackOff",
    "ErrImagePull",
    "ContainerCreating",
    "CreateContainerConfigError",
    "PodInitializing",
)
messages, reasons, lines = (
    st.sampled_from(MESSAGES),
    st.sampled_from(REASONS),
    st.lists(st.sampled_from(LINES), max_size=4),
)
minutes = st.sampled_from((0.0, 0.1, 1.0, 5.0, 30.0))
states = st.one_of(
    st.none(),
    st.builds(running_state, minutes),
    st.builds(lambda reason, text: waiting_state(reason, text), st.sampled_from(WAITS), messages),
    st.builds(
        lambda code, at, reason, text: terminated_state(code, at=at, reason=reason, message=text),
        st.sampled_from((0, 1, 3, 127, 134, 135, 137, 143, 255, 999)),
        minutes,
        reasons,
        messages,
    ),
)
conditions = st.lists(
    st.builds(
        make_condition,
        st.sampled_from(("PodScheduled", "Ready", "DisruptionTarget", "Blocked")),
        reasons,
        messages,
        st.sampled_from(("True", "False")),
    ),
    max_size=2,
).map(tuple)
events = st.lists(st.builds(warning_event, reasons, messages), max_size=3).map(tuple)


@st.composite
def replicas(draw: Any) -> ReplicaFacts:
    return make_replica_facts(
        draw(st.integers(0, 3)),
        draw(st.sampled_from(("Pending", "Running", "Failed", "Succeeded", "Unknown", ""))),
        draw(states),
        last=draw(states),
        restarts=draw(st.integers(0, 5)),
        log=draw(lines),
        node=draw(st.sampled_from(("", "node-1", "gone"))),
        reason=draw(reasons),
        message=draw(messages),
        conditions=draw(conditions),
        events=draw(events),
        leaving=draw(st.one_of(st.none(), minutes.map(minutes_ago))),
        age=draw(minutes),
        requests={"nvidia.com/gpu": "8"},
        volumes=(VolumeFact("v", "persistentVolumeClaim", "p"),),
    )


@st.composite
def cases(draw: Any) -> JobSnapshot:
    state = draw(
        st.sampled_from(("Pending", "Created", "Running", "Restarting", "Suspended", "Failed", "Succeeded", "Blocked"))
    )
    told = draw(conditions)
    return make_snapshot(
        make_job_facts(
            state,
            *((failed_condition(message=draw(messages)),) if state == "Failed" else ()),
            *told,
            has_status=draw(st.booleans()),
            problems=draw(st.sampled_from(((), ("spec.x: is {y}",)))),
            desired_replicas={"Worker": draw(st.integers(0, 4))},
            restart_policies={"Worker": draw(st.sampled_from(("Never", "ExitCode", "Always")))},
        ),
        *draw(st.lists(replicas(), max_size=4)),
        events=draw(events),
        nodes=draw(st.sampled_from((None, (), (make_node(),)))),
        allocated_by_node=draw(st.sampled_from((None, {}))),
        claims=draw(st.sampled_from(({}, {"p": ClaimFact("p", exists=False)}, {"p": ClaimFact("p", phase="Pending")}))),
        pod_group=draw(st.sampled_from((None, PodGroupFacts("g", "Pending", 2, message="wait")))),
        operator=draw(st.sampled_from((OperatorFacts(), OperatorFacts(("a sign",))))),
        pods_unreadable=draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_case_has_a_whole_answer(found: JobSnapshot) -> None:
    report = diagnose(found)
    assert report == diagnose(found)
    assert report.healthy == (not report.causes)
    if found.job.state == "Succeeded":
        assert report.healthy
    for cause in report.causes:
        assert cause.cause
        assert cause.next, cause.rule
        assert "{who}" not in cause.cause
    assert report_text(report, width=80)
    assert msgspec.json.decode(report_json(report), type=Diagnosis) == report
