"""The state of a job, from its body as the server sends it. Pure."""

from collections.abc import Mapping
from typing import Any

from gangline.api.meta import JSON

STOPPED = "Stopped"
"""The state of a job whose plane does not run. The job continues, or fails, when the plane starts again."""
GENERIC_EXIT_REASONS = ("", "Completed", "Error")
"""Reasons of a terminated container that say no more than its exit code."""


def conditions(job: JSON) -> list[JSON]:
    """The conditions of a job, oldest first."""
    items: list[JSON] = (job.get("status") or {}).get("conditions") or []
    return items


def job_state(job: JSON) -> str:
    """The state of a job in one word: Terminating, how it finished, or its newest condition that is True."""
    if (job.get("metadata") or {}).get("deletionTimestamp"):
        return "Terminating"
    true_types = [condition.get("type", "") for condition in conditions(job) if condition.get("status") == "True"]
    for final in ("Failed", "Succeeded"):
        if final in true_types:
            return final
    return true_types[-1] if true_types else "Pending"


def is_finished(job: JSON) -> bool:
    """Whether the job has succeeded or failed."""
    return has_condition(job, "Succeeded") or has_condition(job, "Failed")


def has_condition(job: JSON, condition_type: str) -> bool:
    """Whether a job has a condition of that type, in any case, and it is True."""
    wanted = condition_type.lower()
    return any(
        condition.get("type", "").lower() == wanted and condition.get("status") == "True"
        for condition in conditions(job)
    )


def replica_specs(job: JSON) -> Mapping[str, JSON]:
    """The replica specs by replica type, from the field of the job's kind (`tfReplicaSpecs`, ...)."""
    for name, value in (job.get("spec") or {}).items():
        if name.endswith("ReplicaSpecs") and isinstance(value, dict):
            return value
    return {}


def replica_counts(job: JSON) -> dict[str, int]:
    """The number of replicas by replica type; 1 where the spec gives none."""
    return {replica_type: _replica_count(spec) for replica_type, spec in replica_specs(job).items()}


def _replica_count(spec: Any) -> int:
    number = (spec or {}).get("replicas")
    return 1 if number is None else int(number)
