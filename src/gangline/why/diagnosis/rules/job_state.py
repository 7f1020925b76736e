"""Rules about the job object itself: spec, operator, suspension, limits."""

from collections.abc import Iterator

from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.report import DiagnosisRule, RuleInput, RuleMatch
from gangline.why.diagnosis.rules.evidence import quoted_line, retry_hint
from gangline.why.diagnosis.rules.no_progress import silent_for
from gangline.why.diagnosis.wording import duration_phrase

OUR_MANAGERS = ("", "kubeflow.org/training-operator")


def invalid_spec(scene: RuleInput) -> Iterator[RuleMatch]:
    job = scene.snapshot.job
    condition = next((entry for entry in job.conditions if entry.reason.endswith("FailedValidation")), None)
    problems = job.problems if _is_unstarted(scene.snapshot) else ()
    if not problems and condition is not None and condition.status == "True":
        problems = (condition.message,)
    if not problems or job.state == "Succeeded":
        return
    evidence = [f"the operator says: {condition.message}"] if condition is not None else []
    evidence += [
        f"event {entry.reason}: {entry.message}"
        for entry in scene.snapshot.events
        if entry.warning and ("Validation" in entry.reason or "Marshal" in entry.reason)
    ]
    values = {"first": problems[0], "field": problems[0].partition(":")[0], "again": retry_hint(job)}
    yield RuleMatch(values=values, evidence=(*problems, *dict.fromkeys(evidence)))


def _is_unstarted(case: JobSnapshot) -> bool:
    """Whether nothing of the job has started. Where pods exist, an operator with other rules accepted the job."""
    if not case.job.has_status:
        return not case.replicas
    return case.job.state in ("Pending", "Created", "Failed") and not case.replicas and not case.pods_unreadable


def managed_elsewhere(scene: RuleInput) -> Iterator[RuleMatch]:
    job = scene.snapshot.job
    if job.managed_by in OUR_MANAGERS or job.is_finished:
        return
    yield RuleMatch(
        values={"manager": job.managed_by},
        evidence=(f'spec.runPolicy.managedBy is "{job.managed_by}"', "so this operator leaves it alone"),
    )


def _is_unnoticed(scene: RuleInput) -> bool:
    """Whether there is no status, no event and no pod. An operator whose requests all fail still emits events."""
    case = scene.snapshot
    return not case.is_acknowledged and case.elapsed_since(case.job.created_at) >= case.timeouts.unnoticed_after


