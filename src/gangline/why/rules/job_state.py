"""What the job says of itself: spec, operator, suspension, limits."""

from collections.abc import Iterator

from gangline.why.model.case import Case
from gangline.why.model.report import Match, Rule, Scene
from gangline.why.model.wording import lasting
from gangline.why.rules.evidence import again, quoted

MINE = ("", "kubeflow.org/training-operator")


def invalid(scene: Scene) -> Iterator[Match]:
    job = scene.case.job
    told = next((one for one in job.conditions if one.reason.endswith("FailedValidation")), None)
    problems = job.problems if _idle(scene.case) else ()
    if not problems and told is not None and told.status == "True":
        problems = (told.message,)
    if not problems or job.state == "Succeeded":
        return
    said = [f"the operator says: {told.message}"] if told is not None else []
    said += [
        f"event {one.reason}: {one.message}"
        for one in scene.case.events
        if one.warning and ("Validation" in one.reason or "Marshal" in one.reason)
    ]
    values = {"first": problems[0], "field": problems[0].partition(":")[0], "again": again(job)}
    yield Match(values=values, evidence=(*problems, *dict.fromkeys(said)))


def _idle(case: Case) -> bool:
    """Nothing has come of it. Where something has, its operator's rules are not ours."""
    if not case.job.noticed:
        return not case.replicas
    return case.job.state in ("Pending", "Created", "Failed") and not case.replicas and not case.blind


def elsewhere(scene: Scene) -> Iterator[Match]:
    job = scene.case.job
    if job.managed_by in MINE or job.finished:
        return
    yield Match(
        values={"manager": job.managed_by},
        evidence=(f'spec.runPolicy.managedBy is "{job.managed_by}"', "so this operator leaves it alone"),
    )


def _unnoticed(scene: Scene) -> bool:
    """No status, no event, no pod. An operator whose tries are all refused may write no status, but it tells."""
    case = scene.case
    return not case.touched and case.since(case.job.created) >= case.patience.notice


def no_operator(scene: Scene) -> Iterator[Match]:
    case = scene.case
    if not _unnoticed(scene) or case.operator.signs:
        return
    looked = (
        "no Lease is renewed and no operator pod runs"
        if case.operator.searched
        else "none was found where it could be looked for"
    )
    yield Match(
        values={"age": lasting(case.since(case.job.created)), "job": case.job.name},
        evidence=(
            f"it has no status and no events, {lasting(case.since(case.job.created))} after it was created",
            looked,
            *case.operator.ill,
        ),
    )


def operator_silent(scene: Scene) -> Iterator[Match]:
    case = scene.case
    if not _unnoticed(scene) or not case.operator.signs:
        return
    said = [quoted("operator", line) for line in case.operator.log[-5:]]
    yield Match(
        values={
            "age": lasting(case.since(case.job.created)),
            "sign": case.operator.signs[0],
            "job": case.job.name,
        },
        evidence=(
            f"it has no status, {lasting(case.since(case.job.created))} after it was created",
            *case.operator.signs,
            *case.operator.ill,
            *(("what the operator logged about it:", *said) if said else ()),
        ),
    )


def queued(scene: Scene) -> Iterator[Match]:
    case = scene.case
    if not case.job.suspended or not case.job.queue or case.job.finished:
        return
    told = [one.message for one in case.events if "Quota" in one.reason or one.reason == "Pending"]
    yield Match(
        values={"queue": case.job.queue, "job": case.job.name, "namespace": case.job.namespace},
        evidence=(
            f"{case.job.suspend_field} is true, and Kueue's queue label says {case.job.queue}",
            *told[-1:],
        ),
    )


