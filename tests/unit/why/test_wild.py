"""Whatever servers say, there is an answer, whole and always the same."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.cli.jobs.why import as_json, screen
from gangline.why.diagnose import diagnose
from gangline.why.model.case import Case, Claim, Gang, Operator, Replica, Volume
from gangline.why.model.report import Report
from support.cases.why import (
    BACK_OFF,
    FORBIDDEN,
    NCCL,
    RESET,
    ago,
    case,
    condition,
    ended,
    failed,
    job,
    node,
    replica,
    running,
    waiting,
    warning,
)

LINES = (
    RESET,
    NCCL,
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
    BACK_OFF,
    'configmap "c" not found',
    "couldn't find key k in Secret ml/s",
    'persistentvolumeclaim "p" not found',
    "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    "0/0 nodes are available: no nodes.",
    'image "i": /x exists only in the image; map it',
    'Usage of EmptyDir volume "v" exceeds the limit "1Gi". ',
    f"{FORBIDDEN}exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1",
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
    st.builds(running, minutes),
    st.builds(lambda reason, text: waiting(reason, text), st.sampled_from(WAITS), messages),
    st.builds(
        lambda code, at, reason, text: ended(code, at=at, reason=reason, message=text),
        st.sampled_from((0, 1, 3, 127, 134, 135, 137, 143, 255, 999)),
        minutes,
        reasons,
        messages,
    ),
)
conditions = st.lists(
    st.builds(
        condition,
        st.sampled_from(("PodScheduled", "Ready", "DisruptionTarget", "Blocked")),
        reasons,
        messages,
        st.sampled_from(("True", "False")),
    ),
    max_size=2,
).map(tuple)
events = st.lists(st.builds(warning, reasons, messages), max_size=3).map(tuple)


@st.composite
def replicas(draw: Any) -> Replica:
    return replica(
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
        leaving=draw(st.one_of(st.none(), minutes.map(ago))),
        age=draw(minutes),
        requests={"nvidia.com/gpu": "8"},
        volumes=(Volume("v", "persistentVolumeClaim", "p"),),
    )


@st.composite
def cases(draw: Any) -> Case:
    state = draw(
        st.sampled_from(
            ("Pending", "Created", "Running", "Restarting", "Suspended", "Failed", "Succeeded", "Blocked")
        )
    )
    told = draw(conditions)
    return case(
        job(
            state,
            *((failed(message=draw(messages)),) if state == "Failed" else ()),
            *told,
            noticed=draw(st.booleans()),
            problems=draw(st.sampled_from(((), ("spec.x: is {y}",)))),
            wanted={"Worker": draw(st.integers(0, 4))},
            policies={"Worker": draw(st.sampled_from(("Never", "ExitCode", "Always")))},
        ),
        *draw(st.lists(replicas(), max_size=4)),
        events=draw(events),
        nodes=draw(st.sampled_from((None, (), (node(),)))),
        taken=draw(st.sampled_from((None, {}))),
        claims=draw(
            st.sampled_from(({}, {"p": Claim("p", exists=False)}, {"p": Claim("p", phase="Pending")}))
        ),
        gang=draw(st.sampled_from((None, Gang("g", "Pending", 2, message="wait")))),
        operator=draw(st.sampled_from((Operator(), Operator(("a sign",))))),
        blind=draw(st.booleans()),
    )


@settings(max_examples=300, deadline=None)
@given(cases())
def test_every_case_has_a_whole_answer(found: Case) -> None:
    report = diagnose(found)
    assert report == diagnose(found)
    assert report.healthy == (not report.causes)
    if found.job.state == "Succeeded":
        assert report.healthy
    for cause in report.causes:
        assert cause.cause
        assert cause.next, cause.rule
        assert "{who}" not in cause.cause
    assert screen(report, width=80)
    assert msgspec.json.decode(as_json(report), type=Report) == report
