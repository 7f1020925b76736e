"""Pods that were not created: what the server said to whoever tried."""

import re
from collections.abc import Callable, Iterator

from gangline.why.model.case import Case
from gangline.why.model.report import Match, Rule, Scene
from gangline.why.rules.evidence import again

_QUOTA = re.compile(
    r"exceeded quota: (?P<quota>[^,\s]+), requested: (?P<asked>.+?), used: (?P<used>.+?), limited: (?P<limit>\S+)"
)
_MUST = re.compile(r"failed quota: (?P<quota>[^:\s]+): must specify (?P<what>.+)")
_SECURITY = re.compile(r'violates PodSecurity "(?P<level>[^":]+)[^"]*": (?P<why>.+)')
_USER = re.compile(r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<what>[^"]+)"')
_TAKEN = re.compile(r'"(?P<taken>[^"]+)" of Kind "(?P<what>\w+)" already exists')
_EXISTS = re.compile(r'(?P<what>\w+)s? "(?P<taken>[^"]+)" already exists')
_RANGE = re.compile(
    r"(?P<bound>maximum|minimum) (?P<resource>\S+) usage per (?P<per>\w+) is (?P<limit>[^,\s]+)"
)
_ACCOUNT = re.compile(r'serviceaccount "(?P<account>[^"]+)" not found')
_PRIORITY = re.compile(r"no PriorityClass with name (?P<priority>\S+) was found")
_WEBHOOK = re.compile(r'admission webhook "(?P<webhook>[^"]+)" denied the request: (?P<why>.+)')

_NOBODY = "GangSchedulerMissing"
"""The operator's own word for a gang that it lets nobody place. No server has said anything then."""


def refusals(case: Case) -> Iterator[str]:
    """What was refused and still is: the job is blocked, or lacks pods and the last tries were refused."""
    job = case.job
    blocked, failed = job.condition("Blocked"), job.condition("Failed")
    if blocked is not None and blocked.reason != _NOBODY:
        yield blocked.message
    if failed is not None and "is refused:" in failed.message:
        yield failed.message
    if job.finished or len(case.replicas) >= max(job.asked, 1):
        return
    for one in reversed(case.events):
        if one.warning and (one.reason.startswith("FailedCreate") or one.reason == "ErrResourceExists"):
            yield one.message


def refused(*patterns: re.Pattern[str]) -> Callable[[Scene], Iterator[Match]]:
    """The first refusal that a pattern fits; its groups are what the sentences name."""

    def matches(scene: Scene) -> Iterator[Match]:
        job = scene.case.job
        for message in refusals(scene.case):
            found = next((match for match in (one.search(message) for one in patterns) if match), None)
            if found is not None:
                values = {name: text.rstrip(".") for name, text in found.groupdict().items() if text}
                missing = job.asked - len(scene.case.replicas)
                lacks = (f"{missing} of {job.asked} pods are not there",) if missing > 0 and job.asked else ()
                yield Match(
                    values={"namespace": job.namespace, "again": again(job), **values},
                    evidence=(f"the server said: {message}", *lacks),
                )
                return

    return matches


def unplaceable(scene: Scene) -> Iterator[Match]:
    """The operator itself makes nothing: the job asks for a gang scheduler that it does not use."""
    job = scene.case.job
    blocked = job.condition("Blocked")
    if blocked is not None and blocked.reason == _NOBODY:
        yield Match(values={"why": blocked.message.rstrip("."), "again": again(job)})


RULES = (
    Rule(
        "gang-scheduler-missing",
        "the job asks for a gang scheduler that its operator does not use",
        unplaceable,
        "the operator makes nothing for it: {why}.",
        ("{again}",),
    ),
    Rule(
        "quota",
        "pods are refused: exceeded quota",
        refused(_QUOTA),
        "its pods exceed quota {quota}: {asked} asked, {used} used, {limit} allowed.",
        (
            "wait for others to end, lower the requests, or have the quota raised: kubectl describe quota {quota} -n {namespace}",
        ),
    ),
    Rule(
        "quota-needs-requests",
        "pods are refused: failed quota, must specify",
        refused(_MUST),
        "quota {quota} lets no pod in that does not say how much it wants: {what}.",
        ("write resources.requests and resources.limits in every container of the template",),
    ),
    Rule(
        "pod-security",
        "pods are refused: violates PodSecurity",
        refused(_SECURITY),
        'the namespace allows "{level}" pods only, and its pods are not: {why}.',
        ("write the securityContext that the message asks for into the template",),
    ),
    Rule(
        "name-taken",
        "pods or services are refused: the name is taken by an object of somebody else",
        refused(_TAKEN, _EXISTS),
        '{what} "{taken}" exists already and is not its own.',
        (
            "delete that object, or give the job another name: kubectl get {what} {taken} -n {namespace} -o yaml",
        ),
    ),
    Rule(
        "limit-range",
        "pods are refused: more or less than a LimitRange allows",
        refused(_RANGE),
        "a LimitRange allows a {bound} {resource} of {limit} per {per}.",
        ("write a {resource} within it, or have it changed: kubectl describe limits -n {namespace}",),
    ),
    Rule(
        "service-account-missing",
        "pods are refused: their service account does not exist",
        refused(_ACCOUNT),
        "service account {account} does not exist.",
        (
            "kubectl create serviceaccount {account} -n {namespace}, or correct serviceAccountName in the template",
        ),
    ),
    Rule(
        "priority-class-missing",
        "pods are refused: their priority class does not exist",
        refused(_PRIORITY),
        "priority class {priority} does not exist.",
        ("correct priorityClassName in the template: kubectl get priorityclasses",),
    ),
    Rule(
        "webhook-denied",
        "pods are refused by an admission webhook",
        refused(_WEBHOOK),
        "admission webhook {webhook} refuses its pods: {why}.",
        ("change what it names, or ask whoever runs that webhook",),
    ),
    Rule(
        "create-forbidden",
        "the operator may not create what the job needs",
        refused(_USER),
        "{user} may not {verb} {what} in namespace {namespace}.",
        ("grant it: kubectl create rolebinding or the operator's ClusterRole",),
    ),
    Rule(
        "pods-refused",
        "pods are refused, for any other reason",
        refused(re.compile(r"(?P<why>.+)", re.DOTALL)),
        "the server refuses what it needs: {why}.",
        ("correct what the message names", "{again}"),
    ),
)
