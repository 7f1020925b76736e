"""Faults that are really provoked on the embedded node, for tests of `why`: a job each, and when it has come so far."""

import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

from gangline.api.kubeflow.kinds import KINDS
from gangline.api.meta import JSON
from gangline.why.model.case import Case

KIND = {kind.kind: kind for kind in KINDS}
PYTHON = sys.executable
ANOTHER = "kueue.x-k8s.io/multikueue"


class Fault(NamedTuple):
    """What to create, when to look, and what must be found: the rule, whom it names, words of the answer."""

    body: JSON
    until: Callable[[Case], bool]
    rule: str
    who: tuple[str, ...] = ("worker-0",)
    says: tuple[str, ...] = ()
    # Objects that must be there before.
    before: tuple[JSON, ...] = ()

    @property
    def name(self) -> str:
        name: str = self.body["metadata"]["name"]
        return name


def job(
    name: str,
    *command: str,
    kind: str = "TFJob",
    restart: str = "Never",
    run: Mapping[str, Any] | None = None,
    pod: Mapping[str, Any] | None = None,
    container: Mapping[str, Any] | None = None,
    **replicas: int,
) -> JSON:
    facts = KIND[kind]
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


def python(code: str) -> tuple[str, ...]:
    # -S: no site packages, so that thirty of them start quickly.
    return (PYTHON, "-S", "-c", code)


# When to look


def failed(case: Case) -> bool:
    return case.job.state == "Failed"


def state(wanted: str) -> Callable[[Case], bool]:
    return lambda case: case.job.state == wanted


def waits(reason: str) -> Callable[[Case], bool]:
    """A container waits for that reason, an event tells it, or a condition does."""

    def until(case: Case) -> bool:
        for one in case.replicas:
            told = [status.state.waiting.reason for status in one.statuses if status.state.waiting]
            told += [event.reason for event in one.events]
            told += [found.reason for found in one.pod.status.conditions]
            if reason in told:
                return True
        return False

    return until


def both(*parts: Callable[[Case], bool]) -> Callable[[Case], bool]:
    """A status and an event come by two ways: the one says nothing about the other."""
    return lambda case: all(part(case) for part in parts)


def job_condition(kind: str) -> Callable[[Case], bool]:
    return lambda case: case.job.condition(kind) is not None


@cache
def private_mounts() -> bool:
    """Whether a process may have mounts of its own here."""
    done = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


def mounted(options: str, then: str) -> tuple[str, ...]:
    """A program on a small file system of its own at /mnt."""
    return ("unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o {options} none /mnt && exec {then}")