def deadline(scene: Scene) -> Iterator[Match]:
    job = scene.case.job
    failed = job.condition("Failed")
    if failed is None or not ("deadline" in failed.message.lower() or failed.reason == "DeadlineExceeded"):
        return
    limit = f"{job.deadline} s" if job.deadline is not None else "the limit"
    first = job.first_failure
    more = (f"before that, {first.replica} had failed: {first.reason or first.exit_code}",) if first else ()
    values = {"limit": limit, "field": f"{job.limits_field}.activeDeadlineSeconds", "again": again(job)}
    yield Match(values=values, evidence=(f"{failed.reason}: {failed.message}", *more))


def backoff(scene: Scene) -> Iterator[Match]:
    """Only when nothing is left that says what failed: else that is the cause."""
    job = scene.case.job
    failed = job.condition("Failed")
    if failed is None or scene.team.ends or not _limited(failed.reason, failed.message):
        return
    limit = str(job.backoff_limit) if job.backoff_limit is not None else "its limit"
    values = {"limit": limit, "field": f"{job.limits_field}.backoffLimit", "again": again(job)}
    gone = "its pods are gone, and with them their logs" if not scene.case.replicas else "no pod tells why"
    yield Match(values=values, evidence=(f"{failed.reason}: {failed.message}", gone))


def _limited(reason: str, message: str) -> bool:
    return "backoff" in message.lower() or reason in ("BackoffLimitExceeded", "PodFailurePolicy")


def failed_somehow(scene: Scene) -> Iterator[Match]:
    job = scene.case.job
    failed = job.condition("Failed")
    if job.state != "Failed" or scene.team.ends:
        return
    told = f"{failed.reason}: {failed.message}" if failed is not None else "its status says so and no more"
    warnings = [f"event {one.reason}: {one.message}" for one in scene.case.events if one.warning]
    yield Match(values={"again": again(job)}, evidence=(told, *dict.fromkeys(warnings)))


RULES = (
    Rule(
        "spec-invalid",
        "the spec breaks a rule of its kind, or the operator has said FailedValidation",
        invalid,
        "the spec cannot run: {first}",
        ("correct {field} in the file, and check it before you submit: gangline check FILE", "{again}"),
    ),
    Rule(
        "managed-elsewhere",
        "runPolicy.managedBy names another manager",
        elsewhere,
        "it is managed by {manager}, not by the training operator.",
        ("look there, or remove spec.runPolicy.managedBy and submit it again",),
    ),
    Rule(
        "no-operator",
        "no status after 15 s, and no sign of an operator",
        no_operator,
        "no operator is running that would look after it.",
        (
            "start one: gangline operator, or on this machine: gangline up",
            "is one meant to run? kubectl get deployments -A | grep operator",
        ),
    ),
    Rule(
        "operator-silent",
        "no status after 15 s, though an operator is there",
        operator_silent,
        "the operator has not taken notice of it, though there is one ({sign}).",
        (
            "look whether it watches this namespace and this kind, and into its log: kubectl logs -A -l control-plane --tail 100 | grep {job}",
        ),
    ),
    Rule(
        "queued",
        "suspended, with the label of a Kueue queue",
        queued,
        "it waits in queue {queue} until Kueue lets it in.",
        ("see what is before it: kubectl describe workloads -n {namespace} | grep -A20 {job}",),
    ),
    Rule(
        "deadline",
        "Failed, and the message speaks of the deadline",
        deadline,
        "it took longer than it may: {field} is {limit}.",
        ("raise or remove {field}, or make the job shorter", "{again}"),
    ),
)
"""Asked before the pods are looked at."""

LAST = (
    Rule(
        "backoff-limit",
        "Failed by its backoff limit, and nothing is left that says what failed",
        backoff,
        "it failed as often as {field} allows ({limit}).",
        (
            "run it once with restartPolicy: Never and cleanPodPolicy: None: then pods and logs stay, and say why",
            "{again}",
        ),
    ),
    Rule(
        "failed",
        "Failed, and nothing is left that says why",
        failed_somehow,
        "it failed, and nothing is left that says why.",
        ("set cleanPodPolicy: None to keep the pods and their logs, and run it once more", "{again}"),
    ),
)
"""Asked when nothing else fits."""
