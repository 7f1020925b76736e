"""Faults provoked on the embedded node, for tests of `why`: the job, and when its fault can be diagnosed."""

import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON
from gangline.why.diagnosis.case import JobSnapshot

KINDS_BY_NAME = {kind.kind: kind for kind in TRAINING_KINDS}
PYTHON_PATH = sys.executable
OTHER_MANAGER = "kueue.x-k8s.io/multikueue"


class ProvokedFault(NamedTuple):
    """The job to create, when to diagnose it, and the expected rule, replicas and words of the answer."""

    body: JSON
    is_ready: Callable[[JobSnapshot], bool]
    rule: str
    replicas: tuple[str, ...] = ("worker-0",)
    expected_words: tuple[str, ...] = ()
    # Objects that must be there before.
    prerequisites: tuple[JSON, ...] = ()

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


def fault_job(
    name: str,
    *command: str,
    kind: str = "TFJob",
    restart: str = "Never",
    run: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
    **replicas: int,
) -> JSON:
    facts = KINDS_BY_NAME[kind]
    inner = {"name": facts.container, "image": "train:1", "command": list(command), **(container or {})}
    if not command:
        del inner["command"]
    template = {"spec": {"containers": [inner], **(pod or {})}}
    specs = {
        one: {"replicas": count, "restartPolicy": restart, "template": template}
        for one, count in (replicas or {"Worker": 1}).items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {facts.replicas: specs, "runPolicy": dict(run or {})},
    }


def python_command(code: str) -> tuple[str, ...]:
    # -S: no site packages, so that thirty of them start quickly.
    return (PYTHON_PATH, "-S", "-c", code)


# When to look


def has_failed(case: JobSnapshot) -> bool:
    return case.job.state == "Failed"


def in_state(wanted: str) -> Callable[[JobSnapshot], bool]:
    return lambda case: case.job.state == wanted


def waits_for_reason(reason: str) -> Callable[[JobSnapshot], bool]:
    """A container waits for that reason, or an event or a condition has it."""

    def until(case: JobSnapshot) -> bool:
        for one in case.replicas:
            told = [status.state.waiting.reason for status in one.container_statuses if status.state.waiting]
            told += [event.reason for event in one.events]
            told += [found.reason for found in one.pod.status.conditions]
            if reason in told:
                return True
        return False

    return until


def all_hold(*parts: Callable[[JobSnapshot], bool]) -> Callable[[JobSnapshot], bool]:
    """All of them hold. Statuses and events arrive independently, so a test may need both."""
    return lambda case: all(part(case) for part in parts)


def has_condition(kind: str) -> Callable[[JobSnapshot], bool]:
    return lambda case: case.job.true_condition(kind) is not None


@cache
def can_mount() -> bool:
    """Whether this machine lets a process create mounts of its own."""
    done = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return done.returncode == 0


def on_tmpfs(options: str, then: str) -> tuple[str, ...]:
    """A program on a small file system of its own at /mnt."""
    return ("unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o {options} none /mnt && exec {then}")


TEAM_PROGRAM = """
import os, select, socket, sys, time
port, rank = int(sys.argv[1]), os.environ["RANK"]
if rank == "0":
    server = socket.create_server(("127.0.0.1", port))
    peers = [server.accept()[0] for _ in range(2)]
    for peer in peers:
        peer.sendall(b"go")
    select.select(peers, [], [])
else:
    deadline = time.monotonic() + 30
    while True:
        try:
            peer = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    peer.recv(2)
    if rank == "2":
        print("loading the data", flush=True)
        os.kill(os.getpid(), 9)
    peer.recv(1)
raise ConnectionResetError("Connection closed by peer")
"""
"""Three ranks over real sockets. The last one is killed; the others lose their peer and end with code 1."""

