"""Rules about containers that ended, by exit code and by the node's reason."""

import re
from collections.abc import Iterator

from gangline.api.core import PodPhase
from gangline.api.quantity import ZERO, Quantity, parse_resources
from gangline.jobs.plan.restarts import PORT_CLASH
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.failures import SIGKILL_EXIT_CODE, ReplicaFailure
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import failure_match, is_script, primary_failures, run_command_with_limit
from gangline.why.diagnosis.wording import (
    duration_phrase,
    exit_code_meaning,
    larger_quantity,
    quantity_text,
    signal_name,
    times_phrase,
)

_VOLUME_OVER_LIMIT = re.compile(r'Usage of EmptyDir volume "(?P<volume>[^"]+)" exceeds the limit "(?P<limit>[^"]+)"')
_PEAK_MEMORY = re.compile(r"\Apeak memory (?P<peak>\d+Mi)")
_NODE_PRESSURE = re.compile(r"low on resource: (?P<resource>[\w-]+)|(?P<ephemeral>ephemeral local storage usage)")
NODE_LOST_REASONS = ("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Lost", "ContainerStatusUnknown")
REJECTION_REASONS = ("UnexpectedAdmissionError", "NodeAffinity", "NodePorts", "Preempting")
DISRUPTION_MEANINGS = {
    "PreemptionByScheduler": "a pod of higher priority took its place",
    "DeletionByTaintManager": "its node was tainted",
    "EvictionByEvictionAPI": "somebody drained its node or evicted it",
    "DeletionByPodGC": "its node is gone",
    "TerminationByKubelet": "its node ended it",
}


