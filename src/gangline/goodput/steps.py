"""Which steps of a training are done again after a restart, from what its program reports."""

from typing import NamedTuple
from zlib import crc32

import msgspec

from gangline.api.kubeflow.training import ReachedStep


class ReporterState(NamedTuple):
    """The replica that reports progress: its process, and the last line in the annotation of its pod."""

    # The uid of the pod and its number of restarts; empty while no process runs.
    process: str
    step: float
    # Empty if this pod has not reported anything.
    line: str = ""


def reached_step(before: ReachedStep | None, reporter: ReporterState) -> ReachedStep:
    """The furthest step after a report. A new process repeats steps until it reports that step again itself.

    Only a restart is taken for lost work: a program may count its steps anew in each epoch.
    """
    report = crc32(reporter.line.encode()) if reporter.line else 0
    if before is None:
        return ReachedStep(step=reporter.step, process=reporter.process, report=report)
    is_new = bool(reporter.line) and report != before.report
    if reporter.process and reporter.process != before.process:
        same_pod = reporter.process.rpartition("/")[0] == before.process.rpartition("/")[0]
        # In the same pod a line may be the last one of the process before; that of a new pod is its own.
        caught_up = is_new and not same_pod and reporter.step >= before.step
        return ReachedStep(
            step=max(before.step, reporter.step) if caught_up or not before.repeating else before.step,
            process=reporter.process,
            report=report,
            repeating=not caught_up and bool(before.process),
        )
    if before.repeating:
        caught_up = is_new and reporter.step >= before.step
        step = max(before.step, reporter.step) if caught_up else before.step
        return msgspec.structs.replace(before, step=step, report=report, repeating=not caught_up)
    step = max(before.step, reporter.step) if reporter.line else before.step
    return msgspec.structs.replace(before, step=step, report=report)