PAIR_PROGRAM = """
import atexit, os, socket, sys, time
port, rank = int(os.environ["MASTER_PORT"]), os.environ["RANK"]
if rank == "0":
    peer = socket.create_server(("127.0.0.1", port)).accept()[0]
    peer.sendall(b"go")
    assert peer.recv(1), os.environ.get("COMPLAINT", "the ring has a hole")
deadline = time.monotonic() + 30
while True:
    try:
        peer = socket.create_connection(("127.0.0.1", port))
        break
    except OSError:
        assert time.monotonic() < deadline
        time.sleep(0.05)
peer.recv(2)
{fault}
"""
"""Two ranks over a real socket. Rank 0 complains in words of its own when rank 1, with the fault, has left."""
SLOW_END = """
def end_slowly():
    time.sleep(1)
    peer.close()
    time.sleep(2)
atexit.register(end_slowly)
raise KeyError("label")
"""
"""The error comes first, but the process ends last."""

ALLOCATING_PROGRAM = "import time\nkept = []\nwhile True:\n kept.append(bytearray(b'x') * 2**23)\n time.sleep(0.02)"
DISK_FILLING_PROGRAM = (
    "import os,time;open(os.environ['GANGLINE_VOLUME_SCRATCH']+'/x','wb').write(b'x'*500000);time.sleep(600)"
)


def provoked_faults(taken: socket.socket, team_port: int) -> list[ProvokedFault]:
    """Everything that goes wrong at the same time. `taken` is a port that this process has."""
    return [
        *_exhaustion_faults(),
        *_program_faults(taken.getsockname()[1]),
        *_exit_faults(),
        *_limit_faults(),
        *_placement_faults(),
        *_reference_faults(),
        *_command_faults(),
        *_job_faults(),
        _team_fault(team_port),
        *_pair_faults(),
        *(_file_system_faults() if can_mount() else ()),
    ]


