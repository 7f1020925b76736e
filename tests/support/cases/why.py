"""Cases of `why` that need a real cluster, with the exact words that clusters report."""

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
from gangline.why.diagnosis.case import (
    ClaimFact,
    EventFact,
    JobFacts,
    JobSnapshot,
    OperatorFacts,
    PodGroupFacts,
    ReplicaFacts,
    VolumeFact,
)

NOW = datetime(2026, 1, 2, 15, 0, tzinfo=UTC)
ONE_MINUTE = timedelta(minutes=1)
TEMPLATE_PATH = "spec.pytorchReplicaSpecs.Worker.template.spec"


def minutes_ago(minutes: float) -> datetime:
    return NOW - minutes * ONE_MINUTE


def make_job_facts(state: str = "Running", *conditions: Condition, **more: Any) -> JobFacts:
    """A PyTorchJob that the Kubeflow operator runs, one hour old: its status has no firstFailure."""
    facts: dict[str, Any] = {
        "kind": "PyTorchJob",
        "namespace": "team-a",
        "name": "bert",
        "uid": "u",
        "created_at": minutes_ago(60),
        "desired_replicas": {"Worker": 2},
        "restart_policies": {"Worker": "OnFailure"},
        "template_paths": {"Worker": TEMPLATE_PATH},
        "limits_field": "spec.runPolicy",
        "suspend_field": "spec.runPolicy.suspend",
        "container": "pytorch",
    }
    return JobFacts(state=state, conditions=conditions, **{**facts, **more})


def make_condition(kind: str, reason: str = "", message: str = "", status: str = "True") -> Condition:
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=minutes_ago(1))


def failed_condition(
    reason: str = "PyTorchJobFailed",
    message: str = "PyTorchJob bert is failed because 1 Worker replica(s) failed.",
) -> Condition:
    return make_condition("Failed", reason, message)


def terminated_state(code: int, *, at: float = 2, reason: str = "Error", message: str = "") -> ContainerState:
    return ContainerState(
        terminated=ContainerStateTerminated(
            exit_code=code,
            reason=reason,
            message=message,
            finished_at=minutes_ago(at),
            started_at=minutes_ago(at + 5),
        )
    )


def running_state(since: float = 30) -> ContainerState:
    return ContainerState(running=ContainerStateRunning(started_at=minutes_ago(since)))


def waiting_state(reason: str, message: str = "") -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def make_replica_facts(
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
    events: tuple[EventFact, ...] = (),
    leaving: datetime | None = None,
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    init: tuple[ContainerStatus, ...] = (),
    age: float = 30,
    spec: Mapping[str, Any] | None = None,
    **more: Any,
) -> ReplicaFacts:
    """A worker; by default it runs."""
    states = ContainerStatus(
        name="pytorch",
        state=state or running_state(),
        last_state=last or ContainerState(),
        restart_count=restarts,
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
            creation_timestamp=minutes_ago(age),
            deletion_timestamp=leaving,
        ),
        spec=PodSpec(node_name=node, containers=(container,), **(spec or {})),
        status=PodStatus(
            phase=phase,
            reason=reason,
            message=message,
            conditions=conditions,
            pod_ip=f"10.0.0.{index + 1}",
            start_time=minutes_ago(age),
            container_statuses=() if state is None and phase in ("Pending", "Failed") else (states,),
            init_container_statuses=init,
        ),
    )
    logs = {"pytorch": tuple(log)} if log else {}
    if phase == "Running":
        more.setdefault("last_log_at", minutes_ago(0.2))
    return ReplicaFacts(f"worker-{index}", "Worker", pod, template_path=TEMPLATE_PATH, logs=logs, events=events, **more)


