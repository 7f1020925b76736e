"""Jobs with histories, for tests of notifications: each step is what the operator's plan would write."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import ConditionType, Failure, JobStatus
from gangline.jobs.plan.conditions import created_status, status_with_condition
from gangline.notify.plan.routes import NotificationRoute, NotificationSettings
from gangline.testing.builders import make_job
from support.builders.observed_jobs import with_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKER_FAILURE = Failure(
    replica="worker-1", exit_code=1, message="CUDA out of memory", log=("step 1", "RuntimeError: CUDA out of memory")
)


class JobHistory:
    """A job whose status changes step by step, one second apart unless told otherwise."""

    def __init__(self, name: str = "bert", namespace: str = "team-a", now: datetime = NOW, **labels: str) -> None:
        self.now = now
        job = make_job(PYTORCHJOB, name, master=1, worker=2)
        uid = f"uid-of-{name}"
        self.job: Any = with_status(job, JobStatus(), uid=uid, namespace=namespace, labels=labels)

    @property
    def status(self) -> JobStatus:
        status: JobStatus = self.job.status
        return status

    def wait(self, seconds: float) -> "JobHistory":
        self.now += timedelta(seconds=seconds)
        return self

    def create(self) -> "JobHistory":
        return self._write(created_status(self.job, self.now))

    def run(self) -> "JobHistory":
        return self._set(ConditionType.RUNNING)

    def restart(self, count: int = 1) -> "JobHistory":
        status = status_with_condition(self.status, ConditionType.RESTARTING, "Restarting", "it restarts", self.now)
        restarts = status.restarts + count
        failure = msgspec.structs.replace(WORKER_FAILURE, time=self.now)
        return self._write(msgspec.structs.replace(status, restarts=restarts, first_failure=failure))

    def suspend(self) -> "JobHistory":
        if self.status.holds(ConditionType.RUNNING):
            status = status_with_condition(self.status, ConditionType.RUNNING, "Suspended", "", self.now, value="False")
            self.job = with_status(self.job, status)
        return self._set(ConditionType.SUSPENDED)

    def resume(self) -> "JobHistory":
        return self._set(ConditionType.SUSPENDED, "False")

    def block(self) -> "JobHistory":
        return self._set(ConditionType.BLOCKED)

    def succeed(self) -> "JobHistory":
        return self._set(ConditionType.SUCCEEDED)

    def fail(self) -> "JobHistory":
        self.job = with_status(self.job, msgspec.structs.replace(self.status, first_failure=WORKER_FAILURE))
        return self._set(ConditionType.FAILED)

    def _set(self, kind: ConditionType, value: str = "True") -> "JobHistory":
        message = f"PyTorchJob {self.job.metadata.name}: {kind}"
        return self._write(
            status_with_condition(self.status, kind, f"Job{kind}{value}", message, self.now, value=value)
        )

    def _write(self, status: JobStatus) -> "JobHistory":
        self.job = with_status(self.job, status)
        return self.wait(1)


def settings_of(*routes: NotificationRoute, **settings: Any) -> NotificationSettings:
    """Settings with these routes; without any, with one called `all`."""
    return NotificationSettings(routes=routes or (webhook_route("all"),), **settings)


def webhook_route(name: str, **fields: Any) -> NotificationRoute:
    return NotificationRoute(name=name, **{"url": f"http://127.0.0.1/{name}", **fields})