def _exhaustion_faults() -> list[ProvokedFault]:
    """Memory or a volume is used up."""
    scratch = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "100Ki"}}]}
    return [
        ProvokedFault(
            fault_job(
                "oom",
                *python_command(ALLOCATING_PROGRAM),
                container={"resources": {"limits": {"memory": "64Mi"}}},
            ),
            has_failed,
            "oom-killed",
            expected_words=(
                "limit 64Mi",
                "try 96Mi",
                "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.limits.memory",
            ),
        ),
        ProvokedFault(
            fault_job(
                "volume",
                *python_command(DISK_FILLING_PROGRAM),
                pod=scratch,
                container={"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            ),
            has_failed,
            "volume-full",
            expected_words=("volume scratch", "100Ki", "try 150Ki"),
        ),
        ProvokedFault(
            fault_job(
                "memory",
                *python_command("import resource as r; r.setrlimit(r.RLIMIT_AS, (2**28, 2**28)); bytearray(2**30)"),
            ),
            has_failed,
            "memory-error",
        ),
    ]


def _program_faults(port: int) -> list[ProvokedFault]:
    """The program itself is wrong, and says so. `port` is taken."""
    bind = f"import socket; socket.socket().bind(('127.0.0.1', {port}))"
    return [
        ProvokedFault(
            fault_job("port", *python_command(bind)),
            has_failed,
            "port-in-use",
            expected_words=("Address already in use",),
        ),
        ProvokedFault(
            fault_job("module", *python_command("import nowhere_to_be_found")),
            has_failed,
            "module-missing",
            expected_words=("nowhere_to_be_found",),
        ),
        ProvokedFault(
            fault_job("syntax", *python_command("def train(:")),
            has_failed,
            "syntax-error",
            expected_words=("line 1",),
        ),
        ProvokedFault(
            fault_job("file", *python_command("open('/data/train.csv')")),
            has_failed,
            "file-missing",
            expected_words=("/data/train.csv",),
        ),
        ProvokedFault(
            fault_job("script", PYTHON_PATH, "-c", "open('lost.bin')"),
            has_failed,
            "file-missing",
            expected_words=("lost.bin",),
        ),
        ProvokedFault(
            fault_job("usage", *python_command("import argparse; argparse.ArgumentParser().parse_args(['--lr'])")),
            has_failed,
            "usage",
            expected_words=("--lr",),
        ),
        ProvokedFault(
            fault_job("rights", PYTHON_PATH, "-m", "gangline", "get", "secrets"),
            has_failed,
            "access-denied",
            expected_words=("cannot list secrets in namespace", "create rolebinding default-list-secrets"),
        ),
        ProvokedFault(
            fault_job("shape", PYTHON_PATH, "-c", "import numpy as n; n.dot(n.ones((2, 3)), n.ones((2, 3)))"),
            has_failed,
            "shape-mismatch",
            expected_words=("not aligned",),
        ),
        ProvokedFault(
            fault_job(
                "name",
                *python_command("import socket; socket.create_connection(('name-worker-9.invalid', 2222))"),
                Worker=2,
            ),
            lambda case: [one.pod.status.phase for one in case.replicas] == ["Failed"] * 2,
            "name-unknown",
            replicas=("worker-0", "worker-1"),
        ),
        ProvokedFault(
            fault_job("loops", *python_command("raise RuntimeError('no luck today')"), restart="OnFailure"),
            waits_for_reason("CrashLoopBackOff"),
            "python-exception",
            expected_words=("RuntimeError: no luck today", "restart"),
        ),
    ]


def _exit_faults() -> list[ProvokedFault]:
    """Only how a process ended tells what is wrong."""
    return [
        ProvokedFault(
            fault_job("exits", "sh", "-c", "exit 3"), has_failed, "exit-code", expected_words=("exit code 3",)
        ),
        ProvokedFault(
            fault_job("permanent", "sh", "-c", "exit 3", restart="ExitCode"),
            has_failed,
            "permanent-exit-code",
            expected_words=("restartPolicy",),
        ),
        ProvokedFault(
            fault_job("killed", "sh", "-c", "kill -9 $$$$"), has_failed, "killed", expected_words=("SIGKILL",)
        ),
        ProvokedFault(
            fault_job("aborts", *python_command("import os; os.abort()")),
            has_failed,
            "exit-code",
            expected_words=("SIGABRT",),
        ),
        ProvokedFault(
            fault_job("ends-again", "true", kind="PyTorchJob", restart="Always", Worker=1),
            waits_for_reason("CrashLoopBackOff"),
            "completes-again",
            expected_words=("restartPolicy: OnFailure",),
        ),
    ]


def _limit_faults() -> list[ProvokedFault]:
    """A limit of the job or a probe ends it."""
    probe = {"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}}
    unready = {"readinessProbe": {"exec": {"command": ["sh", "-c", "echo not yet; exit 1"]}, "periodSeconds": 1}}
    return [
        ProvokedFault(
            fault_job("deadline", "sleep", "600", run={"activeDeadlineSeconds": 1}),
            has_failed,
            "deadline",
            replicas=(),
            expected_words=("spec.runPolicy.activeDeadlineSeconds", "1 s"),
        ),
        ProvokedFault(
            fault_job("backoff", "sh", "-c", "kill -9 $$$$", restart="ExitCode", run={"backoffLimit": 1}),
            has_failed,
            "killed",
            expected_words=("SIGKILL", "backoff limit of 1"),
        ),
        ProvokedFault(
            fault_job("given-up", "sh", "-c", "echo bad data; exit 4", restart="OnFailure", run={"backoffLimit": 1}),
            has_failed,
            "exit-code",
            expected_words=("exit code 4", "backoff limit of 1", "worker-0│ bad data", "cleanPodPolicy: None"),
        ),
        ProvokedFault(
            fault_job("probe", "sleep", "600", restart="OnFailure", container=probe),
            all_hold(waits_for_reason("CrashLoopBackOff"), waits_for_reason("Unhealthy")),
            "probe-failed",
            expected_words=("livenessProbe",),
        ),
        ProvokedFault(
            fault_job("unready", "sleep", "600", container=unready),
            all_hold(in_state("Running"), waits_for_reason("Unhealthy")),
            "not-ready",
            expected_words=("readinessProbe", "Readiness probe failed: not yet"),
        ),
    ]


def _placement_faults() -> list[ProvokedFault]:
    """No node takes the pod."""
    return [
        ProvokedFault(
            fault_job("big", "true", container={"resources": {"requests": {"cpu": "500"}}}),
            waits_for_reason("Unschedulable"),
            "unschedulable-resources",
            expected_words=("500 cpu", "in all"),
        ),
        ProvokedFault(
            fault_job("choosy", "true", pod={"nodeSelector": {"zone": "moon"}}),
            waits_for_reason("Unschedulable"),
            "unschedulable-nodes",
            expected_words=("zone=moon",),
        ),
    ]


def _reference_faults() -> list[ProvokedFault]:
    """The pod names objects that are not there."""
    env = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "a"}}}]}
    key = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "some", "key": "lacking"}}}]}
    item = {"name": "other", "items": [{"key": "train.yaml", "path": "train.yaml"}]}
    items = {"volumes": [{"name": "c", "configMap": item}]}
    secret = {"volumes": [{"name": "s", "secret": {"secretName": "hidden"}}]}
    claim = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "dataset"}}]}
    return [
        ProvokedFault(
            fault_job("config", "true", container=env),
            waits_for_reason("CreateContainerConfigError"),
            "config-missing",
            expected_words=("ConfigMap nowhere",),
        ),
        ProvokedFault(
            fault_job("key", "true", container=key),
            waits_for_reason("CreateContainerConfigError"),
            "config-key-missing",
            expected_words=("lacking", "ConfigMap some"),
            prerequisites=(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "some"}, "data": {"b": "1"}},
            ),
        ),
        ProvokedFault(
            fault_job("item", "true", pod=items),
            waits_for_reason("FailedMount"),
            "config-key-missing",
            expected_words=("key train.yaml of ConfigMap other",),
            prerequisites=(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other"}, "data": {"b": "1"}},
            ),
        ),
        ProvokedFault(
            fault_job("secret", "true", pod=secret),
            waits_for_reason("FailedMount"),
            "config-missing",
            expected_words=("Secret hidden",),
        ),
        ProvokedFault(
            fault_job("claim", "true", pod=claim),
            waits_for_reason("FailedMount"),
            "claim-missing",
            expected_words=("dataset",),
        ),
    ]