def out_of_memory(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, replica in primary_failures(scene):
        if end.reason != "OOMKilled":
            continue
        container = replica.container(end.container) if replica is not None else None
        limit = container.resources.limits.get("memory", "") if container is not None else ""
        evidence, values = [], {}
        if limit:
            evidence.append(f"limit {limit}{_peak_text(end, limit)}")
            values = {"limit": limit, "more": larger_quantity(limit)}
            evidence += _node_headroom(scene.snapshot, replica)
        elif container is not None:
            evidence.append("no memory limit is written, so it was its node that ran out")
            values = {"unlimited": "resources.requests.memory"}
        if replica is not None and replica.memory is not None:
            evidence.append(f"it uses {quantity_text(replica.memory)} now")
        if limit and is_script(replica, end.container):
            command = run_command_with_limit(scene.snapshot.job, "memory", values["more"])
            values |= {"larger": command} if command else {}
        yield failure_match(scene, index, evidence, values)


def _peak_text(end: ReplicaFailure, limit: str) -> str:
    """The peak memory use, if the node reports it."""
    peak = _PEAK_MEMORY.match(end.message)
    # A peak below the limit means that another limit killed the container, as in a drill.
    exceeds = peak is not None and Quantity.of(peak["peak"]) > Quantity.of(limit)
    return f", peak {peak['peak']}" if peak is not None and exceeds else ""


def _node_headroom(case: JobSnapshot, replica: ReplicaFacts | None) -> list[str]:
    node = case.node(replica.pod.spec.node_name) if replica is not None else None
    if node is None or case.allocated_by_node is None:
        return []
    offered = parse_resources(node.status.allocatable).get("memory", ZERO)
    headroom = offered - case.allocated_by_node.get(node.metadata.name, {}).get("memory", ZERO)
    if headroom <= ZERO:
        return []
    return [
        f"node {node.metadata.name} has {quantity_text(headroom)} that nobody asked for, so the limit is the bound, not the node"
    ]


def volume_full(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        match = _VOLUME_OVER_LIMIT.search(end.message)
        if match:
            values = {
                "volume": match["volume"],
                "limit": match["limit"],
                "more": larger_quantity(match["limit"]),
            }
            yield failure_match(scene, index, (end.message.strip(),), values)


def eviction(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, replica in primary_failures(scene):
        if end.reason != "Evicted":
            continue
        low = _NODE_PRESSURE.search(end.message)
        resource = ("ephemeral-storage" if low["ephemeral"] else low["resource"]) if low else ""
        values = {"resource": resource} if resource else {}
        node = replica.pod.spec.node_name if replica is not None else ""
        values |= {"node": node or "its node", "of": f" for want of {resource}" if resource else ""}
        yield failure_match(scene, index, (end.message.strip(),) if end.message else (), values, log=False)


def disruption(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, _, replica in primary_failures(scene):
        message = (
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
        if message is not None:
            why = DISRUPTION_MEANINGS.get(message.reason, message.reason)
            yield failure_match(scene, index, (f"{message.reason}: {message.message}",), {"why": why}, log=False)


def node_lost(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    reported_nodes = set()
    for index, end, replica in primary_failures(scene):
        node = case.node(replica.pod.spec.node_name) if replica is not None else None
        if end.reason in NODE_LOST_REASONS or (
            node is not None and not _is_ready(case, node.metadata.name) and end.exit_code is None
        ):
            reported_nodes.add(end.replica)
            values = {"node": replica.pod.spec.node_name if replica is not None else "its node"}
            yield failure_match(scene, index, (end.message,) if end.message else (), values)
    for one in case.replicas:
        name = one.pod.spec.node_name
        over = one.pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)
        if over or case.job.is_finished or not name or one.name in reported_nodes or _is_ready(case, name):
            continue
        found = case.node(name)
        evidence = [
            f"{one.type} is {one.status}: {one.reason} {one.message}"
            for one in (found.status.conditions if found else ())
            if one.type == "Ready"
        ]
        if case.nodes is not None and found is None:
            evidence = ["there is no such node any more"]
        yield RuleMatch((one.name,), {"node": name, "again": "", "job": case.job.name}, tuple(evidence))


def _is_ready(case: JobSnapshot, name: str) -> bool:
    """Whether the node is ready; True unless it is known to be gone or not ready."""
    if case.nodes is None:
        return True
    node = case.node(name)
    return node is not None and all(one.status == "True" for one in node.status.conditions if one.type == "Ready")


def stuck_deletion(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica in case.replicas:
        since = replica.pod.metadata.deletion_timestamp
        age = case.elapsed_since(since)
        if since is not None and age > case.timeouts.stuck_deleting_after:
            holds = ", ".join(replica.pod.metadata.finalizers) if replica.pod.metadata.finalizers else ""
            values = {
                "age": duration_phrase(age),
                "pod": replica.pod.metadata.name,
                "namespace": case.job.namespace,
            }
            evidence = (
                f"its finalizers: {holds}"
                if holds
                else f"its node {replica.pod.spec.node_name} does not confirm that it has ended"
            )
            yield RuleMatch((replica.name,), values, (f"it should have been gone at {since:%H:%M:%S}", evidence))


def pod_rejection(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, replica in primary_failures(scene):
        if end.reason in REJECTION_REASONS or end.reason.startswith("OutOf"):
            node = replica.pod.spec.node_name if replica is not None else "its node"
            yield failure_match(
                scene,
                index,
                (end.message,) if end.message else (),
                {"node": node, "reason": end.reason},
                log=False,
            )


def port_clash(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if end.reason == PORT_CLASH:
            number = re.search(r"port (\d+)", end.message)
            yield failure_match(scene, index, (end.message,), {"port": f" {number[1]}" if number else ""})


def pod_deadline(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if end.reason == "DeadlineExceeded":
            yield failure_match(scene, index, (end.message,) if end.message else (), {})


def probe_failed(scene: RuleInput) -> Iterator[RuleMatch]:
    """A container that the node killed because its probe failed."""
    for index, end, _ in primary_failures(scene):
        if end.probe_event:
            probe = "livenessProbe" if "liveness" in end.probe_event.lower() else "startupProbe"
            yield failure_match(scene, index, (end.probe_event.strip(),), {"probe": probe})


def shared_memory(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if end.exit_code == 135:
            yield failure_match(scene, index, (), {})


def permanent_exit_code(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for index, end, replica in primary_failures(scene):
        kind = replica.type if replica is not None else _replica_type(case, end)
        final = (
            case.job.restart_policies.get(kind) == "ExitCode" and end.exit_code is not None and 0 < end.exit_code < 128
        )
        if final and case.job.state == "Failed":
            values = {
                "code": str(end.exit_code),
                "meaning": exit_code_meaning(end.exit_code or 0),
                "type": kind,
            }
            yield failure_match(
                scene,
                index,
                ("restartPolicy ExitCode: 1 to 127 is an error of the program's own and is not tried again",),
                values,
            )


def _replica_type(case: JobSnapshot, end: ReplicaFailure) -> str:
    head = end.replica.rpartition("-")[0]
    return next((one for one in case.job.restart_policies if one.lower() == head), "")


def sigkill(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, replica in primary_failures(scene):
        if end.exit_code == SIGKILL_EXIT_CODE:
            node = replica.pod.spec.node_name if replica is not None else ""
            yield failure_match(scene, index, _empty_log_note(end), {"node": node} if node else {}, brief=True)


def _empty_log_note(end: ReplicaFailure) -> tuple[str, ...]:
    if any(end.log):
        return ()
    return ("no line of its log was kept",) if end.from_record else ("its log is empty",)


def nonzero_exit(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        if end.exit_code is not None:
            name = signal_name(end.exit_code)
            ended = f"was ended by {name}" if name else f"ended with exit code {end.exit_code}"
            values = {"ended": ended, "meaning": exit_code_meaning(end.exit_code)}
            yield failure_match(scene, index, _empty_log_note(end), values, brief=True)


def unexplained_failure(scene: RuleInput) -> Iterator[RuleMatch]:
    for index, end, _ in primary_failures(scene):
        yield failure_match(
            scene,
            index,
            (end.message,) if end.message else (),
            {"reason": f" ({end.reason})" if end.reason else ""},
        )


def completion_loop(scene: RuleInput) -> Iterator[RuleMatch]:
    """A container that succeeds and is restarted, over and over. Not a failure, but it never ends."""
    case = scene.snapshot
    for replica in case.replicas:
        for status in replica.container_statuses:
            before, held = status.last_state.terminated, status.state.waiting
            if before is not None and before.exit_code == 0 and held is not None and held.reason == "CrashLoopBackOff":
                values = {
                    "type": replica.type,
                    "times": times_phrase(status.restart_count),
                    "field": replica.template_path.partition(".template")[0],
                }
                yield RuleMatch(
                    (replica.name,),
                    values,
                    (f"container {status.name} ended with exit code 0 and waits for its next start: {held.message}",),
                )


TERMINATION_RULES = (
    DiagnosisRule(
        "oom-killed",
        "OOMKilled",
        out_of_memory,
        "{who} was killed for using too much memory (OOMKilled){often}.",
        (
            "raise {path}.resources.limits.memory (try {more}), or lower the batch size",
            "raise its limit, or lower the batch size: {larger}",
            "write {path}.{unlimited} and a limit, so that the scheduler finds a node with room",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "volume-full",
        "evicted: an emptyDir grew over its sizeLimit",
        volume_full,
        "{who} filled volume {volume}, which may hold {limit}, and was evicted.",
        (
            "raise emptyDir.sizeLimit of volume {volume} in {template}.volumes (try {more}), or write less into it",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "evicted",
        "evicted by its node",
        eviction,
        "{who} was evicted from {node}{of}.",
        (
            "write {path}.resources.requests[{resource}], so that it is counted, or clean up the node",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "disrupted",
        "condition DisruptionTarget: preempted, drained, node gone",
        disruption,
        "{who} was sent away: {why}.",
        (
            "restartPolicy ExitCode or OnFailure starts it anew by itself; a priority class protects it",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "node-lost",
        "the node of a pod is not ready, gone, or was shut down",
        node_lost,
        "the node of {who} is lost: {node}.",
        ("kubectl describe node {node}", "{again}"),
    ),
    DiagnosisRule(
        "pod-rejected",
        "the node did not take the pod (OutOf…, UnexpectedAdmissionError)",
        pod_rejection,
        "node {node} did not take {who}: {reason}.",
        ("start it once more: the node was full, or lost a device, when it arrived", "{again}"),
    ),
    DiagnosisRule(
        "port-clash",
        "local node: a port of the team was taken by another process",
        port_clash,
        "port{port} of {who} was taken by another process of this machine.",
        ("the team is started anew with other ports; if it happens again, look who listens: ss -ltnp",),
    ),
    DiagnosisRule(
        "pod-deadline",
        "a pod ran longer than its own activeDeadlineSeconds",
        pod_deadline,
        "{who} ran longer than its pod may.",
        ("raise or remove {template}.activeDeadlineSeconds", "{again}"),
    ),
    DiagnosisRule(
        "probe-failed",
        "the node ended the container because a probe failed",
        probe_failed,
        "{who} was ended because the {probe} failed{often}.",
        ("give {path}.{probe} more time (timeoutSeconds, failureThreshold), or remove it", "{again}"),
    ),
)
"""Rules on the node's own reasons. They come before rules that read the log."""

EXIT_CODE_RULES = (
    DiagnosisRule(
        "shared-memory",
        "exit code 135 (SIGBUS)",
        shared_memory,
        "{who} touched memory that is not there (SIGBUS): /dev/shm is likely too small.",
        (
            "mount an emptyDir with medium: Memory at /dev/shm: {template}.volumes and {path}.volumeMounts",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "permanent-exit-code",
        "Failed under restartPolicy ExitCode with a code below 128",
        permanent_exit_code,
        "{who} ended with exit code {code} ({meaning}){where}, which is permanent.",
        ("correct the program; to have it tried again write restartPolicy: OnFailure for {type}", "{again}"),
    ),
    DiagnosisRule(
        "killed",
        "exit code 137 (SIGKILL), and its node does not say OOMKilled",
        sigkill,
        "{who} was killed from outside (SIGKILL), and its node does not say that it was for memory{often}.",
        (
            "did its node run out of memory, or did a person end it? kubectl describe node {node}",
            "look at all that it said: {logs}",
            "{keep}",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "exit-code",
        "a container ended with a code or signal, and nothing says more",
        nonzero_exit,
        "{who} {ended} ({meaning}){where}{often}.",
        ("look at all that it said: {logs}", "{keep}", "{again}"),
    ),
    DiagnosisRule(
        "pod-failed",
        "a pod failed, and nothing says more",
        unexplained_failure,
        "{who} failed{reason}.",
        ("kubectl describe pod {pod} -n {namespace}", "{again}"),
    ),
)

LOOP_RULES = (
    DiagnosisRule(
        "completes-again",
        "a container ends with 0 and is started again, for its policy is Always",
        completion_loop,
        "{who} does its work, ends with exit code 0 and is started again ({times}), for its restartPolicy is Always.",
        ("write restartPolicy: OnFailure into {field}",),
    ),
    DiagnosisRule(
        "stuck-leaving",
        "a pod that should have been gone for more than 2 min",
        stuck_deletion,
        "{who} is being deleted for {age} and does not go, so its place is not filled.",
        (
            "is its node alive? kubectl describe pod {pod} -n {namespace}",
            "if the node is gone for good: kubectl delete pod {pod} -n {namespace} --force --grace-period=0",
        ),
    ),
)
