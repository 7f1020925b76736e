"""What a drill does in a cluster, and which rights that needs. Pure: nothing is done here.

The node of a cluster injects no faults, so each fault is made with what Kubernetes offers. A signal must come from
outside: the first process of a container is safe from SIGKILL and SIGSTOP of its own namespace. So a short pod with the
processes of the node in sight (hostPID) sends it to the processes of one container.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gangline.api.drill import FaultKind, FaultRequest
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity, QuantityError
from gangline.summary.replicas import container_name

SIGNAL_FAULTS = (FaultKind.KILL, FaultKind.HANG, FaultKind.SLOW)
MAX_FILL_BYTES = 2**30
HELPER_LABEL = {"app.kubernetes.io/managed-by": "gangline-drill"}
HELPER_SECONDS = 120
"""How much longer than the fault the helper pod may exist."""
REFUSALS = {
    FaultKind.PORT: "--port: only gangline's own node can take a port before a program does; in a cluster use --kill",
    FaultKind.SLOW_NETWORK: "--slow-network: needs a limit in the pod's network, which nobody can set from outside; "
    "in a cluster use --slow",
    FaultKind.BAD_NODE: "--bad-node: would fail pods of everybody on that node; in a cluster use --node-lost, which "
    "touches the pods of this job alone",
}
_FIND = (
    'pids() { for p in /proc/[0-9]*; do case "$(cat "$p/cgroup" 2>/dev/null)" in '
    '*"$CONTAINER_ID"*) echo "${p#/proc/}" ;; esac; done; }\n'
)
_KILL = _FIND + 'found=$(pids); [ -n "$found" ] || { echo "no process of the container was found" >&2; exit 1; }\n'


class Right(NamedTuple):
    """One right that a drill needs."""

    verb: str
    resource: str
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"

    def review(self) -> JSON:
        """The question whether the user has it."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {"verb": self.verb, "group": self.group, "resource": resource, "namespace": self.namespace}
        return {"spec": {"resourceAttributes": {**attributes, **({"subresource": subresource} if subresource else {})}}}


class ClusterPlan(NamedTuple):
    """What a drill does, in sentences, and what that needs; or why it cannot be done."""

    does: tuple[str, ...] = ()
    rights: tuple[Right, ...] = ()
    refusal: str = ""


def cluster_plan(request: FaultRequest, victims: Sequence[JSON], image: str = "") -> ClusterPlan:
    """The plan of a fault. `image`: that of the helper pod, by default the victim's own."""
    refusal = REFUSALS.get(request.fault, "") or _refusal(request, victims[0])
    if refusal:
        return ClusterPlan(refusal=refusal)
    namespace = victims[0]["metadata"]["namespace"]
    return ClusterPlan(tuple(_sentences(request, victims, image)), rights(request.fault, namespace))


def rights(fault: FaultKind, namespace: str) -> tuple[Right, ...]:
    """The rights that a fault needs, beside reading the job and its pods."""
    if fault in SIGNAL_FAULTS:
        return tuple(Right(verb, "pods", namespace) for verb in ("create", "get", "delete"))
    if fault is FaultKind.EVICT:
        return (Right("create", "pods/eviction", namespace),)
    if fault is FaultKind.NODE_LOST:
        return (Right("patch", "nodes"), Right("delete", "pods", namespace))
    return (Right("create", "pods/exec", namespace),)


def _refusal(request: FaultRequest, pod: JSON) -> str:
    name = pod["metadata"]["name"]
    if request.fault is FaultKind.OOM and not memory_limit(pod):
        return f"--oom: {name} has no memory limit, so the whole node would run out of memory; set one, or use --kill"
    if request.fault is FaultKind.DISK and fillable_volume(pod) is None:
        return f"--disk: {name} has no emptyDir with a sizeLimit of at most 1Gi; use --evict, which ends it alike"
    if request.fault in SIGNAL_FAULTS and not container_id(pod):
        return f"--{request.fault}: {name} runs no container; wait until it does"
    return ""


def _sentences(request: FaultRequest, victims: Sequence[JSON], image: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in victims]
    node = victims[0]["spec"].get("nodeName", "")
    seconds = f"{request.seconds:g} s"
    match request.fault:
        case FaultKind.EVICT:
            return [f"evict pod {name} (eviction API: disruption budgets are respected)" for name in names]
        case FaultKind.NODE_LOST:
            return [
                f"cordon node {node} for {seconds}, so that nothing new starts there, then uncordon it",
                *(f"delete pod {name} without a grace period" for name in names),
                "other pods of the node stay: for everybody else it is well",
            ]
        case FaultKind.OOM:
            limit = memory_limit(victims[0])
            return [
                f"run a command in pod {names[0]} that takes more memory than its limit of {limit}",
                "with cgroup v2 the kernel ends the whole container; with v1 its largest process, which may be that command",
            ]
        case FaultKind.DISK:
            volume, path, size = fillable_volume(victims[0]) or ("", "", 0)
            return [f"write {size // 2**20 + 1} MiB into volume {volume} of pod {names[0]} ({path})"]
    signal = {FaultKind.KILL: "SIGKILL", FaultKind.HANG: f"SIGSTOP, and SIGCONT after {seconds},"}.get(
        request.fault, f"SIGSTOP for {request.pause:g} s again and again for {seconds}"
    )
    return [
        f"start a pod with hostPID on node {node} (image {image or helper_image(victims[0])})",
        f"send {signal} from it to the processes of the training container of pod {names[0]}",
        "delete that pod",
    ]


