"""Faults of a training job in a `World`, and a reader of causes that asks `why` about that world."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from gangline.api.core import Node
from gangline.api.kubeflow.training import JobKind, TrainingJob
from gangline.api.meta import JSON, ObjectMeta
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.plan.recovery.classes import CauseClass
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.jobs.site import Site
from gangline.testing.world.invariants import Invariants
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from gangline.why.diagnosis import decode
from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.diagnose import diagnose
from gangline.why.kinds import workload_kind

NODES = ("node-a", "node-b", "node-c")
TRACEBACK = ("Traceback (most recent call last):", '  File "/app/train.py", line 31, in <module>', "    main()")


class RecoveryFault(NamedTuple):
    """One fault of a replica: how its pod ends, what it writes, and which cause that is."""

    rule: str
    kind: CauseClass
    code: int | None = 1
    reason: str = "Error"
    log: tuple[str, ...] = ()
    # The status of the pod, for failures that the node reports.
    pod_status: Mapping[str, Any] = {}

    def strike(self, world: World, pod: JSON) -> None:
        """Let it happen to a running pod."""
        if self.code is not None:
            Kubelet(world).fail(pod, self.code, self.reason)
            world.logs[pod["metadata"]["uid"]] = self.log
        else:
            Kubelet(world).evict(pod)
        if self.pod_status:
            world.server.patch("pods", pod["metadata"]["name"], {"status": dict(self.pod_status)})


def _python(*error: str) -> tuple[str, ...]:
    return (*TRACEBACK, *error)


BUG, CONFIGURATION = CauseClass.BUG, CauseClass.CONFIGURATION
INFRASTRUCTURE, MEMORY = CauseClass.INFRASTRUCTURE, CauseClass.MEMORY
NETWORK, STORAGE = CauseClass.NETWORK, CauseClass.STORAGE

FAULTS: dict[str, RecoveryFault] = {
    "an exception": RecoveryFault("python-exception", BUG, log=_python("ValueError: learning rate is negative")),
    "a missing module": RecoveryFault(
        "module-missing", BUG, log=_python("ModuleNotFoundError: No module named 'apex'")
    ),
    "a failed import": RecoveryFault(
        "import-failed", BUG, log=_python("ImportError: cannot import name 'Trainer' from 'lib'")
    ),
    "a syntax error": RecoveryFault(
        "syntax-error", BUG, log=('  File "/app/train.py", line 3', "    def (", "SyntaxError: invalid syntax")
    ),
    "shapes that do not fit": RecoveryFault(
        "shape-mismatch",
        BUG,
        log=_python("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x10 and 20x5)"),
    ),
    "wrong arguments": RecoveryFault(
        "usage", BUG, 2, log=("usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --lrr 1")
    ),
    "a missing file": RecoveryFault(
        "file-missing", BUG, log=_python("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'")
    ),
    "a panic": RecoveryFault(
        "panic", BUG, 101, log=("thread 'main' panicked at src/main.rs:4:5:", "index out of bounds")
    ),
    "a silent exit code": RecoveryFault("exit-code", BUG, 3),
    "a crash": RecoveryFault("exit-code", BUG, 139),
    "no such command": RecoveryFault("command-not-found", CONFIGURATION, 127),
    "no permission": RecoveryFault(
        "permission", CONFIGURATION, log=_python("PermissionError: [Errno 13] Permission denied: '/models/out'")
    ),
    "too little GPU memory": RecoveryFault(
        "gpu-memory",
        CONFIGURATION,
        log=_python("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"),
    ),
    "too little shared memory": RecoveryFault("shared-memory", CONFIGURATION, 135),
    "a full volume": RecoveryFault(
        "volume-full",
        CONFIGURATION,
        None,
        pod_status={
            "reason": "Evicted",
            "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi".',
        },
    ),
    "an eviction": RecoveryFault(
        "evicted",
        INFRASTRUCTURE,
        None,
        pod_status={"reason": "Evicted", "message": "The node was low on resource: memory."},
    ),
    "a preemption": RecoveryFault(
        "disrupted",
        INFRASTRUCTURE,
        143,
        pod_status={
            "conditions": [
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "PreemptionByScheduler",
                    "message": "preempted by a pod of higher priority",
                }
            ]
        },
    ),
    "a shutdown of the node": RecoveryFault(
        "node-lost",
        INFRASTRUCTURE,
        None,
        pod_status={"reason": "Terminated", "message": "Pod was terminated in response to imminent node shutdown."},
    ),
    "a pod that the node rejects": RecoveryFault(
        "pod-rejected",
        INFRASTRUCTURE,
        None,
        pod_status={"reason": "UnexpectedAdmissionError", "message": "no healthy GPU device is left"},
    ),
    "a kill": RecoveryFault("killed", INFRASTRUCTURE, 137),
    "an unexplained SIGTERM": RecoveryFault("exit-code", INFRASTRUCTURE, 143),
    "no GPU": RecoveryFault("gpu-missing", INFRASTRUCTURE, log=_python("RuntimeError: No CUDA GPUs are available")),
    "a full disk": RecoveryFault(
        "disk-full", INFRASTRUCTURE, log=_python("OSError: [Errno 28] No space left on device")
    ),
    "a broken GPU": RecoveryFault(
        "gpu-fault", INFRASTRUCTURE, log=_python("RuntimeError: CUDA error: uncorrectable ECC error encountered")
    ),
    "a storage that is gone": RecoveryFault(
        "storage-fault", STORAGE, log=_python("OSError: [Errno 116] Stale file handle: '/data/part-7'")
    ),
    "a storage with errors": RecoveryFault(
        "storage-fault", STORAGE, log=_python("OSError: [Errno 5] Input/output error")
    ),
    "a busy service": RecoveryFault(
        "service-unavailable",
        NETWORK,
        log=_python("requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://hub/model"),
    ),
    "too much memory": RecoveryFault("oom-killed", MEMORY, 137, "OOMKilled"),
    "no memory left": RecoveryFault("memory-error", MEMORY, log=_python("MemoryError")),
    "no route": RecoveryFault("no-route", NETWORK, log=_python("OSError: [Errno 113] No route to host")),
    "an unknown name": RecoveryFault(
        "name-unknown", NETWORK, log=_python("socket.gaierror: [Errno -3] Temporary failure in name resolution")
    ),
    "a lost peer": RecoveryFault(
        "peer-lost", NETWORK, log=_python("RuntimeError: [gloo/pair.cc:534] Connection closed by peer [10.0.0.2]:41234")
    ),
}
"""By a name that people understand."""


class WorldCauses:
    """Diagnoses the job of a world by the rules of `why`."""

    def __init__(self) -> None:
        self.world: World | None = None
        # How often somebody asked.
        self.asked = 0

    async def cause(self, job: TrainingJob, kind: JobKind) -> FailureCause | None:
        assert self.world is not None
        self.asked += 1
        owner, body = workload_kind(kind.kind.lower()), self.world.body
        assert body is not None
        replicas = []
        for pod in self.world.pods():
            facts = decode.replica_facts(owner, job.metadata.name, pod)
            assert facts is not None
            lines = self.world.logs.get(pod["metadata"]["uid"], ())
            replicas.append(decode.with_logs(facts, {kind.container: [(None, line) for line in lines]}, {}))
        nodes = tuple(Node(metadata=ObjectMeta(name=name)) for name in self.world.nodes)
        job_facts = decode.job_facts(owner, body, self.world.framework)
        report = diagnose(JobSnapshot(job_facts, self.world.clock.now(), tuple(replicas), nodes=nodes))
        return FailureCause(report.causes[0].rule, report.causes[0].cause) if report.causes else None


def recovery_world(
    recovery: Any,
    *,
    workers: int = 2,
    restart: str = "Never",
    site: Site = Site(),  # noqa: B008 - frozen
    **policy: Any,
) -> World:
    """A world with a PyTorchJob of a master and workers, whose pods run."""
    framework = PyTorch()
    resources = {"limits": {"memory": "8Gi"}, "requests": {"memory": "8Gi"}}
    container = {"name": framework.facts.container, "image": "train:1", "resources": resources}
    replica = {"restartPolicy": restart, "template": {"spec": {"containers": [container]}}}
    run_policy = {**({"recovery": recovery} if recovery is not None else {}), **policy}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert", "namespace": "ml"},
        "spec": {
            "pytorchReplicaSpecs": {"Master": {**replica, "replicas": 1}, "Worker": {**replica, "replicas": workers}},
            "runPolicy": run_policy,
        },
    }
    causes = WorldCauses()
    world = World(framework, body, site, Invariants().judge, nodes=NODES, causes=causes)
    causes.world = world
    return world


async def start_pods(world: World) -> None:
    """Let the operator create what is missing, and start it."""
    await world.settle()
    for _ in range(3):
        Kubelet(world).finish()
        await world.settle()
    for pod in world.pods():
        Kubelet(world).start(pod)
    await world.settle()


async def strike(world: World, fault: RecoveryFault, name: str = "bert-worker-1") -> None:
    """Let a fault happen to a running pod, and the operator decide about it."""
    pod = world.server.find("pods", name)
    assert pod is not None
    fault.strike(world, pod)
    await world.settle()
    # The decision waits for an earlier failure to be reported, for a minute if a peer is blamed.
    await world.pass_time(timedelta(seconds=61))
    Kubelet(world).finish()
    await world.settle()
    # The first retry waits for half a minute.
    await world.pass_time(timedelta(seconds=31))
    await start_pods(world)


def status_of(world: World) -> Any:
    """The status of the world's job."""
    return msgspec.convert((world.body or {}).get("status") or {}, type(world.job.status))
