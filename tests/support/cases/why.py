"""Cases of `why` that a machine alone cannot have: as clusters report them, word for word."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    SchedulingGate,
)
from gangline.api.meta import Condition, ObjectMeta
from gangline.api.quantity import parse_resources
from gangline.why.model.case import Case, Claim, Gang, Job, Operator, Replica, Told, Volume

NOW = datetime(2026, 1, 2, 15, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
TEMPLATE = "spec.pytorchReplicaSpecs.Worker.template.spec"


def ago(minutes: float) -> datetime:
    return NOW - minutes * MINUTE


def job(state: str = "Running", *conditions: Condition, **more: Any) -> Job:
    """A PyTorchJob that the Kubeflow operator runs, one hour old: its status has no firstFailure."""
    facts: dict[str, Any] = {
        "kind": "PyTorchJob",
        "namespace": "team-a",
        "name": "bert",
        "uid": "u",
        "created": ago(60),
        "wanted": {"Worker": 2},
        "policies": {"Worker": "OnFailure"},
        "templates": {"Worker": TEMPLATE},
        "limits_field": "spec.runPolicy",
        "suspend_field": "spec.runPolicy.suspend",
        "container": "pytorch",
    }
    return Job(state=state, conditions=conditions, **{**facts, **more})


def condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=ago(1))


def failed(
    reason: str = "PyTorchJobFailed",
    message: str = "PyTorchJob bert is failed because 1 Worker replica(s) failed.",
) -> Condition:
    return condition("Failed", reason, message)


def ended(code: int, *, at: float = 2, reason: str = "Error", message: str = "") -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=code, reason=reason, message=message, finished_at=ago(at), started_at=ago(at + 5)
        )
    )


def running(since: float = 30) -> ContainerState:
    return ContainerState(running=ContainerStateRunning(started_at=ago(since)))


def waiting(reason: str, message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def replica(
    index: int = 0,
    phase: str = "Running",
    state: ContainerState | None = None,
    *,
    last: ContainerState | None = None,
    restarts: int = 0,
    log: Iterable[str] = (),
    node: str = "node-1",
    reason: str = "",
    message: str = "",
    conditions: tuple[Condition, ...] = (),
    events: tuple[Told, ...] = (),
    leaving: datetime | None = None,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    init: tuple[ContainerStatus, ...] = (),
    age: float = 30,
    spec: Mapping[str, Any] | None = None,
    **more: Any,
) -> Replica:
    """A worker; by default it runs."""
    states = ContainerStatus(
        name="pytorch", state=state or running(), last_state=last or ContainerState(), restart_count=restarts
    )
    container = Container(
        name="pytorch",
        image="example.org/bert:1",
        resources=ResourceRequirements(requests=dict(requests or {}), limits=dict(limits or {})),
    )
    name = f"bert-worker-{index}"
    pod = Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="team-a",
            uid=f"u-{index}",
            creation_timestamp=ago(age),
            deletion_timestamp=leaving,
        ),
        spec=PodSpec(node_name=node, containers=(container,), **(spec or {})),
        status=PodStatus(
            phase=phase,
            reason=reason,
            message=message,
            conditions=conditions,
            pod_ip=f"10.0.0.{index + 1}",
            start_time=ago(age),
            container_statuses=() if state is None and phase in ("Pending", "Failed") else (states,),
            init_container_statuses=init,
        ),
    )
    logs = {"pytorch": tuple(log)} if log else {}
    return Replica(f"worker-{index}", "Worker", pod, template=TEMPLATE, logs=logs, events=events, **more)


def with_sidecar(one: Replica, state: ContainerState) -> Replica:
    """The same, with a second container."""
    spec, status = one.pod.spec, one.pod.status
    both = (*status.container_statuses, ContainerStatus(name="proxy", state=state))
    pod = msgspec.structs.replace(
        one.pod,
        spec=msgspec.structs.replace(spec, containers=(*spec.containers, Container(name="proxy"))),
        status=msgspec.structs.replace(status, container_statuses=both),
    )
    return msgspec.structs.replace(one, pod=pod)


def node(name: str = "node-1", ready: str = "True", **offers: str) -> Node:
    told = Condition(
        type="Ready",
        status=ready,
        reason="KubeletReady" if ready == "True" else "NodeStatusUnknown",
        message="Kubelet stopped posting node status.",
    )
    offered = {
        "cpu": "8",
        "memory": "64Gi",
        **{name.replace("_", "."): size for name, size in offers.items()},
    }
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=offered, conditions=(told,)))


def warning(reason: str, message: str) -> Told:
    return Told(reason, message, warning=True, at=ago(1))


def unplaced(index: int, message: str, **more: Any) -> Replica:
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return replica(index, "Pending", node="", conditions=(said,), **more)


def case(found: Job, *replicas: Replica, **more: Any) -> Case:
    return Case(job=found, now=NOW, replicas=replicas, **more)


def refused(message: str) -> Case:
    """The operator's tries to make pods were refused, as its events tell."""
    return case(job("Created"), events=(warning("FailedCreatePod", f"Error creating: {message}"),))