def with_sidecar(one: ReplicaFacts, state: ContainerState) -> ReplicaFacts:
    """The replica with a second container."""
    spec, status = one.pod.spec, one.pod.status
    both = (*status.container_statuses, ContainerStatus(name="proxy", state=state))
    pod = msgspec.structs.replace(
        one.pod,
        spec=msgspec.structs.replace(spec, containers=(*spec.containers, Container(name="proxy"))),
        status=msgspec.structs.replace(status, container_statuses=both),
    )
    return msgspec.structs.replace(one, pod=pod)


def make_node(name: str = "node-1", ready: str = "True", **offers: str) -> Node:
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


def warning_event(reason: str, message: str) -> EventFact:
    return EventFact(reason, message, warning=True, time=minutes_ago(1))


def unschedulable_replica(index: int, message: str, **more: Any) -> ReplicaFacts:
    said = Condition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
    return make_replica_facts(index, "Pending", node="", conditions=(said,), **more)


def make_snapshot(found: JobFacts, *replicas: ReplicaFacts, **more: Any) -> JobSnapshot:
    return JobSnapshot(job=found, now=NOW, replicas=replicas, **more)


def refused_pods(message: str) -> JobSnapshot:
    """A job whose operator reports by an event that its pods were rejected."""
    return make_snapshot(
        make_job_facts("Created"), events=(warning_event("FailedCreatePod", f"Error creating: {message}"),)
    )


def failed_replica(
    index: int, code: int, *log: str, at: float = 2, reason: str = "Error", message: str = "", **more: Any
) -> ReplicaFacts:
    """A worker that has failed for good."""
    return make_replica_facts(
        index, "Failed", terminated_state(code, at=at, reason=reason, message=message), log=log, **more
    )


def failed_unpacking(code: int, *log: str, reason: str = "Error", message: str = "") -> ReplicaFacts:
    """A worker whose folder could not be unpacked."""
    init = ContainerStatus(name="gangline-unpack", state=terminated_state(code, reason=reason, message=message))
    containers = (Container(name="gangline-unpack", image="example.org/bert:1"),)
    one = make_replica_facts(0, "Failed", init=(init,), spec={"init_containers": containers})
    return msgspec.structs.replace(one, logs={"gangline-unpack": log})


def image_pull_snapshot(reason: str, message: str, *events: str) -> JobSnapshot:
    told = tuple(warning_event("Failed", text) for text in events)
    one = make_replica_facts(0, "Pending", waiting_state(reason, message), events=told)
    return make_snapshot(make_job_facts("Created", desired_replicas={"Worker": 1}), one)


BACK_OFF_MESSAGE = 'Back-off pulling image "example.org/bert:1"'
PULL_MESSAGE = 'Failed to pull image "example.org/bert:1": rpc error: code = '
FORBIDDEN_MESSAGE = 'pods "bert-worker-0" is forbidden: '
NCCL_TIMEOUT_LINE = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE) ran for 1800000 ms"
)
PEER_CLOSED_LINE = "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:41234"
PEER_LEFT_LINE = "one of its peers left: Connection reset by peer"

