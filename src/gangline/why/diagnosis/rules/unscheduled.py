"""Rules about pods without a node: what they request, and how far they are from fitting."""

import difflib
import re
from collections.abc import Iterator, Mapping

from gangline.api.core import PodPhase
from gangline.api.meta import Key
from gangline.api.quantity import ZERO, Quantity, add_resources, parse_resources
from gangline.api.scheduling import DEFAULT_QUEUE, GROUP, VERSION, PodGroupPhase, PodGroupReason
from gangline.why.diagnosis.case import JobSnapshot, ReplicaFacts
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import create_command, retry_hint
from gangline.why.diagnosis.wording import count_phrase, duration_phrase, quantity_text

_NODE_COUNT_REASON = re.compile(r"(\d+) (?:node\(s\) )?([^,.]+(?:\{[^}]*\})?)")
_INSUFFICIENT = re.compile(r"(?:Insufficient|Too many|\d lack) (?P<resource>[\w./-]+)")
_UNTOLERATED_TAINT = re.compile(r"untolerated taint(?:\(s\))? ?\{(?P<taint>[^}]*)\}")
_CLAIM_PROBLEM = re.compile(r'persistentvolumeclaim "(?P<claim>[^"]+)" (?P<what>not found|is being deleted)')

_NEVER_FITS_REMEDY = (
    "ask for fewer replicas or less per replica, or add nodes: all nodes together, even empty, have less than it needs"
)
_CROWDED_REMEDY = "wait for others to end, ask for fewer replicas or less per replica, or add nodes"
# Our scheduler's reasons against nodes that have capacity, and the remedy for each.
_MISFIT_REMEDIES = {
    "node selector": "correct nodeSelector or affinity of {template}, or label a node: kubectl get nodes --show-labels",
    "tainted": "tolerate the taint in {template}.tolerations, or remove it: kubectl describe nodes",
    "cordoned": "let pods on the nodes again (kubectl uncordon), or add nodes: kubectl get nodes",
    "not ready": "look what is wrong with the nodes, or add others: kubectl get nodes",
    "topology domain": "label nodes with the key that its topology annotation names, or take that annotation away:"
    " kubectl get nodes --show-labels",
    "topology spread": "correct {template}.topologySpreadConstraints, or add nodes",
    "affinity": "correct {template}.affinity, or add nodes",
}


def unschedulable_replicas(case: JobSnapshot) -> Iterator[tuple[ReplicaFacts, str]]:
    """Pods that the scheduler cannot place, with its message. A gang of ours has one message, that of its PodGroup."""
    if case.pod_group is not None and case.pod_group.is_gangline:
        return
    for replica in case.replicas:
        pod = replica.pod
        if pod.spec.node_name or pod.status.phase != PodPhase.PENDING or pod.metadata.deletion_timestamp:
            continue
        for one in pod.status.conditions:
            if one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable":
                yield replica, one.message


def replica_requests(replica: ReplicaFacts) -> dict[str, Quantity]:
    """The sum of the requests of a replica's containers."""
    total: dict[str, Quantity] = {}
    for one in replica.pod.spec.containers:
        total = add_resources(total, parse_resources({**one.resources.limits, **one.resources.requests}))
    return {name: size for name, size in total.items() if size > ZERO}


def _requests_or_limits(replica: ReplicaFacts, resource: str) -> str:
    """The field to lower. Extended resources such as GPUs have one amount, which is the limit."""
    limited = any(resource in one.resources.limits for one in replica.pod.spec.containers)
    return "limits" if limited and "/" in resource else "requests"


def field_suffix(resource: str) -> str:
    """The resource in a field path: `.cpu`, `[nvidia.com/gpu]`."""
    return f".{resource}" if resource.isalnum() else f"[{resource}]"


