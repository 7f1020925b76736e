"""What all kinds of training job share on the wire: replicas, run policy, status (`kubeflow.org/v1`)."""

from enum import StrEnum
from typing import ClassVar

import msgspec

from gangline.api.meta import JSON, Condition, Object, Time, Wire

GROUP = "kubeflow.org"
VERSION = "v1"

JOB_NAME = "training.kubeflow.org/job-name"
OPERATOR_NAME = "training.kubeflow.org/operator-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"

ADDRESSES = "local.gangline.dev/addresses"
"""Annotation of a Service on the local plane: its ports' real addresses, as JSON by port name."""


class ConditionType(StrEnum):
    CREATED = "Created"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class CleanPodPolicy(StrEnum):
    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class ReplicaSpec(Wire, frozen=True):
    replicas: int | None = None
    # A template stays JSON: we add to it and pass it on whole, whatever fields it has.
    template: JSON = {}
    restart_policy: str = ""


class RunPolicy(Wire, frozen=True):
    clean_pod_policy: str = ""
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False
    managed_by: str | None = None


class ReplicaStatus(Wire, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0


class JobStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = {}
    start_time: Time | None = None
    completion_time: Time | None = None

    def condition(self, kind: ConditionType) -> Condition | None:
        return next((found for found in self.conditions if found.type == kind), None)

    def holds(self, kind: ConditionType) -> bool:
        """Whether that condition is there and True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def finished(self) -> bool:
        return self.holds(ConditionType.SUCCEEDED) or self.holds(ConditionType.FAILED)


class TrainingJob(Object, frozen=True):
    """Any kind of training job: what the engine reads of all of them."""

    KIND: ClassVar[str]
    status: JobStatus = msgspec.field(default_factory=JobStatus)
