"""The table of transitions in docs/reference/transitions.md: every row is played for every kind of job with the real engine."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gangline.api.meta import JSON
from gangline.jobs.plan.conditions import current_condition
from gangline.testing.happenings import AllStart, AllSucceed, Happening, Kubelets, Troubles, Users
from gangline.testing.world.invariants import Invariants
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.server import WorldWrite
from gangline.testing.world.world import World
from support.property.job_histories import FRAMEWORKS, SITES, job_manifest

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "transitions.md"
BEGIN, END = "<!-- transitions: tests/unit/jobs/test_transitions.py -->", "<!-- end of transitions -->"

TEAMS = {
    "TFJob": {"Worker": 2},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 1},
    "PaddleJob": {"Worker": 2},
    "JAXJob": {"Worker": 2},
}
LAST = 1
"""The index of the pod to which things happen: not the pod that decides whether the job runs or succeeds."""


class After(NamedTuple):
    """Time passes, with the reconciles that become due."""

    seconds: int

    async def happen(self, world: World) -> None:
        await world.pass_time(timedelta(seconds=self.seconds))


class Both(NamedTuple):
    """Several happenings before the next reconcile."""

    happenings: tuple[Any, ...]

    async def happen(self, world: World) -> None:
        for each in self.happenings:
            await each.happen(world)


class Gone(NamedTuple):
    """All pods that are being deleted are removed."""

    async def happen(self, world: World) -> None:
        Kubelet(world).finish()


class LeadersSucceed(NamedTuple):
    """All pods but the last succeed: enough where one pod decides."""

    async def happen(self, world: World) -> None:
        Kubelet(world).succeed(world.pods()[0])


class Row(NamedTuple):
    """A row of the table, and how to play it."""

    state: str
    event: str
    next: str
    condition: str
    reason: str
    done: str
    # The job's policies, what brings it into its state, and the event.
    policy: JSON = {}
    restart: str = "Never"
    way: Sequence[Any] = ()
    do: Any = Both(())
    spec: JSON = {}
    kinds: tuple[str, ...] = tuple(TEAMS)
    site: str = "cluster"
    # The event is the creation of the job.
    first: bool = False


CREATING: tuple[Any, ...] = ()
RUNNING = (AllStart(),)
SUSPENDED = (AllStart(), Users("suspend"), Gone())
DONE = (AllStart(), AllSucceed())
LED = ("TFJob", "PyTorchJob", "XGBoostJob", "MPIJob")
TOGETHER = {"restartScope": "Job"}


def fails(code: int) -> Happening:
    return Kubelets(f"fail {code}", LAST)


ROWS = (
    # Start
    Row("", "the job is seen", "Creating", "Created", "<K>Created", "makes all services and pods", first=True),
    Row("", "seen, `suspend: true`", "", "Suspended", "<K>Suspended", "nothing", {"suspend": True}, first=True),
    Row("", "seen, `managedBy` names another operator", "", "none", "", "nothing",
        {"managedBy": "kueue.x-k8s.io/multikueue"}, first=True),
    Row("", "seen, the spec cannot run", "Failed", "Failed", "<K>FailedValidation", "nothing",
        restart="Sometimes", first=True),
    Row("Creating", "the pods that count run", "Running", "Running", "<K>Running", "nothing", way=CREATING,
        do=AllStart()),
    # Rejections
    Row("", "the server forbids a pod (quota, pod security)", "Creating", "Blocked", "FailedCreate<what>",
        "tries again", do=Troubles(1, 403), first=True),
    Row("Creating", "Blocked, and now the server allows it", "Creating", "Created", "<K>Created", "makes what is missing",
        way=(Troubles(1, 403),), do=After(0), first=True),
    Row("", "the server finds an object invalid", "Failed", "Failed", "<K>Failed", "deletes what was made",
        do=Troubles(1, 422), first=True),
    Row("", "a stranger's pod has a member's name", "Creating", "Blocked", "ErrResourceExists", "tries again",
        do=Users("squat pod", LAST), first=True),
    # Failures, one replica at a time
    Row("Running", "a replica fails, `Never`", "Failed", "Failed", "<K>Failed", "nothing", way=RUNNING, do=fails(137)),
    Row("Running", "a replica ends with 1 to 127, `ExitCode`", "Failed", "Failed", "<K>Failed", "nothing",
        restart="ExitCode", way=RUNNING, do=fails(1)),
    Row("Running", "a replica ends with 128 or more, `ExitCode`", "Running", "Restarting", "<K>Restarting",
        "deletes 1 pod, makes 1 pod", restart="ExitCode", way=RUNNING, do=fails(137)),
    Row("Running", "a replica is evicted, `ExitCode`", "Running", "Restarting", "<K>Restarting",
        "deletes 1 pod, makes 1 pod", restart="ExitCode", way=RUNNING, do=Kubelets("evict", LAST)),
    Row("Running", "a replica is evicted, `OnFailure`", "Running", "Restarting", "<K>Restarting",
        "deletes 1 pod, makes 1 pod", restart="OnFailure", way=RUNNING, do=Kubelets("evict", LAST)),
    Row("Running", "a replica is evicted, `Always`", "Running", "Restarting", "<K>Restarting",
        "deletes 1 pod, makes 1 pod", restart="Always", way=RUNNING, do=Kubelets("evict", LAST)),
    Row("Running", "a container fails, `OnFailure` or `Always`: its kubelet starts it again", "Running", "Running",
        "<K>Running", "nothing", restart="OnFailure", way=RUNNING, do=fails(1)),
    Row("Running", "a worker fails, `Never`, `enableDynamicWorker`", "Running", "Running", "<K>Running", "nothing",
        way=RUNNING, do=fails(1), spec={"enableDynamicWorker": True}, kinds=("TFJob",)),
    Row("Running", "a pod is deleted by somebody else", "Running", "Running", "<K>Running", "makes 1 pod", way=RUNNING,
        do=Both((Users("delete pod", LAST), Gone()))),
    Row("Running", "a service is deleted by somebody else", "Running", "Running", "<K>Running", "makes 1 service",
        way=RUNNING, do=Users("delete service", LAST), kinds=tuple(kind for kind in TEAMS if kind != "MPIJob")),
    # Failures that restart all replicas
    Row("Running", "a replica fails retryably, scope `Job`", "Creating", "Restarting", "<K>Restarting",
        "deletes all pods, makes all pods when they are gone", TOGETHER, "ExitCode", RUNNING, Both((fails(137),))),
    Row("Running", "a pod is lost, scope `Job`", "Creating", "Restarting", "<K>Restarting",
        "deletes all other pods, makes all pods when they are gone", TOGETHER, "OnFailure", RUNNING,
        Both((Users("delete pod", LAST), Gone()))),
    Row("Running", "a replica ends with 1 to 127, scope `Job`, `ExitCode`", "Running", "Running", "<K>Running",
        "waits 3 s for the report of an earlier failure", TOGETHER, "ExitCode", RUNNING, fails(1)),
    Row("Running", "nothing earlier was reported in that time", "Failed", "Failed", "<K>Failed", "nothing", TOGETHER,
        "ExitCode", (*RUNNING, fails(1)), After(4)),
    Row("Running", "the log of that replica blames a peer", "Running", "Running", "<K>Running",
        "waits 60 s for the report of an earlier failure", TOGETHER, "ExitCode", RUNNING, Kubelets("echo", LAST)),
    Row("Running", "nothing earlier was reported in that time either", "Creating", "Restarting", "<K>Restarting",
        "deletes all pods, makes all pods when they are gone", TOGETHER, "ExitCode",
        (*RUNNING, Kubelets("echo", LAST)), After(61)),
    Row("Creating", "a pod of the last round exists 30 s after its grace period", "Creating", "Blocked",
        "PodStillTerminating", "waits until it is gone", TOGETHER, "ExitCode", (*RUNNING, fails(137)), After(31)),
    Row("Creating", "Blocked, and now that pod is gone", "Creating", "Restarting", "<K>Restarting", "makes all pods", TOGETHER,
        "ExitCode", (*RUNNING, fails(137), After(31)), Gone()),
    Row("Running", "a pod's port is taken (one machine)", "Creating", "Restarting", "<K>Restarting",
        "deletes all pods and services, makes all when they are gone", {}, "Never", RUNNING, Kubelets("clash", LAST),
        site="one machine", kinds=tuple(kind for kind in TEAMS if kind != "MPIJob")),
    # Limits
    Row("Running", "a replica must be replaced, `backoffLimit` is used up", "CleanUp", "Failed", "<K>Failed",
        "deletes all pods and services", {"backoffLimit": 0}, "ExitCode", RUNNING, fails(137)),
    Row("Running", "kubelets alone have used up `backoffLimit`", "CleanUp", "Failed", "<K>Failed",
        "deletes all pods and services", {"backoffLimit": 1}, "OnFailure", RUNNING, fails(1)),
    Row("Running", "`activeDeadlineSeconds` are over", "CleanUp", "Failed", "<K>Failed",
        "deletes all pods and services", {"activeDeadlineSeconds": 100}, "Never", RUNNING, After(101)),
    # Success
    Row("Running", "all succeed", "Done", "Succeeded", "<K>Succeeded", "nothing", way=RUNNING, do=AllSucceed()),
    Row("Running", "the one that speaks for all succeeds", "Done", "Succeeded", "<K>Succeeded", "nothing", way=RUNNING,
        do=LeadersSucceed(), kinds=LED),
    Row("Running", "worker 0 succeeds, `successPolicy: AllWorkers`", "Running", "Running", "<K>Running", "nothing",
        way=RUNNING, do=LeadersSucceed(), spec={"successPolicy": "AllWorkers"}, kinds=("TFJob",)),
    Row("Running", "one succeeds and another fails for good", "Done", "Succeeded", "<K>Succeeded", "nothing",
        way=RUNNING, do=Both((LeadersSucceed(), fails(1))), kinds=LED),
    # Clean-up
    Row("Running", "success, `cleanPodPolicy: Running`", "CleanUp", "Succeeded", "<K>Succeeded",
        "deletes 1 pod, 1 service", {"cleanPodPolicy": "Running"}, way=RUNNING, do=LeadersSucceed(), kinds=LED),
    Row("Running", "success, `cleanPodPolicy: All`", "CleanUp", "Succeeded", "<K>Succeeded",
        "deletes all pods and services", {"cleanPodPolicy": "All"}, way=RUNNING, do=LeadersSucceed(), kinds=LED),
    Row("CleanUp", "the last pod is gone, after a failure", "Failed", "Failed", "<K>Failed", "nothing",
        {"activeDeadlineSeconds": 100}, way=(*RUNNING, After(101)), do=Gone()),
    Row("CleanUp", "the last pod is gone, after success", "Done", "Succeeded", "<K>Succeeded", "nothing", {"cleanPodPolicy": "All"},
        way=(*RUNNING, LeadersSucceed()), do=Gone(), kinds=LED),
    Row("Done", "`ttlSecondsAfterFinished` are over", "gone", "", "", "deletes the job",
        {"ttlSecondsAfterFinished": 60}, way=DONE, do=After(61)),
    Row("Done", "anything else", "Done", "Succeeded", "<K>Succeeded", "nothing", way=DONE,
        do=Both((Users("delete pod"), Users("suspend"), Gone(), After(9999)))),
    # Suspension, scale
    Row("Running", "`suspend: true`", "", "Suspended", "<K>Suspended", "deletes all pods and services", way=RUNNING,
        do=Users("suspend")),
    Row("", "Suspended, `suspend: false`", "Creating", "Created", "<K>Created", "makes all services and pods",
        way=SUSPENDED, do=Users("resume")),
    Row("", "Suspended, `suspend: false`, and pods of before still end", "Creating", "Created", "<K>Created",
        "makes all services, and all pods when they are gone", way=(AllStart(), Users("suspend")), do=Users("resume")),
    Row("Running", "`replicas` grow", "Running", "Running", "<K>Running", "makes 1 service, 1 pod", way=RUNNING,
        do=Users("scale", 2), kinds=("PaddleJob", "JAXJob", "TFJob")),
    Row("Running", "`replicas` shrink", "Running", "Running", "<K>Running", "deletes 1 pod, 1 service", way=RUNNING,
        do=Users("scale", 0), kinds=("PaddleJob", "JAXJob", "TFJob")),
    Row("Running", "the job is deleted", "gone", "", "", "all it owns goes with it", way=RUNNING,
        do=Users("delete job")),
)  # fmt: skip


class Played(NamedTuple):
    """The observed result of a row."""

    before: str
    # As written at some time after the event, or as it still is.
    condition: str
    reason: str
    after: str
    deeds: tuple[tuple[str, str, int], ...]


async def play(row: Row, kind: str) -> tuple[World, Played]:
    framework = FRAMEWORKS[kind]
    replicas = {each: {"replicas": count, "restartPolicy": row.restart} for each, count in TEAMS[kind].items()}
    told: list[tuple[str, str]] = []
    deeds: list[WorldWrite] = []
    rules = Invariants()

    def judge(world: World, write: WorldWrite) -> None:
        rules.judge(world, write)
        if write.verb == "status":
            told.append(said(world))
        elif write.resource in ("pods", "services", world.plural):
            deeds.append(write)

    world = World(framework, job_manifest(framework, replicas, row.policy, row.spec), SITES[row.site], judge)
    if not row.first:
        await world.settle()
    for happening in row.way:
        await happening.happen(world)
        await world.look() if row.first else await world.settle()
    before = phase(world)
    told.clear()
    deeds.clear()
    await row.do.happen(world)
    await world.settle()
    after = phase(world)
    # A restart is over when the job runs again, and a rejection is written when the server has answered.
    condition, reason = next((each for each in told if each[0] == row.condition), said(world))
    if "when they are gone" in row.done:
        await Gone().happen(world)
        await world.settle()
    return world, Played(before, condition, reason, after, counted(deeds))


def said(world: World) -> tuple[str, str]:
    if world.body is None:
        return "", ""
    status = world.job.status
    kind = current_condition(status)
    condition = next((each for each in status.conditions if each.type == kind), None)
    return (kind, condition.reason) if condition is not None else ("none", "")


def phase(world: World) -> str:
    return world.job.status.phase if world.body is not None else "gone"


def counted(deeds: Sequence[WorldWrite]) -> tuple[tuple[str, str, int], ...]:
    pairs = [(deed.verb, deed.resource) for deed in deeds]
    return tuple((verb, resource, pairs.count((verb, resource))) for verb, resource in dict.fromkeys(pairs))


# What the words of the last column mean for a job of two replicas: verb, resource, count.
MADE = (("create", "services", 2), ("create", "pods", 2))
ENDED = (("delete", "pods", 2), ("delete", "services", 2))
DEEDS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "nothing": (),
    "makes all services and pods": MADE,
    "deletes all pods and services": ENDED,
    "deletes 1 pod, makes 1 pod": (("delete", "pods", 1), ("create", "pods", 1)),
    "makes 1 pod": (("create", "pods", 1),),
    "makes 1 service": (("create", "services", 1),),
    "makes 1 service, 1 pod": (("create", "services", 1), ("create", "pods", 1)),
    "deletes 1 pod, 1 service": (("delete", "pods", 1), ("delete", "services", 1)),
    "deletes all pods and services, makes all when they are gone": (*ENDED, *MADE),
    "deletes all pods, makes all pods when they are gone": (("delete", "pods", 2), ("create", "pods", 2)),
    "deletes all other pods, makes all pods when they are gone": (
        ("delete", "pods", 1),
        ("create", "pods", 2),
    ),
    "makes all pods": (("create", "pods", 2),),
    "makes all services, and all pods when they are gone": MADE,
    "waits until it is gone": (),
    "waits 3 s for the report of an earlier failure": (),
    "waits 60 s for the report of an earlier failure": (),
}
CASES = [pytest.param(row, kind, id=f"{row.state or 'new'}-{row.event}-{kind}") for row in ROWS for kind in row.kinds]


@pytest.mark.parametrize(("row", "kind"), CASES)
async def test_every_row_of_the_table_is_so(row: Row, kind: str) -> None:
    world, played = await play(row, kind)
    reason = row.reason.replace("<K>", kind)
    assert played.before == row.state or row.first
    assert played.after == row.next
    assert played.condition == row.condition or row.next == "gone"
    if "<what>" in reason:
        assert played.reason.startswith("FailedCreate")
    elif kind == "MPIJob" and played.reason == "MPIJobMPIJobFailed":
        assert reason == "MPIJobFailed"
    elif row.next != "gone":
        assert played.reason == reason
    if row.done in DEEDS:
        wanted = DEEDS[row.done]
        if kind == "MPIJob":
            # This kind has no services.
            wanted = tuple(deed for deed in wanted if deed[1] != "services")
        assert sorted(played.deeds) == sorted(wanted)
    check_done(row, world, played)


def check_done(row: Row, world: World, played: Played) -> None:
    """The words that are more than a count."""
    match row.done:
        case "tries again":
            assert world.alarm is not None or not any(verb == "delete" for verb, _, _ in played.deeds)
        case "makes what is missing":
            assert len(world.pods()) == 2
        case "deletes what was made":
            assert not world.pods()
        case "deletes all pods, makes all pods when they are gone":
            assert world.job.status.ledger.round == 1
            assert world.job.status.restarts == 1
        case "deletes the job":
            assert world.body is None
        case "all it owns goes with it":
            assert not played.deeds


def table() -> str:
    """The rows as Markdown. `<K>` stands for the kind."""
    lines = ["| phase | event | next phase | newest condition | reason | the operator |", "|" + " --- |" * 6]
    for row in ROWS:
        cells = (
            code(row.state),
            row.event,
            code(row.next),
            row.condition,
            code(row.reason, empty=""),
            row.done,
        )
        lines.append(f"| {' | '.join(cells)} |".replace("|  ", "| ").replace("|  ", "| "))
    return "\n".join(lines)


def code(text: str, empty: str = '`""`') -> str:
    return f"`{text}`" if text and text != "gone" else text or empty


def test_the_table_in_the_docs_is_the_one_that_is_played() -> None:
    page = PAGE.read_text()
    written = page.partition(BEGIN)[2].partition(END)[0].strip()
    assert written == table(), f"write this between the marks:\n{table()}"
