"""CronJobs and their schedules."""

import re
import zoneinfo

from gangline.api.meta import JSON
from gangline.apiserver.kinds.batch import job as batch_job
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.apiserver.kinds.pod import strategy, templates
from gangline.schema.problems import FieldProblem, invalid, required, unsupported


class CronJobStatusStrategy(StatusStrategy):
    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return []


class CronJobStrategy(Strategy):
    struct = "batch.v1.CronJob"
    has_status = True
    status_strategy = CronJobStatusStrategy
    has_generation = True

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        job = spec["jobTemplate"]["spec"]
        templates.set_template_defaults(job["template"])
        batch_job.set_policy_defaults(job)
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        super().prepare_for_create(obj, now)
        strategy.drop_disabled_fields(obj["spec"]["jobTemplate"]["spec"]["template"]["spec"])

    def validate(self, obj: JSON) -> list[FieldProblem]:
        problems = super().validate(obj)
        name = obj["metadata"].get("name", "")
        if len(name) > 52:
            problems.append(invalid("metadata.name", name, "must be no more than 52 characters"))
        return problems

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = _validate_schedule(spec)
        problems += validate_non_negative("spec.startingDeadlineSeconds", spec.get("startingDeadlineSeconds", 0))
        if "timeZone" in spec:
            problems += _validate_time_zone(spec["timeZone"], "spec.timeZone")
        supported = ("Allow", "Forbid", "Replace")
        if spec["concurrencyPolicy"] not in supported:
            problems.append(unsupported("spec.concurrencyPolicy", spec["concurrencyPolicy"], supported))
        problems += _validate_job_template(spec["jobTemplate"]["spec"], "spec.jobTemplate.spec")
        problems += validate_non_negative("spec.successfulJobsHistoryLimit", spec["successfulJobsHistoryLimit"])
        return problems + validate_non_negative("spec.failedJobsHistoryLimit", spec["failedJobsHistoryLimit"])

    def warnings(self, obj: JSON, old: JSON | None) -> list[str]:
        return batch_job.job_warnings(obj, old, obj["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec")


def _validate_job_template(spec: JSON, path: str) -> list[FieldProblem]:
    problems = batch_job.validate_job_spec(spec, path)
    if "selector" in spec:
        detail = "`selector` will be auto-generated"
        problems.append(invalid(f"{path}.selector", spec["selector"], detail))
    if spec.get("manualSelector"):
        problems.append(unsupported(f"{path}.manualSelector", spec["manualSelector"], ("nil", "false")))
    return problems


_CRON_DESCRIPTORS = frozenset({"@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"})
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_CRON_FIELDS = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 6, _DAYS))


def _validate_schedule(spec: JSON) -> list[FieldProblem]:
    schedule, path = spec.get("schedule", ""), "spec.schedule"
    if not schedule:
        return [required(path)]
    problems: list[FieldProblem] = []
    if detail := _schedule_error(schedule):
        problems.append(invalid(path, schedule, detail))
    if "TZ" in schedule:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        problems.append(invalid(path, schedule, detail))
    return problems


def _schedule_error(schedule: str) -> str:
    """What is wrong with a cron schedule, in the words of the Go library; empty for a valid one."""
    text = re.sub(r"^(CRON_)?TZ=\S*\s+", "", schedule)
    if text.startswith("@"):
        if text in _CRON_DESCRIPTORS or re.fullmatch(r"@every ([0-9.]+(ns|us|ms|s|m|h))+", text):
            return ""
        return f"unrecognized descriptor: {text}"
    fields = text.split()
    if len(fields) != len(_CRON_FIELDS):
        return f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
    for field, (low, high, names) in zip(fields, _CRON_FIELDS, strict=True):
        for part in field.split(","):
            if message := _cron_field_error(part, low, high, names):
                return message
    return ""


def _cron_field_error(part: str, low: int, high: int, names: tuple[str, ...]) -> str:
    span, slash, step = part.partition("/")
    if slash and (not step.isdigit() or int(step) == 0):
        return (
            f"failed to parse int from {step}"
            if not step.isdigit()
            else f"step of range should be a positive number: {part}"
        )
    if span in {"*", "?"}:
        return ""
    first, dash, last = span.partition("-")
    numbers: list[int] = []
    for text in (first, last) if dash else (first,):
        if text.lower() in names:
            numbers.append(names.index(text.lower()) + low)
        elif text.isdigit():
            numbers.append(int(text))
        else:
            return f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
    if numbers[0] < low:
        return f"beginning of range ({numbers[0]}) below minimum ({low}): {part}"
    if numbers[-1] > high:
        return f"end of range ({numbers[-1]}) above maximum ({high}): {part}"
    if numbers[0] > numbers[-1]:
        return f"beginning of range ({numbers[0]}) beyond end of range ({numbers[-1]}): {part}"
    return ""


def _validate_time_zone(zone: str, path: str) -> list[FieldProblem]:
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    parts = zone.split("/")
    if any(
        part in {".", ".."} or part.startswith("-") or not re.fullmatch(r"[A-Za-z.\-_0-9+]{1,14}", part)
        for part in parts
    ):
        return [invalid(path, zone, f"unknown time zone {zone}")]
    problems: list[FieldProblem] = []
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        problems.append(invalid(path, zone, detail))
    elif not _is_known_time_zone(zone):
        problems.append(invalid(path, zone, f"unknown time zone {zone}"))
    return problems


def _is_known_time_zone(zone: str) -> bool:
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return False
    return True