def no_operator(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    if not _is_unnoticed(scene) or case.operator.signs_of_life:
        return
    looked = (
        "no Lease is renewed and no operator pod runs"
        if case.operator.search_complete
        else "none was found where it could be looked for"
    )
    yield RuleMatch(
        values={"age": duration_phrase(case.elapsed_since(case.job.created_at)), "job": case.job.name},
        evidence=(
            f"it has no status and no events, {duration_phrase(case.elapsed_since(case.job.created_at))} after it was created",
            looked,
            *case.operator.unhealthy_pods,
        ),
    )


def operator_silent(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    if not _is_unnoticed(scene) or not case.operator.signs_of_life:
        return
    log_lines = [quoted_line("operator", line) for line in case.operator.log[-5:]]
    yield RuleMatch(
        values={
            "age": duration_phrase(case.elapsed_since(case.job.created_at)),
            "sign": case.operator.signs_of_life[0],
            "job": case.job.name,
        },
        evidence=(
            f"it has no status, {duration_phrase(case.elapsed_since(case.job.created_at))} after it was created",
            *case.operator.signs_of_life,
            *case.operator.unhealthy_pods,
            *(("what the operator logged about it:", *log_lines) if log_lines else ()),
        ),
    )


def kueue_admission(scene: RuleInput) -> Iterator[RuleMatch]:
    case = scene.snapshot
    if not case.job.suspended or not case.job.queue or case.job.is_finished:
        return
    messages = [event.message for event in case.events if "Quota" in event.reason or event.reason == "Pending"]
    yield RuleMatch(
        values={"queue": case.job.queue, "job": case.job.name, "namespace": case.job.namespace},
        evidence=(
            f"{case.job.suspend_field} is true, and Kueue's queue label says {case.job.queue}",
            *messages[-1:],
        ),
    )


def deadline_exceeded(scene: RuleInput) -> Iterator[RuleMatch]:
    job = scene.snapshot.job
    failed = job.true_condition("Failed")
    if failed is None or not ("deadline" in failed.message.lower() or failed.reason == "DeadlineExceeded"):
        return
    limit = f"{job.deadline} s" if job.deadline is not None else "the limit"
    first = job.first_failure
    more = (f"before that, {first.replica} had failed: {first.reason or first.exit_code}",) if first else ()
    values = {"limit": limit, "field": f"{job.limits_field}.activeDeadlineSeconds", "again": retry_hint(job)}
    yield RuleMatch(values=values, evidence=(f"{failed.reason}: {failed.message}", *more))


def backoff_limit(scene: RuleInput) -> Iterator[RuleMatch]:
    """Matches only if nothing shows what failed; otherwise that failure is the cause."""
    job = scene.snapshot.job
    failed = job.true_condition("Failed")
    if failed is None or scene.failures.primary or not _reached_backoff_limit(failed.reason, failed.message):
        return
    limit = str(job.backoff_limit) if job.backoff_limit is not None else "its limit"
    values = {"limit": limit, "field": f"{job.limits_field}.backoffLimit", "again": retry_hint(job)}
    gone = "its pods are gone, and with them their logs" if not scene.snapshot.replicas else "no pod tells why"
    yield RuleMatch(values=values, evidence=(f"{failed.reason}: {failed.message}", gone))


def _reached_backoff_limit(reason: str, message: str) -> bool:
    return "backoff" in message.lower() or reason in ("BackoffLimitExceeded", "PodFailurePolicy")


def unknown_failure(scene: RuleInput) -> Iterator[RuleMatch]:
    job = scene.snapshot.job
    failed = job.true_condition("Failed")
    if job.state != "Failed" or scene.failures.primary:
        return
    told = f"{failed.reason}: {failed.message}" if failed is not None else "its status says so and no more"
    warnings = [f"event {one.reason}: {one.message}" for one in scene.snapshot.events if one.warning]
    yield RuleMatch(values={"again": retry_hint(job)}, evidence=(told, *dict.fromkeys(warnings)))


def run_stopped(scene: RuleInput) -> Iterator[RuleMatch]:
    """Matches only if nothing else was wrong when the run was stopped."""
    case, job = scene.snapshot, scene.snapshot.job
    if not job.run_end_reason or job.is_finished:
        return
    again = f"run it again: {job.run_command}" if job.run_command else retry_hint(job)
    values, evidence = {"reason": job.run_end_reason, "again": again}, list[str]()
    silence = silent_for(case)
    if silence is not None and silence >= case.timeouts.hung_after:
        evidence.append(f"no replica had written a line for {duration_phrase(silence)} then")
        values["hung"] = f"does it hang? type this while it runs: gangline why {job.name}"
    yield RuleMatch(values=values, evidence=tuple(evidence))


JOB_RULES = (
    DiagnosisRule(
        "spec-invalid",
        "the spec breaks a rule of its kind, or the operator has said FailedValidation",
        invalid_spec,
        "the spec cannot run: {first}",
        ("correct {field} in its file", "{again}"),
    ),
    DiagnosisRule(
        "managed-elsewhere",
        "runPolicy.managedBy names another manager",
        managed_elsewhere,
        "it is managed by {manager}, not by the training operator.",
        ("look there, or remove spec.runPolicy.managedBy and submit it again",),
    ),
    DiagnosisRule(
        "no-operator",
        "no status after 15 s, and no sign of an operator",
        no_operator,
        "no operator is running that would look after it.",
        (
            "start one: gangline operator, or on this machine: gangline up",
            "is one meant to run? kubectl get deployments -A | grep operator",
        ),
    ),
    DiagnosisRule(
        "operator-silent",
        "no status after 15 s, though an operator is there",
        operator_silent,
        "the operator has not taken notice of it, though there is one ({sign}).",
        (
            "look whether it watches this namespace and this kind, and into its log: kubectl logs -A -l control-plane --tail 100 | grep {job}",
        ),
    ),
    DiagnosisRule(
        "queued",
        "suspended, with the label of a Kueue queue",
        kueue_admission,
        "it waits in queue {queue} until Kueue lets it in.",
        ("see what is before it: kubectl describe workloads -n {namespace} | grep -A20 {job}",),
    ),
    DiagnosisRule(
        "deadline",
        "Failed, and the message speaks of the deadline",
        deadline_exceeded,
        "it ran longer than {field} allows ({limit}).",
        ("raise or remove {field}, or make the job shorter", "{again}"),
    ),
)
"""Tried before the rules about pods."""

FALLBACK_RULES = (
    DiagnosisRule(
        "backoff-limit",
        "Failed by its backoff limit, and nothing is left that says what failed",
        backoff_limit,
        "it failed as often as {field} allows ({limit}).",
        (
            "run it once with restartPolicy: Never and cleanPodPolicy: None: then pods and logs stay, and say why",
            "{again}",
        ),
    ),
    DiagnosisRule(
        "failed",
        "Failed, and nothing is left that says why",
        unknown_failure,
        "it failed, and nothing is left that says why.",
        ("set cleanPodPolicy: None to keep the pods and their logs, and run it once more", "{again}"),
    ),
    DiagnosisRule(
        "run-stopped",
        "the run was interrupted or its `--timeout` was over, and nothing else was wrong then",
        run_stopped,
        "{reason}.",
        ("{again}", "{hung}"),
    ),
)
"""Tried if no other rule matches."""
