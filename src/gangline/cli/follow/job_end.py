"""Ends a job of a local run from outside: its status says that it has failed, and why."""

from datetime import datetime

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.training import ConditionType, Failure, JobStatus, TrainingJob
from gangline.jobs.executor import merge_patch_between
from gangline.jobs.plan.conditions import status_with_condition
from gangline.kube.client import Client
from gangline.kube.errors import Conflict

MAX_TRIES = 10


async def fail_job(client: Client, job: TrainingJob, failure: Failure, message: str, now: datetime) -> None:
    """Write the end into the status of a job that has not finished. The operator then cleans up as after any failure.

    Raises `KubeError`.
    """
    for _ in range(MAX_TRIES):
        newest = await client.get(type(job), job.metadata.key)
        if newest.status.finished:
            return
        status = failed_status(newest, failure, message, now)
        try:
            await client.patch(
                type(job),
                job.metadata.key,
                {"status": merge_patch_between(to_json(newest.status), to_json(status))},
                subresource="status",
                resource_version=newest.metadata.resource_version,
            )
            return
        except Conflict:
            continue


def failed_status(job: TrainingJob, failure: Failure, message: str, now: datetime) -> JobStatus:
    """The status of a job that ends now by this failure."""
    status = status_with_condition(job.status, ConditionType.FAILED, f"{job.KIND}Failed", message, now)
    return msgspec.structs.replace(status, first_failure=status.first_failure or failure)