RECORDED_SNAPSHOTS: dict[str, tuple[JobSnapshot, str]] = {
    "operator-silent": (
        make_snapshot(
            make_job_facts("Pending", has_status=False),
            operator=OperatorFacts(
                ("pod kubeflow/training-operator-x runs",), log=('E reconcile "bert": cannot unmarshal',)
            ),
        ),
        "has not taken notice",
    ),
    "unpacker-missing": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_unpacking(
                2,
                "tar (child): gzip: Cannot exec: No such file or directory",
                "tar (child): Error is not recoverable: exiting now",
                "tar: Child returned status 2",
                "tar: Error is not recoverable: exiting now",
            ),
        ),
        "has no gzip, which its folder is unpacked with",
    ),
    "queued": (make_snapshot(make_job_facts("Suspended", suspended=True, queue="gpu")), "queue gpu"),
    "quota": (
        refused_pods(
            f"{FORBIDDEN_MESSAGE}exceeded quota: compute, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=12, limited: requests.nvidia.com/gpu=16"
        ),
        "requests.nvidia.com/gpu=8 asked, requests.nvidia.com/gpu=12 used, requests.nvidia.com/gpu=16 allowed",
    ),
    "quota-needs-requests": (
        refused_pods(f"{FORBIDDEN_MESSAGE}failed quota: compute: must specify cpu for: pytorch; memory for: pytorch"),
        "memory for: pytorch",
    ),
    "pod-security": (
        refused_pods(
            f'{FORBIDDEN_MESSAGE}violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false (container "pytorch" must set securityContext.allowPrivilegeEscalation=false)'
        ),
        '"restricted"',
    ),
    "limit-range": (
        refused_pods(f"{FORBIDDEN_MESSAGE}maximum memory usage per Container is 16Gi, but limit is 32Gi"),
        "16Gi",
    ),
    "service-account-missing": (
        refused_pods(
            f'{FORBIDDEN_MESSAGE}error looking up service account team-a/trainer: serviceaccount "trainer" not found'
        ),
        "trainer",
    ),
    "priority-class-missing": (
        refused_pods(f"{FORBIDDEN_MESSAGE}no PriorityClass with name urgent was found"),
        "urgent",
    ),
    "webhook-denied": (
        refused_pods('admission webhook "validate.kyverno.svc-fail" denied the request: images must be signed'),
        "images must be signed",
    ),
    "operator-rights": (
        make_snapshot(
            make_job_facts("", kind="MPIJob", has_status=False),
            events=(
                warning_event(
                    "MissingRights",
                    'The operator cannot serve MPIJobs yet: roles is forbidden: User "system:serviceaccount:gangline:gangline-operator" cannot list resource "roles" in API group "rbac.authorization.k8s.io" at the cluster scope',
                ),
            ),
        ),
        'does not serve MPIJobs: User "system:serviceaccount:gangline:gangline-operator" cannot list resource "roles"',
    ),
    "create-forbidden": (
        refused_pods(
            'pods is forbidden: User "system:serviceaccount:kubeflow:training-operator" cannot create resource "pods" in API group "" in the namespace "team-a"'
        ),
        "training-operator",
    ),
    "pod-still-terminating": (
        make_snapshot(
            make_job_facts(
                "Blocked",
                make_condition(
                    "Blocked",
                    "PodStillTerminating",
                    "pod bert-worker-1 on node gpu-7 should have ended at 12:00:00 and still exists; the replicas wait",
                ),
            )
        ),
        "the last pod of before is gone, and bert-worker-1 on node gpu-7 does not end",
    ),
    "gang-scheduler-missing": (
        make_snapshot(
            make_job_facts(
                "Blocked", make_condition("Blocked", "GangSchedulerMissing", 'asks for "volcano"; write none')
            )
        ),
        'operator makes nothing for it: asks for "volcano"; write none',
    ),
    "pods-refused": (
        refused_pods("Internal error occurred: no endpoints available"),
        "no endpoints available",
    ),
    "gang-does-not-fit": (
        make_snapshot(
            make_job_facts("Created"),
            *(
                make_replica_facts(index, "Pending", node="", requests={"nvidia.com/gpu": "8"}, age=12)
                for index in range(2)
            ),
            pod_group=PodGroupFacts(
                "bert", "Inqueue", 2, message="2/2 tasks in gang unschedulable: pod group is not ready"
            ),
            nodes=(make_node(**{"nvidia_com/gpu": "11"}),),
            allocated_by_node={},
        ),
        "needs 16 nvidia.com/gpu, 11 free",
    ),
    "no-queue": (
        make_snapshot(
            # Seconds old: nobody has said anything about it yet.
            make_job_facts("Created", created_at=minutes_ago(0.05)),
            *(make_replica_facts(index, "Pending", node="", age=0.05) for index in range(2)),
            pod_group=PodGroupFacts(
                "bert",
                "Pending",
                2,
                message="0/2 members running",
                queue="reserch",
                resource="podgroups.scheduling.gangline.dev",
                is_gangline=True,
            ),
            queues=("production", "research"),
        ),
        "no queue reserch, and no pod is placed until there is one. Queues that can be used: production, research",
    ),
    "gang-too-few": (
        make_snapshot(
            # Seconds old, and it will never be otherwise.
            make_job_facts("Created", created_at=minutes_ago(0.05)),
            *(make_replica_facts(index, "Pending", node="", age=0.05) for index in range(2)),
            pod_group=PodGroupFacts(
                "bert",
                "Pending",
                10,
                message="0/10 members running, 2 of 10 exist",
                resource="podgroups.scheduling.gangline.dev",
                is_gangline=True,
                reason="NotEnoughTasks",
            ),
        ),
        "needs 10 members at once, and the job has only 2 replicas",
    ),
    "gang-waits-its-turn": (
        make_snapshot(
            make_job_facts("Created"),
            *(make_replica_facts(index, "Pending", node="", age=12) for index in range(2)),
            pod_group=PodGroupFacts(
                "bert",
                "Pending",
                2,
                message="0/2 members running; queue research has its cap of cpu",
                attempt_message="queue research has its cap of cpu",
                queue="research",
                resource="podgroups.scheduling.gangline.dev",
                is_gangline=True,
            ),
        ),
        "in queue research: queue research has its cap of cpu",
    ),
    "scheduling-gated": (
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            make_replica_facts(
                0,
                "Pending",
                node="",
                spec={"scheduling_gates": (SchedulingGate(name="kueue.x-k8s.io/topology"),)},
            ),
        ),
        "kueue.x-k8s.io/topology",
    ),
    "no-scheduler": (
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            make_replica_facts(0, "Pending", node="", spec={"scheduler_name": "volcano"}),
        ),
        "volcano",
    ),
    "claim-unbound": (
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            unschedulable_replica(
                0,
                "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
                volumes=(VolumeFact("d", "persistentVolumeClaim", "data"),),
            ),
            claims={
                "data": ClaimFact(
                    "data",
                    phase="Pending",
                    storage_class="fast",
                    requested_storage="1Ti",
                    events=(warning_event("ProvisioningFailed", 'storageclass "fast" not found'),),
                )
            },
        ),
        "1Ti of class fast",
    ),
    "image-policy": (
        image_pull_snapshot(
            "ErrImageNeverPull",
            'Container image "example.org/bert:1" is not present with pull policy of Never',
        ),
        "Never",
    ),
    "image-rate": (
        image_pull_snapshot(
            "ImagePullBackOff",
            BACK_OFF_MESSAGE,
            f"{PULL_MESSAGE}Unknown desc = toomanyrequests: You have reached your pull rate limit",
        ),
        "limit on pulls",
    ),
    "image-credentials": (
        image_pull_snapshot(
            "ImagePullBackOff",
            BACK_OFF_MESSAGE,
            f"{PULL_MESSAGE}Unknown desc = failed to authorize: 401 Unauthorized",
        ),
        "imagePullSecrets",
    ),
    "image-name": (
        image_pull_snapshot(
            "ErrImagePull",
            f"{PULL_MESSAGE}NotFound desc = failed to resolve reference: example.org/bert:1: not found",
        ),
        "example.org/bert:1",
    ),
    "image-network": (
        image_pull_snapshot("ErrImagePull", f"{PULL_MESSAGE}Unknown desc = dial tcp: lookup example.org: no such host"),
        "cannot be reached",
    ),
    "mount-failed": (
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            make_replica_facts(
                0,
                "Pending",
                waiting_state("ContainerCreating"),
                events=(
                    warning_event("FailedAttachVolume", "Multi-Attach error for volume pvc-1: already used by pod"),
                ),
            ),
        ),
        "Multi-Attach",
    ),
    "evicted": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            make_replica_facts(
                0,
                "Failed",
                reason="Evicted",
                message="The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi",
            ),
        ),
        "for want of ephemeral-storage",
    ),
    "disrupted": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0, 143, conditions=(make_condition("DisruptionTarget", "PreemptionByScheduler", "preempted"),)
            ),
        ),
        "higher priority",
    ),
    "node-lost": (
        make_snapshot(
            make_job_facts(),
            make_replica_facts(0),
            make_replica_facts(1, node="node-2"),
            nodes=(make_node(), make_node("node-2", "Unknown")),
        ),
        "node-2",
    ),
    "pod-rejected": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            make_replica_facts(
                0,
                "Failed",
                reason="UnexpectedAdmissionError",
                message="Allocate failed due to no healthy devices present",
            ),
        ),
        "node-1",
    ),
    "port-clash": (
        make_snapshot(
            make_job_facts("Restarting", desired_replicas={"Worker": 1}),
            make_replica_facts(
                0,
                "Failed",
                reason="PortClash",
                message='port 23456, given to service "bert-worker-0" as "p", is taken by another process',
            ),
        ),
        "23456 of worker-0",
    ),
    "backoff-limit": (
        make_snapshot(
            make_job_facts(
                "Failed",
                failed_condition(message="Job bert has failed because it has reached the specified backoff limit"),
                backoff_limit=3,
            )
        ),
        "spec.runPolicy.backoffLimit",
    ),
    "pod-deadline": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            make_replica_facts(
                0,
                "Failed",
                reason="DeadlineExceeded",
                message="Pod was active on the node longer than the specified deadline",
            ),
        ),
        f"{TEMPLATE_PATH}.activeDeadlineSeconds",
    ),
    "shared-memory": (
        make_snapshot(make_job_facts("Failed", failed_condition()), failed_replica(0, 135)),
        "/dev/shm",
    ),
    "pod-failed": (
        make_snapshot(make_job_facts("Failed", failed_condition()), make_replica_facts(0, "Failed", reason="Weird")),
        "Weird",
    ),
    "stuck-leaving": (
        make_snapshot(make_job_facts(), make_replica_facts(0), make_replica_facts(1, leaving=minutes_ago(20))),
        "20 min",
    ),
    "permission": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, "PermissionError: [Errno 13] Permission denied: '/data/out'"),
        ),
        "/data/out",
    ),
    "gpu-memory": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "Traceback (most recent call last):",
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            ),
        ),
        "GPU memory",
    ),
    "gpu-fault": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "Traceback (most recent call last):",
                "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            ),
        ),
        "hardware error of its GPU: uncorrectable ECC error",
    ),
    "storage-fault": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "Traceback (most recent call last):",
                "OSError: [Errno 116] Stale file handle: '/data/part-7'",
            ),
        ),
        "cannot reach its storage: Stale file handle",
    ),
    "service-unavailable": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "Traceback (most recent call last):",
                "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: http://hub/model",
            ),
        ),
        "a service that does not answer now: 503 Server Error",
    ),
    "gpu-missing": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, "RuntimeError: Found no NVIDIA driver on your system."),
        ),
        "nvidia.com/gpu",
    ),
    "shared-memory-log": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "RuntimeError: DataLoader worker (pid 9) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
            ),
        ),
        "/dev/shm",
    ),
    "mpi-rank": (
        make_snapshot(
            make_job_facts("Failed", failed_condition(), kind="MPIJob", desired_replicas={"Launcher": 1, "Worker": 2}),
            failed_replica(
                0,
                137,
                "mpirun noticed that process rank 1 with PID 0 on node bert-worker-1 exited on signal 9 (Killed).",
            ),
        ),
        "Rank 1 on bert-worker-1 exited on signal 9 (Killed); worker-0",
    ),
    "child-killed": (
        make_snapshot(
            make_job_facts("Failed", failed_condition(), desired_replicas={"Worker": 1}),
            failed_replica(0, 1, "  exitcode  : -9 (pid: 72)", "  traceback : Signal 9 (SIGKILL) received by PID 72"),
        ),
        "most likely for its memory",
    ),
    "import-failed": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, "ImportError: cannot import name 'packaging' from 'pkg_resources'"),
        ),
        "packaging",
    ),
    "rendezvous-timeout": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 134, NCCL_TIMEOUT_LINE),
            make_replica_facts(1),
        ),
        "waited in vain",
    ),
    "peer-lost": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, PEER_CLOSED_LINE),
            make_replica_facts(1),
        ),
        "peer (worker-1, rank 1)",
    ),
    "world-size": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, "DistStoreError: Timed out after 61 seconds waiting for clients. 2/4 clients joined."),
            make_replica_facts(1),
        ),
        "waits for 4 ranks (its log), and the job has 2 (2 Workers)",
    ),
    "no-route": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                1,
                "bert-worker-0:31:80 [0] NCCL WARN socketStartConnect: Connect to 10.0.0.2<43210> failed : No route to host",
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1691, ncclSystemError",
            ),
            make_replica_facts(1),
        ),
        "NCCL_SOCKET_IFNAME",
    ),
    "panic": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                101,
                "thread 'main' panicked at src/main.rs:4:5:",
                "index out of bounds: the len is 3 but the index is 7",
                "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
            ),
            make_replica_facts(1),
        ),
        "index out of bounds: the len is 3 but the index is 7",
    ),
    "collective-mismatch": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(
                0,
                134,
                "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
                "  what():  [enforce fail at gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. 8 vs 4. "
                "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?",
            ),
            make_replica_facts(1),
        ),
        "called another collective than its peers",
    ),
    "peer-left": (
        make_snapshot(
            make_job_facts("Failed", failed_condition()),
            failed_replica(0, 1, PEER_CLOSED_LINE),
            make_replica_facts(1, "Succeeded", terminated_state(0, at=2.1, reason="Completed")),
        ),
        "worker-1 (rank 1) ended with exit code 0 while worker-0 (rank 0) still needed it",
    ),
    "peer-finished": (
        make_snapshot(
            make_job_facts(),
            make_replica_facts(0, last_log_at=minutes_ago(25), cpu=parse_resources({"cpu": "1m"})["cpu"]),
            make_replica_facts(1, "Succeeded", terminated_state(0, at=26, reason="Completed")),
        ),
        "worker-0 (rank 0) waits for worker-1 (rank 1), which has ended with exit code 0",
    ),
    "not-ready": (
        make_snapshot(
            make_job_facts(),
            make_replica_facts(0, events=(warning_event("Unhealthy", "Readiness probe failed: dial tcp: refused"),)),
            make_replica_facts(1),
        ),
        "readinessProbe",
    ),
    "stalled": (
        make_snapshot(
            make_job_facts(
                "Running",
                make_condition("Stalled", "RankStands", "no step for 12 min: worker-1 (rank 1) waits for a lock"),
                desired_replicas={"Worker": 2},
            ),
            *(make_replica_facts(index, last_log_at=minutes_ago(0.1)) for index in range(2)),
        ),
        "worker-1 (rank 1) stands still: no step for 12 min",
    ),
    "straggler": (
        make_snapshot(
            make_job_facts(desired_replicas={"Worker": 3}),
            *(make_replica_facts(index, log=(f"step {step} loss 0.1",)) for index, step in enumerate((400, 390, 110))),
        ),
        "step 110",
    ),
    "slow-start": (
        make_snapshot(
            make_job_facts("Created", desired_replicas={"Worker": 1}),
            make_replica_facts(0, "Pending", waiting_state("ContainerCreating"), age=12),
        ),
        "12 min",
    ),
    "failed": (make_snapshot(make_job_facts("Failed", failed_condition())), "nothing is left"),
    "run-stopped": (
        make_snapshot(
            make_job_facts("Running", run_ended_at=minutes_ago(0), run_end_reason="the run was interrupted"),
            make_replica_facts(0),
            make_replica_facts(1),
        ),
        "the run was interrupted",
    ),
}
"""By rule: the case, and words of the answer."""