def insufficient_resources(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica, message in unschedulable_replicas(case):
        match = _INSUFFICIENT.search(message)
        if match is None:
            continue
        resource = match["resource"].rstrip(".")
        requested = replica_requests(replica).get(resource, ZERO)
        values = {
            "resource": resource,
            "wanted": quantity_text(requested) if requested else "some",
            "field": f"{replica.template_path}.containers[0].resources.{_requests_or_limits(replica, resource)}{field_suffix(resource)}",
        }
        values.update(_shortfall(case, resource, requested))
        yield RuleMatch(
            (replica.name,), values, (f"the scheduler says: {message}", *_free_capacity_lines(case, resource))
        )


def _free_by_node(case: JobSnapshot, resource: str) -> dict[str, tuple[Quantity, Quantity]]:
    """By node: how much of a resource is free, and how much there is in total."""
    free = {}
    for node in case.nodes or ():
        name, offered = node.metadata.name, parse_resources(node.status.allocatable).get(resource, ZERO)
        used = (case.allocated_by_node or {}).get(name, {}).get(resource, ZERO)
        free[name] = (offered - used, offered)
    return free


def _shortfall(case: JobSnapshot, resource: str, requested: Quantity) -> Mapping[str, str]:
    if case.nodes is None or not requested:
        return {"how_far": ""}
    free = _free_by_node(case, resource)
    largest = max((offered for _, offered in free.values()), default=ZERO)
    most = max((left for left, _ in free.values()), default=ZERO)
    if largest < requested:
        return {
            "how_far": f", and the largest of {count_phrase(len(free), 'node')} has {quantity_text(largest)} in all",
            "at_most": quantity_text(largest),
        }
    if case.allocated_by_node is None:
        return {"how_far": "", "wait": resource}
    freest = f"the freest of {count_phrase(len(free), 'node')} has {quantity_text(most)} left"
    if most >= requested:
        # Either the gang is placed whole or not at all, or capacity has just become free.
        return {"how_far": f"; {freest}, enough for one but not for all that wait", "wait": resource}
    return {"how_far": f", and {freest}: {quantity_text(requested - most)} too little", "wait": resource}


def _free_capacity_lines(case: JobSnapshot, resource: str) -> tuple[str, ...]:
    rooms = sorted(_free_by_node(case, resource).items(), key=lambda one: one[1][0], reverse=True)
    usage_known = case.allocated_by_node is not None
    lines = [
        f"{name} has {quantity_text(max(left, ZERO))} of {quantity_text(offered)} free"
        if usage_known
        else f"{name} has {quantity_text(offered)}"
        for name, (left, offered) in rooms[:3]
    ]
    return (f"{resource}: {', '.join(lines)}",) if lines else ()


def no_matching_node(scene: RuleInput) -> Iterator[RuleMatch]:
    """No node has the labels or resources that the pod requires."""
    for replica, message in unschedulable_replicas(scene.snapshot):
        if (
            _INSUFFICIENT.search(message)
            or _CLAIM_PROBLEM.search(message)
            or "persistentvolumeclaim" in message.lower()
        ):
            continue
        if scene.snapshot.pod_group is not None and "pod group" in message:
            # The cause is not the nodes: the PodGroup is reported once it has waited for a while.
            continue
        selector = replica.pod.spec.node_selector
        taint = _UNTOLERATED_TAINT.search(message)
        values = {"template": replica.template_path, "why": _main_reason(message)}
        if selector and ("affinity" in message or "selector" in message):
            values["selector"] = ", ".join(f"{name}={value}" for name, value in selector.items())
        if taint:
            values["taint"] = taint["taint"].strip()
        yield RuleMatch((replica.name,), values, (f"the scheduler says: {message}",))


def _main_reason(message: str) -> str:
    """The reason that applies to most nodes."""
    parts = [(int(number), text.strip()) for number, text in _NODE_COUNT_REASON.findall(message.partition(": ")[2])]
    if not parts:
        return "there is no node" if "no nodes" in message else message.rstrip(".")
    number, text = max(parts)
    return f"{count_phrase(number, 'node')}: {text}"


def gang_does_not_fit(scene: RuleInput) -> Iterator[RuleMatch]:
    """The gang does not fit as a whole."""
    case, group = scene.snapshot, scene.snapshot.pod_group
    waiting = [
        replica
        for replica in case.replicas
        if not replica.pod.spec.node_name and replica.pod.status.phase == PodPhase.PENDING
    ]
    stuck = group is not None and group.phase in (
        "Pending",
        "Inqueue",
        "Unschedulable",
        "Recovering",
        "PreScheduling",
        "Scheduling",
    )
    if (
        group is None
        or not stuck
        or (case.replicas and not waiting)
        # Our scheduler has tried before it reports this; of other schedulers we only know that they have not reported
        # anything.
        or (not group.is_gangline and case.elapsed_since(case.job.created_at) < case.timeouts.unnoticed_after)
        or (group.is_gangline and group.reason != PodGroupReason.NOT_ENOUGH_RESOURCES)
    ):
        return
    needs, free = _gang_requests(case, waiting, group.min_member), _total_free(case)
    short = {
        name: size - free.get(name, ZERO)
        for name, size in needs.items()
        if case.allocated_by_node is not None and size > free.get(name, ZERO)
    }
    offered = _allocatable(case)
    far = "; ".join(
        f"needs {quantity_text(needs[name])} {name}, {quantity_text(max(free.get(name, ZERO), ZERO))} free"
        + (f" of {quantity_text(offered.get(name, ZERO))} in all" if needs[name] > offered.get(name, ZERO) else "")
        for name in sorted(short)
    )
    far = "; ".join(part for part in (group.attempt_message, far) if part)
    values = {
        "members": count_phrase(group.min_member, "member"),
        "together": "start" if group.phase != PodGroupPhase.UNSCHEDULABLE or not group.is_gangline else "stay",
        "group": group.name,
        "resource": group.resource,
        "far": f": {far}" if far else "",
        "namespace": case.job.namespace,
        "remedy": _NEVER_FITS_REMEDY if _never_fits(case, needs, waiting) else _remedy(group.attempt_message, waiting),
    }
    evidence = (
        f"PodGroup {group.name} is {group.phase}: {group.message}"
        if group.message
        else f"PodGroup {group.name} is {group.phase}",
    )
    queue = (f"queue {group.queue}",) if group.queue else ()
    yield RuleMatch(tuple(replica.name for replica in waiting), values, (*evidence, *queue))


def _never_fits(case: JobSnapshot, needs: Mapping[str, Quantity], waiting: list[ReplicaFacts]) -> bool:
    """Whether the gang would not fit even if all other pods had ended."""
    if not case.nodes:
        return False
    offered = _allocatable(case)
    nodes = [parse_resources(node.status.allocatable) for node in case.nodes]
    fits_one = all(
        any(all(node.get(name, ZERO) >= size for name, size in replica_requests(one).items()) for node in nodes)
        for one in waiting
    )
    return not fits_one or any(size > offered.get(name, ZERO) for name, size in needs.items())


def _remedy(attempt: str, waiting: list[ReplicaFacts]) -> str:
    """The remedy. If no node lacks capacity, waiting for other pods to end does not help."""
    template = waiting[0].template_path if waiting else "the template"
    if re.search(r"\d lack |limit of|in use", attempt):
        return _CROWDED_REMEDY
    for sign, remedy in _MISFIT_REMEDIES.items():
        if sign in attempt:
            return remedy.format(template=template)
    return _CROWDED_REMEDY


def missing_queue(scene: RuleInput) -> Iterator[RuleMatch]:
    """The PodGroup names a queue that does not exist. This is reported at once, because waiting does not help."""
    case, group = scene.snapshot, scene.snapshot.pod_group
    if group is None or not _queue_is_missing(case) or case.job.suspended:
        return
    queues = tuple(dict.fromkeys((*(case.queues or ()), DEFAULT_QUEUE)))
    close = difflib.get_close_matches(group.queue, queues, 1) or [DEFAULT_QUEUE]
    values = {
        "queue": group.queue,
        "there": ", ".join(queues),
        "move": f"kubectl patch {group.resource} {group.name} -n {case.job.namespace} --type merge"
        f' -p \'{{"spec":{{"queue":"{close[0]}"}}}}\'',
        "make": create_command(f"{GROUP}/{VERSION}", "Queue", Key("", group.queue), {}),
    }
    if case.job.is_training_job and group.name == case.job.name:
        values["field"] = "spec.runPolicy.schedulingPolicy.queue"
    waiting = tuple(one.name for one in case.replicas if not one.pod.spec.node_name)
    queue_names = ", ".join(case.queues or ()) or "none"
    evidence = (f"PodGroup {group.name} is in queue {group.queue}", f"queues that exist: {queue_names}")
    scheduler_message = (
        (f"the scheduler says: {group.attempt_message}",) if group.queue in group.attempt_message else ()
    )
    yield RuleMatch(waiting, values, (*evidence, *scheduler_message))


def gang_too_few(scene: RuleInput) -> Iterator[RuleMatch]:
    """The PodGroup requires more members than the job has, so it can never be placed."""
    case, group = scene.snapshot, scene.snapshot.pod_group
    job = case.job
    if group is None or not group.is_gangline or not job.is_training_job or group.name != job.name:
        return
    if job.is_finished or job.suspended:
        return
    waiting = tuple(one.name for one in case.replicas if not one.pod.spec.node_name)
    if not 0 < job.desired_total < group.min_member or (case.replicas and not waiting):
        return
    values = {
        "members": str(group.min_member),
        "asked": count_phrase(job.desired_total, "replica"),
        "most": str(job.desired_total),
    }
    values["again"] = retry_hint(job)
    yield RuleMatch(waiting, values, (f"PodGroup {group.name} has minMember {group.min_member}",))


def _queue_is_missing(case: JobSnapshot) -> bool:
    group = case.pod_group
    if group is None or not group.is_gangline or case.queues is None:
        return False
    return group.queue not in ("", DEFAULT_QUEUE, *case.queues)


def queue_turn(scene: RuleInput) -> Iterator[RuleMatch]:
    """There may be capacity, but not for this gang now: its queue is full, or gangs before it or victims are pending."""
    case, group = scene.snapshot, scene.snapshot.pod_group
    if group is None or not group.is_gangline or group.reason or not group.attempt_message or _queue_is_missing(case):
        return
    if any(one.pod.spec.scheduling_gates for one in case.replicas):
        # Scheduling gates hold the gang back, and another rule reports that.
        return
    waiting = tuple(one.name for one in case.replicas if not one.pod.spec.node_name)
    values = {
        "why": group.attempt_message,
        "group": group.name,
        "queue": group.queue or DEFAULT_QUEUE,
        "resource": group.resource,
        "namespace": case.job.namespace,
    }
    yield RuleMatch(waiting, values, (f"PodGroup {group.name} is {group.phase}: {group.message}",))


def _gang_requests(case: JobSnapshot, waiting: list[ReplicaFacts], members: int) -> dict[str, Quantity]:
    needs: dict[str, Quantity] = {}
    for one in waiting[: members or None]:
        needs = add_resources(needs, replica_requests(one))
    return needs


def _allocatable(case: JobSnapshot) -> dict[str, Quantity]:
    """What all nodes have together, used or not."""
    total: dict[str, Quantity] = {}
    for node in case.nodes or ():
        total = add_resources(total, parse_resources(node.status.allocatable))
    return total


def _total_free(case: JobSnapshot) -> dict[str, Quantity]:
    """What is free on all nodes together."""
    free = _allocatable(case)
    for node in case.nodes or ():
        used = (case.allocated_by_node or {}).get(node.metadata.name, {})
        free = add_resources(free, {name: -size for name, size in used.items()})
    return free


def scheduling_gates(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica in case.replicas:
        gates = [gate.name for gate in replica.pod.spec.scheduling_gates]
        if gates and case.elapsed_since(replica.pod.metadata.creation_timestamp) > case.timeouts.unnoticed_after:
            yield RuleMatch(
                (replica.name,),
                {"gates": ", ".join(gates)},
                ("its pods have scheduling gates, which somebody must remove",),
            )


def missing_scheduler(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    for replica in case.replicas:
        pod, age = replica.pod, case.elapsed_since(replica.pod.metadata.creation_timestamp)
        judged = any(each.type == "PodScheduled" for each in pod.status.conditions)
        waits = pod.status.phase == PodPhase.PENDING and not pod.spec.node_name and not pod.spec.scheduling_gates
        if (
            waits
            and not judged
            and not replica.events
            and age > case.timeouts.unnoticed_after
            and case.pod_group is None
        ):
            name = pod.spec.scheduler_name or "default-scheduler"
            yield RuleMatch(
                (replica.name,),
                {
                    "scheduler": name,
                    "age": duration_phrase(case.timeouts.unnoticed_after),
                    "template": replica.template_path,
                },
                (f"no scheduler has said anything about it for {duration_phrase(age)}",),
            )


SCHEDULING_RULES = (
    DiagnosisRule(
        "no-queue",
        "the PodGroup names a queue of our scheduler that does not exist",
        missing_queue,
        "there is no queue {queue}, and no pod is placed until there is one. Queues that can be used: {there}.",
        (
            "move it to one that exists: {move}",
            "or make that queue: {make}",
            "and before you submit the job again write the right one into {field}",
        ),
    ),
    DiagnosisRule(
        "gang-too-few",
        "the PodGroup wants more members at once than the job has",
        gang_too_few,
        "its gang needs {members} members at once, and the job has only {asked}.",
        (
            "write at most {most} into spec.runPolicy.schedulingPolicy.minAvailable, or ask for more replicas",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "gang-does-not-fit",
        "the PodGroup waits, because not all members fit at once",
        gang_does_not_fit,
        "the team must {together} together ({members}) and does not fit{far}.",
        (
            "{remedy}",
            "kubectl describe {resource} {group} -n {namespace}",
        ),
    ),
    DiagnosisRule(
        "gang-waits-its-turn",
        "the PodGroup waits for its queue, for one that has waited longer, or for others to leave",
        queue_turn,
        "the team waits for its turn in queue {queue}: {why}.",
        (
            "wait, or ask for more in that queue: kubectl describe queues.scheduling.gangline.dev",
            "kubectl describe {resource} {group} -n {namespace}",
        ),
    ),
    DiagnosisRule(
        "unschedulable-resources",
        "no node has enough of a resource",
        insufficient_resources,
        "no node has room for {who} ({wanted} {resource}){how_far}.",
        (
            "write at most {at_most} into {field}, or add a larger node",
            "wait until {wait} is free, write less into {field}, or add a node",
        ),
    ),
    DiagnosisRule(
        "unschedulable-nodes",
        "no node matches selector, affinity or tolerations",
        no_matching_node,
        "no node takes {who}: {why}.",
        (
            "label a node with {selector}, or correct {template}.nodeSelector",
            "tolerate it in {template}.tolerations, or remove the taint: {taint}",
            "see what nodes there are: kubectl get nodes --show-labels",
        ),
    ),
    DiagnosisRule(
        "scheduling-gated",
        "pods have scheduling gates",
        scheduling_gates,
        "{who} is held back by scheduling gates: {gates}.",
        ("look at whoever sets them (a quota or queue system); they go when it lets the job in",),
    ),
    DiagnosisRule(
        "no-scheduler",
        "a pod that no scheduler has said anything about",
        missing_scheduler,
        "nobody schedules {who}: there is no answer from scheduler {scheduler}.",
        ("correct {template}.schedulerName, or start that scheduler",),
    ),
)