def fails(
    index: int, code: int, *log: str, at: float = 2, reason: str = "Error", message: str = "", **more: Any
) -> Replica:
    """A worker that has failed for good."""
    return replica(index, "Failed", ended(code, at=at, reason=reason, message=message), log=log, **more)


def pulls(reason: str, message: str, *events: str) -> Case:
    told = tuple(warning("Failed", text) for text in events)
    one = replica(0, "Pending", waiting(reason, message), events=told)
    return case(job("Created", wanted={"Worker": 1}), one)


BACK_OFF = 'Back-off pulling image "example.org/bert:1"'
PULL = 'Failed to pull image "example.org/bert:1": rpc error: code = '
FORBIDDEN = 'pods "bert-worker-0" is forbidden: '
NCCL = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE) ran for 1800000 ms"
RESET = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41234"
GONE = "one of its peers left: Connection reset by peer"

RECORDED: dict[str, tuple[Case, str]] = {
    "operator-silent": (
        case(
            job("Pending", noticed=False),
            operator=Operator(
                ("pod kubeflow/training-operator-x runs",), log=('E reconcile "bert": cannot unmarshal',)
            ),
        ),
        "has not taken notice",
    ),
    "queued": (case(job("Suspended", suspended=True, queue="gpu")), "queue gpu"),
    "quota": (
        refused(
            f"{FORBIDDEN}exceeded quota: compute, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=12, limited: requests.nvidia.com/gpu=16"
        ),
        "requests.nvidia.com/gpu=8 asked, requests.nvidia.com/gpu=12 used, requests.nvidia.com/gpu=16 allowed",
    ),
    "quota-needs-requests": (
        refused(f"{FORBIDDEN}failed quota: compute: must specify cpu for: pytorch; memory for: pytorch"),
        "memory for: pytorch",
    ),
    "pod-security": (
        refused(
            f'{FORBIDDEN}violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "pytorch" must set securityContext.allowPrivilegeEscalation=false)'
        ),
        '"restricted"',
    ),
    "limit-range": (
        refused(f"{FORBIDDEN}maximum memory usage per Container is 16Gi, but limit is 32Gi"),
        "16Gi",
    ),
    "service-account-missing": (
        refused(
            f'{FORBIDDEN}error looking up service account team-a/trainer: serviceaccount "trainer" not found'
        ),
        "trainer",
    ),
    "priority-class-missing": (refused(f"{FORBIDDEN}no PriorityClass with name urgent was found"), "urgent"),
    "webhook-denied": (
        refused('admission webhook "validate.kyverno.svc-fail" denied the request: images must be signed'),
        "images must be signed",
    ),
    "create-forbidden": (
        refused(
            'pods is forbidden: User "system:serviceaccount:kubeflow:training-operator" cannot create resource "pods" in API group "" in the namespace "team-a"'
        ),
        "training-operator",
    ),
    "gang-scheduler-missing": (
        case(job("Blocked", condition("Blocked", "GangSchedulerMissing", 'asks for "volcano"; write none'))),
        'operator makes nothing for it: asks for "volcano"; write none',
    ),
    "pods-refused": (refused("Internal error occurred: no endpoints available"), "no endpoints available"),
    "gang-does-not-fit": (
        case(
            job("Created"),
            *(
                replica(index, "Pending", node="", requests={"nvidia.com/gpu": "8"}, age=12)
                for index in range(2)
            ),
            gang=Gang(
                "bert", "Inqueue", 2, message="2/2 tasks in gang unschedulable: pod group is not ready"
            ),
            nodes=(node(**{"nvidia_com/gpu": "11"}),),
            taken={},
        ),
        "needs 16 nvidia.com/gpu, 11 free",
    ),
    "no-queue": (
        case(
            # Seconds old: nobody has said anything about it yet.
            job("Created", created=ago(0.05)),
            *(replica(index, "Pending", node="", age=0.05) for index in range(2)),
            gang=Gang(
                "bert",
                "Pending",
                2,
                message="0/2 members running",
                queue="reserch",
                resource="podgroups.scheduling.gangline.dev",
                ours=True,
            ),
            queues=("production", "research"),
        ),
        "no queue reserch, and nobody is placed before there is one. Queues that can be used: production, research",
    ),
    "gang-too-few": (
        case(
            # Seconds old, and it will never be otherwise.
            job("Created", created=ago(0.05)),
            *(replica(index, "Pending", node="", age=0.05) for index in range(2)),
            gang=Gang(
                "bert",
                "Pending",
                10,
                message="0/10 members running, 2 of 10 exist",
                resource="podgroups.scheduling.gangline.dev",
                ours=True,
                reason="NotEnoughTasks",
            ),
        ),
        "needs 10 members at once, and the job has only 2 replicas",
    ),
    "gang-waits-its-turn": (
        case(
            job("Created"),
            *(replica(index, "Pending", node="", age=12) for index in range(2)),
            gang=Gang(
                "bert",
                "Pending",
                2,
                message="0/2 members running; queue research has its cap of cpu",
                attempt="queue research has its cap of cpu",
                queue="research",
                resource="podgroups.scheduling.gangline.dev",
                ours=True,
            ),
        ),
        "in queue research: queue research has its cap of cpu",
    ),
    "scheduling-gated": (
        case(
            job("Created", wanted={"Worker": 1}),
            replica(
                0,
                "Pending",
                node="",
                spec={"scheduling_gates": (SchedulingGate(name="kueue.x-k8s.io/topology"),)},
            ),
        ),
        "kueue.x-k8s.io/topology",
    ),
    "no-scheduler": (
        case(
            job("Created", wanted={"Worker": 1}),
            replica(0, "Pending", node="", spec={"scheduler_name": "volcano"}),
        ),
        "volcano",
    ),
    "claim-unbound": (
        case(
            job("Created", wanted={"Worker": 1}),
            unplaced(
                0,
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                volumes=(Volume("d", "persistentVolumeClaim", "data"),),
            ),
            claims={
                "data": Claim(
                    "data",
                    phase="Pending",
                    storage_class="fast",
                    wants="1Ti",
                    events=(warning("ProvisioningFailed", 'storageclass "fast" not found'),),
                )
            },
        ),
        "1Ti of class fast",
    ),
    "image-policy": (
        pulls(
            "ErrImageNeverPull",
            'Container image "example.org/bert:1" is not present with pull policy of Never',
        ),
        "Never",
    ),
    "image-rate": (
        pulls(
            "ImagePullBackOff",
            BACK_OFF,
            f"{PULL}Unknown desc = toomanyrequests: You have reached your pull rate limit",
        ),
        "limit on pulls",
    ),
    "image-credentials": (
        pulls("ImagePullBackOff", BACK_OFF, f"{PULL}Unknown desc = failed to authorize: 401 Unauthorized"),
        "imagePullSecrets",
    ),
    "image-name": (
        pulls(
            "ErrImagePull",
            f"{PULL}NotFound desc = failed to resolve reference: example.org/bert:1: not found",
        ),
        "example.org/bert:1",
    ),
    "image-network": (
        pulls("ErrImagePull", f"{PULL}Unknown desc = dial tcp: lookup example.org: no such host"),
        "cannot be reached",
    ),
    "mount-failed": (
        case(
            job("Created", wanted={"Worker": 1}),
            replica(
                0,
                "Pending",
                waiting("ContainerCreating"),
                events=(
                    warning("FailedAttachVolume", "Multi-Attach error for volume pvc-1: already used by pod"),
                ),
            ),
        ),
        "Multi-Attach",
    ),
    "evicted": (
        case(
            job("Failed", failed()),
            replica(
                0,
                "Failed",
                reason="Evicted",
                message="The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi",
            ),
        ),
        "for want of ephemeral-storage",
    ),
    "disrupted": (
        case(
            job("Failed", failed()),
            fails(0, 143, conditions=(condition("DisruptionTarget", "PreemptionByScheduler", "preempted"),)),
        ),
        "higher priority",
    ),
    "node-lost": (
        case(job(), replica(0), replica(1, node="node-2"), nodes=(node(), node("node-2", "Unknown"))),
        "node-2",
    ),
    "pod-rejected": (
        case(
            job("Failed", failed()),
            replica(
                0,
                "Failed",
                reason="UnexpectedAdmissionError",
                message="Allocate failed due to no healthy devices present",
            ),
        ),
        "node-1",
    ),
    "port-clash": (
        case(
            job("Restarting", wanted={"Worker": 1}),
            replica(
                0,
                "Failed",
                reason="PortClash",
                message='port 23456, given to service "bert-worker-0" as "p", is taken by another process',
            ),
        ),
        "23456 of worker-0",
    ),
    "backoff-limit": (
        case(
            job(
                "Failed",
                failed(message="Job bert has failed because it has reached the specified backoff limit"),
                backoff_limit=3,
            )
        ),
        "spec.runPolicy.backoffLimit",
    ),
    "pod-deadline": (
        case(
            job("Failed", failed()),
            replica(
                0,
                "Failed",
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
            ),
        ),
        f"{TEMPLATE}.activeDeadlineSeconds",
    ),
    "shared-memory": (case(job("Failed", failed()), fails(0, 135)), "/dev/shm"),
    "pod-failed": (case(job("Failed", failed()), replica(0, "Failed", reason="Weird")), "Weird"),
    "stuck-leaving": (case(job(), replica(0), replica(1, leaving=ago(20))), "20 min"),
    "permission": (
        case(
            job("Failed", failed()), fails(0, 1, "PermissionError: [Errno 13] Permission denied: '/data/out'")
        ),
        "/data/out",
    ),
    "gpu-memory": (
        case(
            job("Failed", failed()),
            fails(
                0,
                1,
                "Traceback (most recent call last):",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            ),
        ),
        "GPU memory",
    ),
    "gpu-missing": (
        case(job("Failed", failed()), fails(0, 1, "RuntimeError: Found no NVIDIA driver on your system.")),
        "nvidia.com/gpu",
    ),
    "shared-memory-log": (
        case(
            job("Failed", failed()),
            fails(
                0,
                1,
                "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
            ),
        ),
        "/dev/shm",
    ),
    "mpi-rank": (
        case(
            job("Failed", failed(), kind="MPIJob", wanted={"Launcher": 1, "Worker": 2}),
            fails(
                0,
                137,
                "mpirun noticed that process rank 1 with PID 0 on node bert-worker-1 exited on signal 9 (Killed).",
            ),
        ),
        "Rank 1 on bert-worker-1 exited on signal 9 (Killed); worker-0",
    ),
    "child-killed": (
        case(
            job("Failed", failed(), wanted={"Worker": 1}),
            fails(0, 1, "  exitcode  : -9 (pid: 72)", "  traceback : Signal 9 (SIGKILL) received by PID 72"),
        ),
        "most likely for its memory",
    ),
    "import-failed": (
        case(
            job("Failed", failed()),
            fails(0, 1, "ImportError: cannot import name 'packaging' from 'pkg_resources'"),
        ),
        "packaging",
    ),
    "rendezvous-timeout": (
        case(job("Failed", failed()), fails(0, 134, NCCL), replica(1)),
        "waited in vain",
    ),
    "peer-lost": (case(job("Failed", failed()), fails(0, 1, RESET), replica(1)), "peer (worker-1)"),
    "straggler": (
        case(
            job(wanted={"Worker": 3}),
            *(replica(index, log=(f"step {step} loss 0.1",)) for index, step in enumerate((400, 390, 110))),
        ),
        "step 110",
    ),
    "slow-start": (
        case(
            job("Created", wanted={"Worker": 1}), replica(0, "Pending", waiting("ContainerCreating"), age=12)
        ),
        "12 min",
    ),
    "failed": (case(job("Failed", failed())), "nothing is left"),
}
"""By rule: the case, and words of the answer."""