def _command_faults() -> list[ProvokedFault]:
    """There is no program to start."""
    return [
        ProvokedFault(
            fault_job("image", "/opt/trainer/run"),
            has_failed,
            "image-unmapped",
            expected_words=("/opt/trainer/run", "images"),
        ),
        ProvokedFault(fault_job("silent"), has_failed, "no-command", expected_words=("no command",)),
        ProvokedFault(
            fault_job("command", "no-such-program-here"),
            has_failed,
            "command-not-found",
            expected_words=("no-such-program-here",),
        ),
    ]


def _job_faults() -> list[ProvokedFault]:
    """The job as a whole cannot go on."""
    return [
        ProvokedFault(
            fault_job("taken", "true"),
            has_condition("Blocked"),
            "name-taken",
            replicas=(),
            expected_words=("taken-worker-0",),
            prerequisites=(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "taken-worker-0"},
                    "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "x"}]},
                },
            ),
        ),
        ProvokedFault(
            fault_job("elsewhere", "true", run={"managedBy": OTHER_MANAGER}),
            lambda case: True,
            "managed-elsewhere",
            replicas=(),
            expected_words=(OTHER_MANAGER,),
        ),
    ]


def _team_fault(team_port: int) -> ProvokedFault:
    """One rank is killed, and the others fail because of it."""
    return ProvokedFault(
        fault_job("team", *python_command(TEAM_PROGRAM), str(team_port), kind="PyTorchJob", Master=1, Worker=2),
        lambda case: has_failed(case) and [one.pod.status.phase for one in case.replicas] == ["Failed"] * 3,
        "killed",
        replicas=("worker-1",),
        expected_words=(
            "SIGKILL",
            "consequences, not causes",
            "Connection closed by peer",
            "loading the data",
        ),
    )


