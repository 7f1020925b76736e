"""A replica that is killed in the middle of real training."""

import os
import signal
from pathlib import Path

import psutil

from support.frameworks import FrameworkEnvironments, JobRunner

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "frameworks"


def mapping(environment: Path) -> str:
    return f"""\
"gangline/examples*":
  environment: {environment}
  paths: {{/examples: {EXAMPLES}}}
"""


def kill(pid: int | str) -> None:
    os.kill(int(pid), signal.SIGKILL)


def find(script: str, variable: str, text: str) -> int:
    """The process that runs a script and has a text in a variable."""
    for process in psutil.process_iter():
        try:
            words, variables = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        # Its supervisor has the same words among others.
        if words[:1] == ["python"] and words[1].endswith(script) and text in variables.get(variable, ""):
            return process.pid
    raise AssertionError(f"nothing runs {script} with {text!r} in {variable}")


def test_a_killed_rank_of_torch_restarts_its_whole_team(frameworks: FrameworkEnvironments, jobs: JobRunner) -> None:
    jobs.map_images(mapping(frameworks.environment("torch")))
    with jobs.start(HERE / "killed-ddp.yaml") as job:
        # The line of worker 0 comes before its first step.
        pid = job.wait_for_line(r"worker-0\| rank=1 world=2 pid=(\d+)")[1]
        job.wait_for_line(r"worker-0\| step=50 ")
        kill(pid)
        output = job.wait_for_exit(0)
    # The master did not stay behind with a peer that is gone: it has begun anew as well.
    assert output.member_log("master-0").count("rank=0 world=2") == 2
    assert "trained: " in output.member_log("master-0")


def test_a_killed_process_under_torchrun_joins_again_without_a_new_pod(
    frameworks: FrameworkEnvironments, jobs: JobRunner
) -> None:
    jobs.map_images(mapping(frameworks.environment("torch")))
    with jobs.start(HERE / "killed-torchrun.yaml") as job:
        pid = job.wait_for_line(r"worker-1\| rank=\d world=2 pid=(\d+)")[1]
        job.wait_for_line(r"worker-1\| step=50 ")
        kill(pid)
        output = job.wait_for_exit(0)
    assert output.member_log("worker-0").count(" world=2 ") == 2
    assert output.text.count("worker-1   running") == 1
    assert "trained: " in output.text


def test_a_team_is_restarted_although_lightgbm_hangs_when_a_peer_dies(
    frameworks: FrameworkEnvironments, jobs: JobRunner
) -> None:
    jobs.map_images(mapping(frameworks.environment("light")))
    with jobs.start(HERE / "killed-lightgbm.yaml") as job:
        job.wait_for_line(r"worker-0\| .*Local rank: 1,")
        kill(find("lightgbm_trees.py", "RANK", "1"))
        output = job.wait_for_exit(0)
    assert output.member_log("master-0").count("Trying to bind port") == 2
    assert "trained: " in output.member_log("master-0")


def test_a_parameter_server_job_goes_on_without_a_worker_that_was_killed(
    frameworks: FrameworkEnvironments, jobs: JobRunner
) -> None:
    jobs.map_images(mapping(frameworks.environment("tensorflow")))
    with jobs.start(HERE / "killed-ps.yaml") as job:
        job.wait_for_line(r"chief-0\| the weights are on ")
        kill(find("tensorflow_ps.py", "TF_CONFIG", '"task":{"type":"worker","index":0}'))
        output = job.wait_for_exit(0)
    assert "trained: " in output.member_log("chief-0")
