"""Validation of the status of Jobs."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.schema.problems import NO_VALUE, FieldProblem, invalid, required


def _is_condition_true(status: JSON, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in status.get("conditions", ()))


def validate_job_status(obj: JSON, old: JSON) -> list[FieldProblem]:
    status, before = obj["status"], old.get("status", {})
    problems: list[FieldProblem] = []
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        problems += validate_non_negative(f"status.{name}", status.get(name, 0))
    problems += _validate_conditions(status)
    problems += _validate_finished_status(status)
    for name in ("Failed", "Complete", "FailureTarget"):
        if _is_condition_true(before, name) and not _is_condition_true(status, name):
            detail = f"cannot disable the terminal {name}=True condition"
            problems.append(invalid("status.conditions", NO_VALUE, detail))
    for name in ("failed", "succeeded"):
        if status.get(name, 0) < before.get(name, 0):
            detail = f"cannot decrease the {name} counter"
            problems.append(invalid(f"status.{name}", status.get(name, 0), detail))
    ended, earlier_completion = status.get("completionTime"), before.get("completionTime")
    if ended and earlier_completion and ended != earlier_completion:
        problems.append(invalid("status.completionTime", ended, metadata.IMMUTABLE_MESSAGE))
    started = before.get("startTime")
    if started and status.get("startTime") != started and not obj["spec"].get("suspend"):
        detail = "startTime cannot be removed for unsuspended job"
        problems.append(required("status.startTime", detail))
    return problems


def _validate_conditions(status: JSON) -> list[FieldProblem]:
    complete, failed = _is_condition_true(status, "Complete"), _is_condition_true(status, "Failed")
    target, met = (_is_condition_true(status, "FailureTarget"), _is_condition_true(status, "SuccessCriteriaMet"))
    ended, started = status.get("completionTime"), status.get("startTime")
    problems: list[FieldProblem] = []

    def add_problem(detail: str) -> None:
        problems.append(invalid("status.conditions", NO_VALUE, detail))

    if complete and failed:
        add_problem("cannot set Complete=True and Failed=true conditions")
    if complete and target:
        add_problem("cannot set Complete=True and FailureTarget=true conditions")
    if ended and not complete:
        detail = "cannot set completionTime when there is no Complete=True condition"
        problems.append(invalid("status.completionTime", ended, detail))
    if complete and not ended:
        problems.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if started and ended and ended < started:
        detail = "must be equal to or after `startTime`"
        problems.append(invalid("status.completionTime", ended, detail))
    if failed and not target:
        add_problem("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met:
        add_problem("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    return problems


def _validate_finished_status(status: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    done = _is_condition_true(status, "Complete") or _is_condition_true(status, "Failed")
    if done and status.get("active", 0) > 0:
        detail = "active>0 is invalid for finished job"
        problems.append(invalid("status.active", status["active"], detail))
    if done and not status.get("startTime"):
        problems.append(required("status.startTime", "startTime is required for finished job"))
    if done and status.get("terminating", 0) > 0:
        detail = "terminating>0 is invalid for finished job"
        problems.append(invalid("status.terminating", status["terminating"], detail))
    if "ready" in status and status["ready"] > status.get("active", 0):
        detail = "cannot set more ready pods than active"
        problems.append(invalid("status.ready", status["ready"], detail))
    met = _is_condition_true(status, "SuccessCriteriaMet")
    for name in ("Failed", "FailureTarget"):
        if met and _is_condition_true(status, name):
            detail = f"cannot set SuccessCriteriaMet=True and {name}=true conditions"
            problems.append(invalid("status.conditions", NO_VALUE, detail))
    return problems