HEALTHY_SNAPSHOTS: dict[str, JobSnapshot] = {
    "running under the Kubeflow operator": make_snapshot(
        make_job_facts(), make_replica_facts(0), make_replica_facts(1), nodes=(make_node(),)
    ),
    "succeeded, though a worker failed on the way": make_snapshot(
        make_job_facts("Succeeded"),
        failed_replica(0, 1, "Traceback (most recent call last):", "ValueError: x"),
    ),
    "created a moment ago": make_snapshot(
        make_job_facts("Pending", has_status=False, created_at=NOW - timedelta(seconds=3))
    ),
    "its containers are being made": make_snapshot(
        make_job_facts("Created"),
        *(make_replica_facts(index, "Pending", waiting_state("ContainerCreating"), age=1) for index in range(2)),
    ),
    "suspended by a person": make_snapshot(make_job_facts("Suspended", make_condition("Suspended"), suspended=True)),
    "restarted in place an hour ago": make_snapshot(
        make_job_facts(restarts=2),
        make_replica_facts(0, last=terminated_state(137, at=55), restarts=2),
        make_replica_facts(1),
    ),
    "restarted in place once just now": make_snapshot(
        make_job_facts(restarts=1),
        make_replica_facts(0, last=terminated_state(1, at=1), restarts=1),
        make_replica_facts(1),
    ),
    "waits for its first consumer": make_snapshot(
        make_job_facts("Created", desired_replicas={"Worker": 1}),
        make_replica_facts(
            0,
            "Pending",
            waiting_state("ContainerCreating"),
            age=1,
            volumes=(VolumeFact("d", "persistentVolumeClaim", "data"),),
        ),
        claims={
            "data": ClaimFact(
                "data",
                phase="Pending",
                events=(EventFact("WaitForFirstConsumer", "waiting for first consumer"),),
            )
        },
    ),
    "silent for an hour, and busy": make_snapshot(
        make_job_facts(),
        *(
            make_replica_facts(index, last_log_at=minutes_ago(58), cpu=parse_resources({"cpu": "1800m"})["cpu"])
            for index in range(2)
        ),
    ),
    "one worker joined late": make_snapshot(
        make_job_facts(desired_replicas={"Worker": 3}),
        make_replica_facts(0, log=("step 400",)),
        make_replica_facts(1, log=("step 400",)),
        make_replica_facts(2, state=running_state(5), log=("step 40",)),
    ),
    "says 'connection refused' and goes on": make_snapshot(
        make_job_facts(),
        make_replica_facts(0, log=("connect failed: Connection refused, trying again",)),
        make_replica_facts(1),
    ),
    "tried again, and runs": make_snapshot(
        make_job_facts(desired_replicas={"": 1}, kind="Job", is_training_job=False),
        failed_replica(0, 1),
        make_replica_facts(1),
    ),
    "a sidecar has ended": make_snapshot(
        make_job_facts(desired_replicas={"Worker": 1}),
        with_sidecar(make_replica_facts(0), terminated_state(1)),
    ),
}
"""By what is the matter with them, which is nothing."""

DOCS_EXAMPLE = make_snapshot(
    make_job_facts("Restarting", desired_replicas={"Worker": 4}),
    failed_replica(0, 1, PEER_CLOSED_LINE, at=58, restarts=1),
    failed_replica(1, 1, PEER_CLOSED_LINE, at=58, restarts=1),
    failed_replica(2, 1, PEER_CLOSED_LINE, at=58, restarts=1),
    failed_replica(
        3,
        137,
        "epoch 2 step 1100 batch 512",
        at=58.1,
        reason="OOMKilled",
        limits={"memory": "32Gi"},
        restarts=1,
        node="gpu-7",
    ),
    nodes=(make_node("gpu-7", memory="256Gi"),),
    allocated_by_node={"gpu-7": parse_resources({"memory": "46Gi"})},
)
"""The one in docs/why.md."""
