"""A script of real torch without any file: what it lacks, how it crashes, and what it survives."""

import os
import re
import signal
import sys
import textwrap
from pathlib import Path

from support.frameworks import FrameworkEnvironments, JobRunner

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"

SLOW = """\
    import os, time
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} under {os.getppid()}", flush=True)
    for step in range(40):
        total = torch.ones(1)
        dist.all_reduce(total)
        time.sleep(0.1)
    print(f"trained: {total.item():g}", flush=True)
"""
CRASHES = """\
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    dist.barrier()
    if dist.get_rank() == 1:
        raise ValueError("bad batch")
    dist.all_reduce(torch.ones(1))
"""


def script(folder: Path, text: str) -> str:
    file = folder / "script.py"
    file.write_text(textwrap.dedent(text))
    return str(file)


def test_without_torch_the_run_ends_with_what_to_type(jobs: JobRunner) -> None:
    with jobs.start_command("--nproc", "2", "--", sys.executable, str(EXAMPLES / "train_torch.py")) as job:
        output = job.wait_for_exit(100)
    assert re.search(
        r"^Failed in .* s: torch is not installed in this Python \(\S+\); install it: \S.* install torch$",
        output.text,
        re.MULTILINE,
    )


def test_the_rank_that_crashed_is_named_first(
    frameworks: FrameworkEnvironments, jobs: JobRunner, tmp_path: Path
) -> None:
    python = str(frameworks.environment("torch") / "bin" / "python")
    with jobs.start_command("--nproc", "3", "--", python, script(tmp_path, CRASHES)) as job:
        output = job.wait_for_exit(100)
    assert "first to fail: worker-0 (rank 1) with exit code 1" in output.text
    assert re.search(r"worker-0\| .*ValueError: bad batch", output.text)


def test_an_elastic_team_survives_the_loss_of_a_replica(
    frameworks: FrameworkEnvironments, jobs: JobRunner, tmp_path: Path
) -> None:
    python = str(frameworks.environment("torch") / "bin" / "python")
    with jobs.start_command("--nproc", "2:3", "--", python, script(tmp_path, SLOW)) as job:
        # Of torchrun, not of the script that it started.
        agent = job.wait_for_line(r"worker-\d\| rank 1 of 3 under (\d+)")[1]
        os.kill(int(agent), signal.SIGKILL)
        output = job.wait_for_exit(0)
    assert re.search(r"\| trained: 3$", output.text, re.MULTILINE)
