"""Rules about pods that were not created, by the server's responses."""

import re
from collections.abc import Callable, Iterator

from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import retry_hint

_QUOTA_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^,\s]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>\S+)"
)
_QUOTA_NEEDS_REQUESTS = re.compile(r"failed quota: (?P<quota>[^:\s]+): must specify (?P<what>.+)")
_POD_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<why>.+)')
_FORBIDDEN = re.compile(r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<what>[^"]+)"')
_NAME_TAKEN = re.compile(r'"(?P<taken>[^"]+)" of Kind "(?P<what>\w+)" already exists')
_ALREADY_EXISTS = re.compile(r'(?P<what>\w+)s? "(?P<taken>[^"]+)" already exists')
_LIMIT_RANGE = re.compile(r"(?P<bound>maximum|minimum) (?P<resource>\S+) usage per (?P<per>\w+) is (?P<limit>[^,\s]+)")
_SERVICE_ACCOUNT = re.compile(r'serviceaccount "(?P<account>[^"]+)" not found')
_PRIORITY_CLASS = re.compile(r"no PriorityClass with name (?P<priority>\S+) was found")
_WEBHOOK_DENIED = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<why>.+)')

_MISSING_RIGHTS = "MissingRights"
_GANG_SCHEDULER_MISSING, _STILL_TERMINATING = "GangSchedulerMissing", "PodStillTerminating"
"""The operator's own reasons: it does not use the job's gang scheduler; a pod of the last round does not end.

The server has rejected nothing then.
"""
_UNENDED_POD = re.compile(r"pod (?P<pod>\S+)(?: on node (?P<node>\S+))? should have ended at (?P<time>\S+)")


def refusal_messages(case: JobSnapshot) -> Iterator[str]:
    """Current rejections: the job is blocked, or lacks pods and the last attempts to create them were rejected."""
    job = case.job
    blocked, failed = job.true_condition("Blocked"), job.true_condition("Failed")
    if blocked is not None and blocked.reason not in (_GANG_SCHEDULER_MISSING, _STILL_TERMINATING):
        yield blocked.message
    if failed is not None and "is refused:" in failed.message:
        yield failed.message
    if job.is_finished or len(case.replicas) >= max(job.desired_total, 1):
        return
    for one in reversed(case.events):
        if one.warning and (one.reason.startswith("FailedCreate") or one.reason == "ErrResourceExists"):
            yield one.message


def refusal_matcher(*patterns: re.Pattern[str]) -> Callable[[RuleInput], Iterator[RuleMatch]]:
    """A rule for the first rejection that matches a pattern. The groups of the pattern are values for the sentences."""

    def matches(scene: RuleInput) -> Iterator[RuleMatch]:
        job = scene.snapshot.job
        for message in refusal_messages(scene.snapshot):
            found = next((match for match in (one.search(message) for one in patterns) if match), None)
            if found is not None:
                values = {name: text.rstrip(".") for name, text in found.groupdict().items() if text}
                missing = job.desired_total - len(scene.snapshot.replicas)
                lacks = (
                    (f"{missing} of {job.desired_total} pods are not there",)
                    if missing > 0 and job.desired_total
                    else ()
                )
                yield RuleMatch(
                    values={"namespace": job.namespace, "again": retry_hint(job), **values},
                    evidence=(f"the server said: {message}", *lacks),
                )
                return

    return matches


def operator_rights_missing(scene: RuleInput) -> Iterator[RuleMatch]:
    """The operator cannot read what only this kind of job needs, so it has not started on the job."""
    case = scene.snapshot
    if case.job.has_status or case.replicas:
        return
    message = next((event.message for event in reversed(case.events) if event.reason == _MISSING_RIGHTS), None)
    if message is None:
        return
    forbidden = _FORBIDDEN.search(message)
    values = {"kind": case.job.kind, "why": message if forbidden is None else forbidden[0]}
    yield RuleMatch(values=values, evidence=(f"the operator says: {message}",))


def gang_scheduler_missing(scene: RuleInput) -> Iterator[RuleMatch]:
    """The operator creates nothing, because the job asks for a gang scheduler that the operator does not use."""
    job = scene.snapshot.job
    blocked = job.true_condition("Blocked")
    if blocked is not None and blocked.reason == _GANG_SCHEDULER_MISSING:
        yield RuleMatch(values={"why": blocked.message.rstrip("."), "again": retry_hint(job)})


def pod_still_terminating(scene: RuleInput) -> Iterator[RuleMatch]:
    """All replicas restart, and wait for a pod of the last round that does not end."""
    job = scene.snapshot.job
    blocked = job.true_condition("Blocked")
    match = _UNENDED_POD.match(blocked.message) if blocked is not None else None
    if blocked is None or blocked.reason != _STILL_TERMINATING or match is None:
        return
    node = match["node"]
    yield RuleMatch(
        values={
            "pod": match["pod"],
            "where": f" on node {node}" if node else "",
            "look": f"kubectl get node {node}" if node else f"kubectl describe pod {match['pod']} -n {job.namespace}",
            "namespace": job.namespace,
        },
        evidence=(f"it should have ended at {match['time']}, and still exists",),
    )


CREATION_RULES = (
    DiagnosisRule(
        "pod-still-terminating",
        "all replicas restart, and a pod of the last round does not end",
        pod_still_terminating,
        "its replicas start again when the last pod of before is gone, and {pod}{where} does not end.",
        (
            "is its node lost? {look}",
            "only if its processes are surely gone: kubectl delete pod {pod} -n {namespace} --force --grace-period=0",
        ),
    ),
    DiagnosisRule(
        "gang-scheduler-missing",
        "the job asks for a gang scheduler that its operator does not use",
        gang_scheduler_missing,
        "the operator makes nothing for it: {why}.",
        ("{again}",),
    ),
    DiagnosisRule(
        "quota",
        "pods are refused: exceeded quota",
        refusal_matcher(_QUOTA_EXCEEDED),
        "its pods exceed quota {quota}: {asked} asked, {used} used, {limit} allowed.",
        (
            "wait for others to end, lower the requests, or have the quota raised: kubectl describe quota {quota} -n {namespace}",
        ),
    ),
    DiagnosisRule(
        "quota-needs-requests",
        "pods are refused: failed quota, must specify",
        refusal_matcher(_QUOTA_NEEDS_REQUESTS),
        "quota {quota} lets no pod in that does not say how much it wants: {what}.",
        ("write resources.requests and resources.limits in every container of the template",),
    ),
    DiagnosisRule(
        "pod-security",
        "pods are refused: violates PodSecurity",
        refusal_matcher(_POD_SECURITY),
        'the namespace allows "{level}" pods only, and its pods are not: {why}.',
        ("write the securityContext that the message asks for into the template",),
    ),
    DiagnosisRule(
        "name-taken",
        "pods or services are refused: the name is taken by an object of somebody else",
        refusal_matcher(_NAME_TAKEN, _ALREADY_EXISTS),
        '{what} "{taken}" exists already and is not its own.',
        ("delete that object, or give the job another name: kubectl get {what} {taken} -n {namespace} -o yaml",),
    ),
    DiagnosisRule(
        "limit-range",
        "pods are refused: more or less than a LimitRange allows",
        refusal_matcher(_LIMIT_RANGE),
        "a LimitRange allows a {bound} {resource} of {limit} per {per}.",
        ("write a {resource} within it, or have it changed: kubectl describe limits -n {namespace}",),
    ),
    DiagnosisRule(
        "service-account-missing",
        "pods are refused: their service account does not exist",
        refusal_matcher(_SERVICE_ACCOUNT),
        "service account {account} does not exist.",
        (
            "create it: kubectl create serviceaccount {account} -n {namespace}",
            "or correct serviceAccountName in the template",
        ),
    ),
    DiagnosisRule(
        "priority-class-missing",
        "pods are refused: their priority class does not exist",
        refusal_matcher(_PRIORITY_CLASS),
        "priority class {priority} does not exist.",
        ("correct priorityClassName in the template: kubectl get priorityclasses",),
    ),
    DiagnosisRule(
        "webhook-denied",
        "pods are refused by an admission webhook",
        refusal_matcher(_WEBHOOK_DENIED),
        "admission webhook {webhook} refuses its pods: {why}.",
        ("change what it names, or ask whoever runs that webhook",),
    ),
    DiagnosisRule(
        "operator-rights",
        "the operator has no rights for this kind of job",
        operator_rights_missing,
        "the operator does not serve {kind}s: {why}.",
        (
            "give it the rights, as an administrator: gangline upgrade --set rbac.mpiJobs=true",
            "with Helm: helm upgrade gangline --reuse-values --set rbac.mpiJobs=true",
        ),
    ),
    DiagnosisRule(
        "create-forbidden",
        "the operator may not create what the job needs",
        refusal_matcher(_FORBIDDEN),
        "{user} may not {verb} {what} in namespace {namespace}.",
        ("let it: kubectl create rolebinding training-operator -n {namespace} --clusterrole edit --user {user}",),
    ),
    DiagnosisRule(
        "pods-refused",
        "pods are refused, for any other reason",
        refusal_matcher(re.compile(r"(?P<why>.+)", re.DOTALL)),
        "the server refuses what it needs: {why}.",
        ("correct what the message names", "{again}"),
    ),
)
