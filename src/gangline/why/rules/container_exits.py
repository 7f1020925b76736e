"""Containers that ended, by what node and exit code say."""

import re
from collections.abc import Iterator

from gangline.api.core import PodPhase
from gangline.api.quantity import ZERO, Quantity, parse_resources
from gangline.jobs.plan.restarts import PORT_CLASH
from gangline.why.model.case import Case, Replica
from gangline.why.model.failures import KILLED, End
from gangline.why.model.report import Match, Rule, Scene
from gangline.why.model.wording import amount, larger, lasting, meaning, signal_name, times
from gangline.why.rules.evidence import ends, explained

_VOLUME = re.compile(r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"')
_PEAK = re.compile(r"\Apeak memory (?P<peak>\d+Mi)")
_LOW = re.compile(r"low on resource: (?P<resource>[\w-]+)|(?P<ephemeral>ephemeral local storage usage)")
LOST = ("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Lost", "ContainerStatusUnknown")
REJECTED = ("UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "Preempting")
DISRUPTED = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was tainted",
    "EvictionByEvictionAPI": "somebody drained its node or evicted it",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it",
}


def out_of_memory(scene: Scene) -> Iterator[Match]:
    for index, end, replica in ends(scene):
        if end.reason != "OOMKilled":
            continue
        container = replica.container(end.container) if replica is not None else None
        limit = container.resources.limits.get("memory", "") if container is not None else ""
        evidence, values = [], {}
        if limit:
            evidence.append(f"limit {limit}{_peak(end, limit)}")
            values = {"limit": limit, "more": larger(limit)}
            evidence += _node_room(scene.case, replica)
        elif container is not None:
            evidence.append("no memory limit is written, so it was its node that ran out")
            values = {"unlimited": "resources.requests.memory"}
        if replica is not None and replica.memory is not None:
            evidence.append(f"it uses {amount(replica.memory)} now")
        yield explained(scene, index, evidence, values)


def _peak(end: End, limit: str) -> str:
    """How much it had, where its node says so."""
    found = _PEAK.match(end.message)
    # One that is below was killed under another limit, as in a drill.
    exceeds = found is not None and Quantity.of(found["peak"]) > Quantity.of(limit)
    return f", peak {found['peak']}" if found is not None and exceeds else ""


def _node_room(case: Case, replica: Replica | None) -> list[str]:
    node = case.node(replica.pod.spec.node_name) if replica is not None else None
    if node is None or case.taken is None:
        return []
    offered = parse_resources(node.status.allocatable).get("memory", ZERO)
    left = offered - case.taken.get(node.metadata.name, {}).get("memory", ZERO)
    if left <= ZERO:
        return []
    return [
        f"node {node.metadata.name} has {amount(left)} that nobody asked for, so the limit is the bound, not the node"
    ]


def volume_full(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        found = _VOLUME.search(end.message)
        if found:
            values = {"volume": found["volume"], "limit": found["limit"], "more": larger(found["limit"])}
            yield explained(scene, index, (end.message.strip(),), values)


def evicted(scene: Scene) -> Iterator[Match]:
    for index, end, replica in ends(scene):
        if end.reason != "Evicted":
            continue
        low = _LOW.search(end.message)
        resource = ("ephemeral-storage" if low["ephemeral"] else low["resource"]) if low else ""
        values = {"resource": resource} if resource else {}
        node = replica.pod.spec.node_name if replica is not None else ""
        values |= {"node": node or "its node", "of": f" for want of {resource}" if resource else ""}
        yield explained(scene, index, (end.message.strip(),) if end.message else (), values, log=False)


def disrupted(scene: Scene) -> Iterator[Match]:
    for index, _, replica in ends(scene):
        told = (
            next(
                (
                    one
                    for one in replica.pod.status.conditions
                    if one.type == "DisruptionTarget" and one.status == "True"
                ),
                None,
            )
            if replica is not None
            else None
        )
        if told is not None:
            why = DISRUPTED.get(told.reason, told.reason)
            yield explained(scene, index, (f"{told.reason}: {told.message}",), {"why": why}, log=False)


def node_lost(scene: Scene) -> Iterator[Match]:
    case = scene.case
    told = set()
    for index, end, replica in ends(scene):
        node = case.node(replica.pod.spec.node_name) if replica is not None else None
        if end.reason in LOST or (
            node is not None and not _ready(case, node.metadata.name) and end.code is None
        ):
            told.add(end.replica)
            values = {"node": replica.pod.spec.node_name if replica is not None else "its node"}
            yield explained(scene, index, (end.message,) if end.message else (), values)
    for one in case.replicas:
        name = one.pod.spec.node_name
        over = one.pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if over or case.job.finished or not name or one.name in told or _ready(case, name):
            continue
        found = case.node(name)
        said = [
            f"{one.type} is {one.status}: {one.reason} {one.message}"
            for one in (found.status.conditions if found else ())
            if one.type == "Ready"
        ]
        if case.nodes is not None and found is None:
            said = ["there is no such node any more"]
        yield Match((one.name,), {"node": name, "again": "", "job": case.job.name}, tuple(said))


def _ready(case: Case, name: str) -> bool:
    """Unless it is known to be gone or not ready."""
    if case.nodes is None:
        return True
    node = case.node(name)
    return node is not None and all(
        one.status == "True" for one in node.status.conditions if one.type == "Ready"
    )


def leaving(scene: Scene) -> Iterator[Match]:
    case = scene.case
    for one in case.replicas:
        since = one.pod.metadata.deletion_timestamp
        age = case.since(since)
        if since is not None and age > case.patience.leaving:
            holds = ", ".join(one.pod.metadata.finalizers) if one.pod.metadata.finalizers else ""
            values = {"age": lasting(age), "pod": one.pod.metadata.name, "namespace": case.job.namespace}
            said = (
                f"its finalizers: {holds}"
                if holds
                else f"its node {one.pod.spec.node_name} does not confirm that it has ended"
            )
            yield Match((one.name,), values, (f"it should have been gone at {since:%H:%M:%S}", said))


def rejected(scene: Scene) -> Iterator[Match]:
    for index, end, replica in ends(scene):
        if end.reason in REJECTED or end.reason.startswith("OutOf"):
            node = replica.pod.spec.node_name if replica is not None else "its node"
            yield explained(
                scene,
                index,
                (end.message,) if end.message else (),
                {"node": node, "reason": end.reason},
                log=False,
            )


def port_clash(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        if end.reason == PORT_CLASH:
            number = re.search(r"port (\d+)", end.message)
            yield explained(scene, index, (end.message,), {"port": f" {number[1]}" if number else ""})


def pod_deadline(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        if end.reason == "DeadlineExceeded":
            yield explained(scene, index, (end.message,) if end.message else (), {})


def probe_failed(scene: Scene) -> Iterator[Match]:
    """A container that its node ended because it did not answer."""
    for index, end, replica in ends(scene):
        if replica is None or end.code not in (137, 143):
            continue
        told = next(
            (
                e
                for e in reversed(replica.events)
                if "iveness probe failed" in e.message or "tartup probe failed" in e.message
            ),
            None,
        )
        if told is not None:
            probe = "livenessProbe" if "iveness" in told.message else "startupProbe"
            yield explained(scene, index, (told.message,), {"probe": probe})


def shared_memory(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        if end.code == 135:
            yield explained(scene, index, (), {})


def permanent(scene: Scene) -> Iterator[Match]:
    case = scene.case
    for index, end, replica in ends(scene):
        kind = replica.type if replica is not None else _type(case, end)
        final = case.job.policies.get(kind) == "ExitCode" and end.code is not None and 0 < end.code < 128
        if final and case.job.state == "Failed":
            values = {"code": str(end.code), "meaning": meaning(end.code or 0), "type": kind}
            yield explained(
                scene,
                index,
                ("restartPolicy ExitCode: 1 to 127 is an error of the program's own and is not tried again",),
                values,
            )


def _type(case: Case, end: End) -> str:
    head = end.replica.rpartition("-")[0]
    return next((one for one in case.job.policies if one.lower() == head), "")


def killed(scene: Scene) -> Iterator[Match]:
    for index, end, replica in ends(scene):
        if end.code == KILLED:
            node = replica.pod.spec.node_name if replica is not None else ""
            yield explained(scene, index, _silence(end), {"node": node} if node else {}, brief=True)


def _silence(end: End) -> tuple[str, ...]:
    return () if any(end.log) else ("its log is empty",)


def exited(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        if end.code is not None:
            name = signal_name(end.code)
            ended = f"was ended by {name}" if name else f"ended with exit code {end.code}"
            values = {"ended": ended, "meaning": meaning(end.code)}
            yield explained(scene, index, _silence(end), values, brief=True)


def unexplained(scene: Scene) -> Iterator[Match]:
    for index, end, _ in ends(scene):
        yield explained(
            scene,
            index,
            (end.message,) if end.message else (),
            {"reason": f" ({end.reason})" if end.reason else ""},
        )


def completes(scene: Scene) -> Iterator[Match]:
    """Not a failure, and yet it never ends."""
    case = scene.case
    for one in case.replicas:
        for status in one.statuses:
            before, held = status.last_state.terminated, status.state.waiting
            if (
                before is not None
                and before.exit_code == 0
                and held is not None
                and held.reason == "CrashLoopBackOff"
            ):
                values = {
                    "type": one.type,
                    "times": times(status.restart_count),
                    "field": one.template.partition(".template")[0],
                }
                yield Match(
                    (one.name,),
                    values,
                    (
                        f"container {status.name} ended with exit code 0 and waits for its next start: {held.message}",
                    ),
                )


RULES = (
    Rule(
        "oom-killed",
        "OOMKilled",
        out_of_memory,
        "{who} was killed for using too much memory (OOMKilled){often}.",
        (
            "raise {path}.resources.limits.memory (try {more}), or lower the batch size",
            "write {path}.{unlimited} and a limit, so that the scheduler finds a node with room",
            "{again}",
        ),
    ),
    Rule(
        "volume-full",
        "evicted: an emptyDir grew over its sizeLimit",
        volume_full,
        "{who} filled volume {volume}, which may hold {limit}, and was evicted.",
        (
            "raise emptyDir.sizeLimit of volume {volume} in {template}.volumes (try {more}), or write less into it",
            "{again}",
        ),
    ),
    Rule(
        "evicted",
        "evicted by its node",
        evicted,
        "{who} was evicted from {node}{of}.",
        (
            "write {path}.resources.requests[{resource}], so that it is counted, or clean up the node",
            "{again}",
        ),
    ),
    Rule(
        "disrupted",
        "condition DisruptionTarget: preempted, drained, node gone",
        disrupted,
        "{who} was sent away: {why}.",
        (
            "restartPolicy ExitCode or OnFailure starts it anew by itself; a priority class protects it",
            "{again}",
        ),
    ),
    Rule(
        "node-lost",
        "the node of a pod is not ready, gone, or was shut down",
        node_lost,
        "the node of {who} is lost: {node}.",
        ("kubectl describe node {node}", "{again}"),
    ),
    Rule(
        "pod-rejected",
        "the node did not take the pod (OutOf…, UnexpectedAdmissionError)",
        rejected,
        "node {node} did not take {who}: {reason}.",
        ("start it once more: the node was full, or lost a device, when it arrived", "{again}"),
    ),
    Rule(
        "port-clash",
        "local node: a port of the team was taken by another process",
        port_clash,
        "port{port} of {who} was taken by another process of this machine.",
        ("the team is started anew with other ports; if it happens again, look who listens: ss -ltnp",),
    ),
    Rule(
        "pod-deadline",
        "a pod ran longer than its own activeDeadlineSeconds",
        pod_deadline,
        "{who} ran longer than its pod may.",
        ("raise or remove {template}.activeDeadlineSeconds", "{again}"),
    ),
    Rule(
        "probe-failed",
        "the node ended the container because a probe failed",
        probe_failed,
        "{who} was ended because its {probe} failed{often}.",
        ("give {path}.{probe} more time (timeoutSeconds, failureThreshold), or remove it", "{again}"),
    ),
)
"""Said by the node: asked before the log is read."""

CODES = (
    Rule(
        "shared-memory",
        "exit code 135 (SIGBUS)",
        shared_memory,
        "{who} touched memory that is not there (SIGBUS): /dev/shm is likely too small.",
        (
            "mount an emptyDir with medium: Memory at /dev/shm: {template}.volumes and {path}.volumeMounts",
            "{again}",
        ),
    ),
    Rule(
        "permanent-exit-code",
        "Failed under restartPolicy ExitCode with a code below 128",
        permanent,
        "{who} ended with exit code {code} ({meaning}){where}, which is permanent.",
        ("correct the program; to have it tried again write restartPolicy: OnFailure for {type}", "{again}"),
    ),
    Rule(
        "killed",
        "exit code 137 (SIGKILL), and its node does not say OOMKilled",
        killed,
        "{who} was killed from outside (SIGKILL), and its node does not say that it was for memory{often}.",
        (
            "did node {node} run out of memory, or was it a person? kubectl describe node {node}; dmesg on the node",
            "look at all that it said: {logs}",
            "{again}",
        ),
    ),
    Rule(
        "exit-code",
        "a container ended with a code or signal, and nothing says more",
        exited,
        "{who} {ended} ({meaning}){where}{often}.",
        ("look at all that it said: {logs}", "{again}"),
    ),
    Rule(
        "pod-failed",
        "a pod failed, and nothing says more",
        unexplained,
        "{who} failed{reason}.",
        ("kubectl describe pod {pod}", "{again}"),
    ),
)

LOOPS = (
    Rule(
        "completes-again",
        "a container ends with 0 and is started again, for its policy is Always",
        completes,
        "{who} does its work, ends with exit code 0 and is started again ({times}), for its restartPolicy is Always.",
        ("write restartPolicy: OnFailure into {field}",),
    ),
    Rule(
        "stuck-leaving",
        "a pod that should have been gone for more than 2 min",
        leaving,
        "{who} is being deleted for {age} and does not go, so its place is not filled.",
        (
            "is its node alive? kubectl describe pod {pod} -n {namespace}",
            "if the node is gone for good: kubectl delete pod {pod} -n {namespace} --force --grace-period=0",
        ),
    ),
)