# Parts of the victim


def memory_limit(pod: JSON) -> str:
    """The memory limit of the training container; empty if it has none."""
    limits = ((_training_spec(pod).get("resources") or {}).get("limits")) or {}
    return str(limits.get("memory", ""))


def fillable_volume(pod: JSON) -> tuple[str, str, int] | None:
    """The first emptyDir with a small sizeLimit that the training container mounts: its name, its path, its size."""
    sizes: dict[str, int] = {}
    for volume in pod["spec"].get("volumes") or ():
        limit = (volume.get("emptyDir") or {}).get("sizeLimit")
        try:
            size = Quantity.of(str(limit)).value() if limit else 0
        except QuantityError:
            size = 0
        if 0 < size <= MAX_FILL_BYTES:
            sizes[volume["name"]] = size
    for mount in _training_spec(pod).get("volumeMounts") or ():
        if mount.get("name") in sizes and not mount.get("readOnly"):
            return mount["name"], mount["mountPath"], sizes[mount["name"]]
    return None


def container_id(pod: JSON) -> str:
    """The id of the running training container, without its scheme."""
    name = container_name(pod)
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == name and (status.get("state") or {}).get("running") is not None:
            return str(status.get("containerID", "")).rpartition("//")[2]
    return ""


def helper_image(pod: JSON) -> str:
    """The image of the training container: the node has it already."""
    return str(_training_spec(pod).get("image", ""))


def _training_spec(pod: JSON) -> JSON:
    name = container_name(pod)
    containers: list[JSON] = pod["spec"].get("containers") or []
    return next((one for one in containers if one.get("name") == name), {})


# What is run


def helper_pod(request: FaultRequest, pod: JSON, image: str = "") -> JSON:
    """The pod that sends signals to the processes of a container. It has no right but to send them."""
    metadata, spec = pod["metadata"], pod["spec"]
    env = {"CONTAINER_ID": container_id(pod), "SECONDS_LONG": f"{request.seconds:g}", "PAUSE": f"{request.pause:g}"}
    secrets = spec.get("imagePullSecrets")
    return {
        "metadata": {"generateName": "drill-", "namespace": metadata["namespace"], "labels": HELPER_LABEL},
        "spec": {
            "nodeName": spec.get("nodeName", ""),
            "hostPID": True,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": int(request.seconds) + HELPER_SECONDS,
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "tolerations": [{"operator": "Exists"}],
            **({"imagePullSecrets": secrets} if secrets else {}),
            "containers": [
                {
                    "name": "drill",
                    "image": image or helper_image(pod),
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", signal_script(request.fault).replace("$(", "$$(")],
                    "env": [{"name": name, "value": value} for name, value in env.items()],
                    "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
                    "securityContext": {
                        "runAsUser": 0,
                        "runAsNonRoot": False,
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"], "add": ["KILL", "SYS_PTRACE"]},
                    },
                }
            ],
        },
    }


def signal_script(fault: FaultKind) -> str:
    """The shell script of the helper pod. Whatever ends it, stopped processes continue."""
    if fault is FaultKind.KILL:
        return _KILL + "kill -KILL $found"
    resume = "trap 'kill -CONT $(pids) 2>/dev/null; exit' EXIT TERM INT\n"
    if fault is FaultKind.HANG:
        return _KILL + resume + 'kill -STOP $found; sleep "$SECONDS_LONG" & wait $!'
    return (
        _KILL + resume + 'end=$(($(date +%s) + ${SECONDS_LONG%.*}))\nwhile [ "$(date +%s)" -lt "$end" ]; do '
        'kill -STOP $(pids); sleep "$PAUSE"; kill -CONT $(pids); sleep 0.05; done'
    )


def exec_command(request: FaultRequest, pod: JSON) -> list[str]:
    """The command that is run in the pod itself: it takes memory, or fills a volume."""
    if request.fault is FaultKind.OOM:
        # `tail` keeps what it reads in memory until a line ends, and this one never does.
        return ["sh", "-c", "tail /dev/zero"]
    _, path, size = fillable_volume(pod) or ("", "", 0)
    return ["dd", "if=/dev/zero", f"of={path}/.gangline-drill", "bs=1048576", f"count={size // 2**20 + 1}"]