def _pair_faults() -> list[ProvokedFault]:
    """One of two ranks is the cause, and the other one complains before, or in words that nobody knows."""
    sick = {"exec": {"command": ["sh", "-c", "[ $RANK = 0 ]"]}, "periodSeconds": 1, "failureThreshold": 2}

    def pair(name: str, fault: str, **container: Any) -> JSON:
        command = python_command(PAIR_PROGRAM.replace("{fault}", fault))
        return fault_job(name, *command, kind="PyTorchJob", container=container, Master=1, Worker=1)

    def both_failed(case: JobSnapshot) -> bool:
        return has_failed(case) and [one.pod.status.phase for one in case.replicas] == ["Failed"] * 2

    return [
        ProvokedFault(
            pair("slow-end", SLOW_END),
            both_failed,
            "python-exception",
            expected_words=(
                "worker-0 (rank 1) stopped with KeyError",
                "the ring has a hole",
                "a consequence, not a cause",
            ),
        ),
        ProvokedFault(
            pair("left", "sys.exit(0)", env=[{"name": "COMPLAINT", "value": "Connection closed by peer"}]),
            lambda case: {one.pod.status.phase for one in case.replicas} == {"Failed", "Succeeded"},
            "peer-left",
            replicas=("master-0",),
            expected_words=("worker-0 (rank 1) ended with exit code 0 while master-0 (rank 0) still needed it",),
        ),
        ProvokedFault(
            pair("sick", "time.sleep(600)", livenessProbe=sick),
            all_hold(both_failed, waits_for_reason("Unhealthy")),
            "probe-failed",
            expected_words=("livenessProbe", "Liveness probe failed", "the ring has a hole"),
        ),
    ]


def _file_system_faults() -> list[ProvokedFault]:
    """A file system is full or read-only."""
    return [
        ProvokedFault(
            fault_job("disk", *on_tmpfs("size=64k", "dd if=/dev/zero of=/mnt/model bs=1k count=100")),
            has_failed,
            "disk-full",
            expected_words=("No space left",),
        ),
        ProvokedFault(
            fault_job("fixed", *on_tmpfs("ro", "touch /mnt/model")),
            has_failed,
            "read-only",
            expected_words=("Read-only file system",),
        ),
    ]


def healthy_jobs() -> list[tuple[JSON, Callable[[JobSnapshot], bool], str]]:
    """Healthy jobs: the body, when to diagnose it, and the expected note."""
    once = "test -e $0/restarted || { touch $0/restarted; kill -9 $$$$; }; exec sleep 600"
    return [
        (fault_job("runs", "sh", "-c", "echo step 1; exec sleep 600", Worker=2, PS=1), _all_running, ""),
        (fault_job("done", "true"), in_state("Succeeded"), ""),
        (fault_job("paused", "true", run={"suspend": True}), in_state("Suspended"), "suspended"),
        (
            fault_job("recovered", "sh", "-c", once, "{folder}", restart="ExitCode"),
            lambda case: case.job.restarts == 1 and _all_running(case),
            "restarted once",
        ),
        (fault_job("sidecar", "sleep", "600", kind="XGBoostJob", Master=1, Worker=1), _all_running, ""),
    ]


def _all_running(case: JobSnapshot) -> bool:
    return (
        case.job.state == "Running"
        and [one.pod.status.phase for one in case.replicas] == ["Running"] * case.job.desired_total
    )


with closing(socket.socket()) as _unbound:
    _unbound.bind(("127.0.0.1", 0))
    FAULTS_BY_NAME = {fault.name: fault for fault in provoked_faults(_unbound, 1)}
    """By name, for tests that only read what must be found."""

RULES_TESTED_ELSEWHERE = {"spec-invalid", "no-operator", "hung", "disk-full", "read-only"}
"""Rules that tests/e2e/test_why.py provokes in other ways, or only where mounts are permitted."""
PROVOKED_RULES = {fault.rule for fault in FAULTS_BY_NAME.values()} | RULES_TESTED_ELSEWHERE