TEAM = """
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

ALLOCATES = "import time\nkept = []\nwhile True:\n kept.append(bytearray(b'x') * 2**23)\n time.sleep(0.02)"
FILLS = (
    "import os,time;open(os.environ['GANGLINE_VOLUME_SCRATCH']+'/x','wb').write(b'x'*500000);time.sleep(600)"
)


def faults(taken: socket.socket, team_port: int) -> list[Fault]:
    """Everything that goes wrong at the same time. `taken` is a port that this process has."""
    port = taken.getsockname()[1]
    bind = f"import socket; socket.socket().bind(('127.0.0.1', {port}))"
    env = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "nowhere", "key": "a"}}}]}
    key = {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "some", "key": "lacking"}}}]}
    secret = {"volumes": [{"name": "s", "secret": {"secretName": "hidden"}}]}
    claim = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "dataset"}}]}
    scratch = {"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "100Ki"}}]}
    probe = {"livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}}
    found = [
        Fault(
            job("oom", *python(ALLOCATES), container={"resources": {"limits": {"memory": "64Mi"}}}),
            failed,
            "oom-killed",
            says=(
                "limit 64Mi",
                "try 96Mi",
                "spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.limits.memory",
            ),
        ),
        Fault(job("port", *python(bind)), failed, "port-in-use", says=("Address already in use",)),
        Fault(
            job(
                "volume",
                *python(FILLS),
                pod=scratch,
                container={"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            ),
            failed,
            "volume-full",
            says=("volume scratch", "100Ki", "try 150Ki"),
        ),
        Fault(
            job("module", *python("import nowhere_to_be_found")),
            failed,
            "module-missing",
            says=("nowhere_to_be_found",),
        ),
        Fault(
            job("file", *python("open('/data/train.csv')")), failed, "file-missing", says=("/data/train.csv",)
        ),
        Fault(job("script", PYTHON, "-c", "open('lost.bin')"), failed, "file-missing", says=("lost.bin",)),
        Fault(job("exits", "sh", "-c", "exit 3"), failed, "exit-code", says=("exit code 3",)),
        Fault(
            job("permanent", "sh", "-c", "exit 3", restart="ExitCode"),
            failed,
            "permanent-exit-code",
            says=("restartPolicy",),
        ),
        Fault(job("killed", "sh", "-c", "kill -9 $$$$"), failed, "killed", says=("SIGKILL",)),
        Fault(job("aborts", *python("import os; os.abort()")), failed, "exit-code", says=("SIGABRT",)),
        Fault(
            job("loops", *python("raise RuntimeError('no luck today')"), restart="OnFailure"),
            waits("CrashLoopBackOff"),
            "python-exception",
            says=("RuntimeError: no luck today", "restart"),
        ),
        Fault(
            job("ends-again", "true", kind="PyTorchJob", restart="Always", Worker=1),
            waits("CrashLoopBackOff"),
            "completes-again",
            says=("restartPolicy: OnFailure",),
        ),
        Fault(
            job(
                "memory",
                *python("import resource as r; r.setrlimit(r.RLIMIT_AS, (2**28, 2**28)); bytearray(2**30)"),
            ),
            failed,
            "memory-error",
        ),
        Fault(
            job("usage", *python("import argparse; argparse.ArgumentParser().parse_args(['--lr'])")),
            failed,
            "usage",
            says=("--lr",),
        ),
        Fault(
            job("shape", PYTHON, "-c", "import numpy as n; n.dot(n.ones((2, 3)), n.ones((2, 3)))"),
            failed,
            "shape-mismatch",
            says=("not aligned",),
        ),
        Fault(
            job(
                "name",
                *python("import socket; socket.create_connection(('name-worker-9.invalid', 2222))"),
                Worker=2,
            ),
            lambda case: [one.pod.status.phase for one in case.replicas] == ["Failed"] * 2,
            "name-unknown",
            who=("worker-0", "worker-1"),
        ),
        Fault(
            job("big", "true", container={"resources": {"requests": {"cpu": "500"}}}),
            waits("Unschedulable"),
            "unschedulable-resources",
            says=("500 cpu", "in all"),
        ),
        Fault(
            job("choosy", "true", pod={"nodeSelector": {"zone": "moon"}}),
            waits("Unschedulable"),
            "unschedulable-nodes",
            says=("zone=moon",),
        ),
        Fault(
            job("config", "true", container=env),
            waits("CreateContainerConfigError"),
            "config-missing",
            says=("ConfigMap nowhere",),
        ),
        Fault(
            job("key", "true", container=key),
            waits("CreateContainerConfigError"),
            "config-key-missing",
            says=("lacking", "ConfigMap some"),
            before=(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "some"}, "data": {"b": "1"}},
            ),
        ),
        Fault(
            job("secret", "true", pod=secret), waits("FailedMount"), "config-missing", says=("Secret hidden",)
        ),
        Fault(job("claim", "true", pod=claim), waits("FailedMount"), "claim-missing", says=("dataset",)),
        Fault(
            job("image", "/opt/trainer/run"), failed, "image-unmapped", says=("/opt/trainer/run", "images")
        ),
        Fault(job("silent"), failed, "no-command", says=("no command",)),
        Fault(
            job("command", "no-such-program-here"),
            failed,
            "command-not-found",
            says=("no-such-program-here",),
        ),
        Fault(
            job("deadline", "sleep", "600", run={"activeDeadlineSeconds": 1}),
            failed,
            "deadline",
            who=(),
            says=("spec.runPolicy.activeDeadlineSeconds", "1 s"),
        ),
        Fault(
            job("backoff", "sh", "-c", "kill -9 $$$$", restart="ExitCode", run={"backoffLimit": 1}),
            failed,
            "killed",
            says=("SIGKILL", "backoff limit of 1"),
        ),
        Fault(
            job("given-up", "false", restart="OnFailure", run={"backoffLimit": 1}),
            failed,
            "exit-code",
            says=("exit code 1", "backoff limit of 1"),
        ),
        Fault(
            job("probe", "sleep", "600", restart="OnFailure", container=probe),
            both(waits("CrashLoopBackOff"), waits("Unhealthy")),
            "probe-failed",
            says=("livenessProbe",),
        ),
        Fault(
            job("taken", "true"),
            job_condition("Blocked"),
            "name-taken",
            who=(),
            says=("taken-worker-0",),
            before=(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "taken-worker-0"},
                    "spec": {"schedulerName": "nobody", "containers": [{"name": "c", "image": "x"}]},
                },
            ),
        ),
        Fault(
            job("elsewhere", "true", run={"managedBy": ANOTHER}),
            lambda case: True,
            "managed-elsewhere",
            who=(),
            says=(ANOTHER,),
        ),
        Fault(
            job("team", *python(TEAM), str(team_port), kind="PyTorchJob", Master=1, Worker=2),
            lambda case: failed(case) and [one.pod.status.phase for one in case.replicas] == ["Failed"] * 3,
            "killed",
            who=("worker-1",),
            says=("SIGKILL", "consequences, not causes", "Connection closed by peer", "loading the data"),
        ),
    ]
    if private_mounts():
        found += [
            Fault(
                job("disk", *mounted("size=64k", "dd if=/dev/zero of=/mnt/model bs=1k count=100")),
                failed,
                "disk-full",
                says=("No space left",),
            ),
            Fault(
                job("fixed", *mounted("ro", "touch /mnt/model")),
                failed,
                "read-only",
                says=("Read-only file system",),
            ),
        ]
    return found


def healthy() -> list[tuple[JSON, Callable[[Case], bool], str]]:
    """Jobs with nothing wrong: what to create, when to look, and what is noted."""
    once = "test -e $0/restarted || { touch $0/restarted; kill -9 $$$$; }; exec sleep 600"
    return [
        (job("runs", "sh", "-c", "echo step 1; exec sleep 600", Worker=2, PS=1), _all_up, ""),
        (job("done", "true"), state("Succeeded"), ""),
        (job("paused", "true", run={"suspend": True}), state("Suspended"), "suspended"),
        (
            job("recovered", "sh", "-c", once, "{folder}", restart="ExitCode"),
            lambda case: case.job.restarts == 1 and _all_up(case),
            "restarted once",
        ),
        (job("sidecar", "sleep", "600", kind="XGBoostJob", Master=1, Worker=1), _all_up, ""),
    ]


def _all_up(case: Case) -> bool:
    return (
        case.job.state == "Running"
        and [one.pod.status.phase for one in case.replicas] == ["Running"] * case.job.asked
    )


with closing(socket.socket()) as _unbound:
    _unbound.bind(("127.0.0.1", 0))
    FAULTS = {fault.name: fault for fault in faults(_unbound, 1)}
    """By name, for tests that only read what must be found."""

ELSEWHERE = {"spec-invalid", "no-operator", "hung", "disk-full", "read-only"}
"""Rules that tests/e2e/test_why.py provokes in other ways, or only where mounts are permitted."""
FAULTS_BY_RULE = {fault.rule for fault in FAULTS.values()} | ELSEWHERE
