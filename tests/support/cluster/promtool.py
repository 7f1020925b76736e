"""promtool, which checks rules and metrics of Prometheus. hack/promtool.sh fetches it."""

import shutil
import subprocess
from pathlib import Path

from support.requirements import skip_or_fail
from support.servers.real import cache_dir

# kube-batch's names are kept for old boards, although they are not in seconds.
KNOWN_COMPLAINTS = {
    'kube_batch_e2e_scheduling_latency_milliseconds use base unit "seconds" instead of "milliseconds"',
    'kube_batch_task_scheduling_latency_microseconds use base unit "seconds" instead of "microseconds"',
    'kube_batch_unschedule_job_count non-histogram and non-summary metrics should not have "_count" suffix',
    'kube_batch_unschedule_task_count non-histogram and non-summary metrics should not have "_count" suffix',
}


def promtool() -> Path:
    """The program; skips the test where there is none, and fails it in CI."""
    cached = cache_dir().parents[1] / "promtool" / "promtool"
    found = shutil.which("promtool") or (str(cached) if cached.is_file() else None)
    if found is None:
        skip_or_fail("promtool not found: run hack/promtool.sh")
    return Path(found)


def metric_complaints(text: str) -> set[str]:
    """What promtool says against these metrics."""
    command = [str(promtool()), "check", "metrics"]
    ended = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return set((ended.stdout + ended.stderr).splitlines())