HEALTHY: dict[str, Case] = {
    "running under the Kubeflow operator": case(job(), replica(0), replica(1), nodes=(node(),)),
    "succeeded, though a worker failed on the way": case(
        job("Succeeded"), fails(0, 1, "Traceback (most recent call last):", "ValueError: x")
    ),
    "created a moment ago": case(job("Pending", noticed=False, created=NOW - timedelta(seconds=3))),
    "its containers are being made": case(
        job("Created"),
        *(replica(index, "Pending", waiting("ContainerCreating"), age=1) for index in range(2)),
    ),
    "suspended by a person": case(job("Suspended", condition("Suspended"), suspended=True)),
    "restarted in place an hour ago": case(
        job(restarts=2), replica(0, last=ended(137, at=55), restarts=2), replica(1)
    ),
    "restarted in place once just now": case(
        job(restarts=1), replica(0, last=ended(1, at=1), restarts=1), replica(1)
    ),
    "waits for its first consumer": case(
        job("Created", wanted={"Worker": 1}),
        replica(
            0,
            "Pending",
            waiting("ContainerCreating"),
            age=1,
            volumes=(Volume("d", "persistentVolumeClaim", "data"),),
        ),
        claims={
            "data": Claim(
                "data", phase="Pending", events=(Told("WaitForFirstConsumer", "waiting for first consumer"),)
            )
        },
    ),
    "silent for an hour, and busy": case(
        job(),
        *(
            replica(index, last_line=ago(58), cpu=parse_resources({"cpu": "1800m"})["cpu"])
            for index in range(2)
        ),
    ),
    "one worker joined late": case(
        job(wanted={"Worker": 3}),
        replica(0, log=("step 400",)),
        replica(1, log=("step 400",)),
        replica(2, state=running(5), log=("step 40",)),
    ),
    "says 'connection refused' and goes on": case(
        job(), replica(0, log=("connect failed: Connection refused, trying again",)), replica(1)
    ),
    "tried again, and runs": case(job(wanted={"": 1}, kind="Job", training=False), fails(0, 1), replica(1)),
    "a sidecar has ended": case(job(wanted={"Worker": 1}), with_sidecar(replica(0), ended(1))),
}
"""By what is the matter with them, which is nothing."""

EXAMPLE = case(
    job("Restarting", wanted={"Worker": 4}),
    fails(0, 1, RESET, at=58, restarts=1),
    fails(1, 1, RESET, at=58, restarts=1),
    fails(2, 1, RESET, at=58, restarts=1),
    fails(
        3,
        137,
        "epoch 2 step 1100 batch 512",
        at=58.1,
        reason="OOMKilled",
        limits={"memory": "32Gi"},
        restarts=1,
        node="gpu-7",
    ),
    nodes=(node("gpu-7", memory="256Gi"),),
    taken={"gpu-7": parse_resources({"memory": "46Gi"})},
)
"""The one in docs/why.md."""
