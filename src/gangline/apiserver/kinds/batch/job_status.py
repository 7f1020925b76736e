"""What the status of a Job may say."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import metadata
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.schema.problems import NO_VALUE, FieldProblem, invalid, required


def _is_condition_true(status: JSON, kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in status.get("conditions", ()))


def validate_job_status(obj: JSON, old: JSON) -> list[FieldProblem]:
    status, before = obj["status"], old.get("status", {})
    found: list[FieldProblem] = []
    for name in ("active", "succeeded", "failed", "ready", "terminating"):
        found += validate_non_negative(f"status.{name}", status.get(name, 0))
    found += _validate_conditions(status)
    found += _validate_finished_status(status)
    for name in ("Failed", "Complete", "FailureTarget"):
        if _is_condition_true(before, name) and not _is_condition_true(status, name):
            told = f"cannot disable the terminal {name}=True condition"
            found.append(invalid("status.conditions", NO_VALUE, told))
    for name in ("failed", "succeeded"):
        if status.get(name, 0) < before.get(name, 0):
            told = f"cannot decrease the {name} counter"
            found.append(invalid(f"status.{name}", status.get(name, 0), told))
    ended, was = status.get("completionTime"), before.get("completionTime")
    if ended and was and ended != was:
        found.append(invalid("status.completionTime", ended, metadata.IMMUTABLE_MESSAGE))
    started = before.get("startTime")
    if started and status.get("startTime") != started and not obj["spec"].get("suspend"):
        told = "startTime cannot be removed for unsuspended job"
        found.append(required("status.startTime", told))
    return found


def _validate_conditions(status: JSON) -> list[FieldProblem]:
    complete, failed = _is_condition_true(status, "Complete"), _is_condition_true(status, "Failed")
    target, met = (
        _is_condition_true(status, "FailureTarget"),
        _is_condition_true(status, "SuccessCriteriaMet"),
    )
    ended, started = status.get("completionTime"), status.get("startTime")
    found: list[FieldProblem] = []

    def wrong(told: str) -> None:
        found.append(invalid("status.conditions", NO_VALUE, told))

    if complete and failed:
        wrong("cannot set Complete=True and Failed=true conditions")
    if complete and target:
        wrong("cannot set Complete=True and FailureTarget=true conditions")
    if ended and not complete:
        told = "cannot set completionTime when there is no Complete=True condition"
        found.append(invalid("status.completionTime", ended, told))
    if complete and not ended:
        found.append(required("status.completionTime", "completionTime is required for Complete jobs"))
    if started and ended and ended < started:
        told = "must be equal to or after `startTime`"
        found.append(invalid("status.completionTime", ended, told))
    if failed and not target:
        wrong("cannot set Failed=True condition without the FailureTarget=true condition")
    if complete and not met:
        wrong("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    return found


def _validate_finished_status(status: JSON) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    done = _is_condition_true(status, "Complete") or _is_condition_true(status, "Failed")
    if done and status.get("active", 0) > 0:
        told = "active>0 is invalid for finished job"
        found.append(invalid("status.active", status["active"], told))
    if done and not status.get("startTime"):
        found.append(required("status.startTime", "startTime is required for finished job"))
    if done and status.get("terminating", 0) > 0:
        told = "terminating>0 is invalid for finished job"
        found.append(invalid("status.terminating", status["terminating"], told))
    if "ready" in status and status["ready"] > status.get("active", 0):
        told = "cannot set more ready pods than active"
        found.append(invalid("status.ready", status["ready"], told))
    met = _is_condition_true(status, "SuccessCriteriaMet")
    for name in ("Failed", "FailureTarget"):
        if met and _is_condition_true(status, name):
            told = f"cannot set SuccessCriteriaMet=True and {name}=true conditions"
            found.append(invalid("status.conditions", NO_VALUE, told))
    return found
