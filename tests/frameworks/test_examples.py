"""Every example really trains: from its YAML, with the framework it is for, on this machine."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from support.frameworks import FrameworkEnvironments, JobRunner

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"


class Example(NamedTuple):
    """Which framework a file needs and who says at the end that it has trained."""

    file: str
    group: str
    trained: tuple[str, ...]


TRAININGS = [
    Example("tfjob-mirrored.yaml", "tensorflow", ("worker-0", "worker-1")),
    Example("tfjob-ps.yaml", "tensorflow", ("chief-0",)),
    Example("pytorchjob-ddp.yaml", "torch", ("master-0", "worker-0", "worker-1")),
    Example("pytorchjob-elastic.yaml", "torch", ("worker-0",)),
    Example("xgboostjob.yaml", "light", ("master-0", "worker-0", "worker-1")),
    Example("xgboostjob-lightgbm.yaml", "light", ("master-0",)),
    Example("jaxjob.yaml", "jax", ("worker-0", "worker-1")),
    Example("mpijob.yaml", "light", ("launcher",)),
    Example("mpijob.yaml", "mpi4", ("launcher",)),
    Example("paddlejob.yaml", "paddle", ("worker-0", "worker-1")),
]

# The wheel of Open MPI 4 was built to be somewhere else. Its mpirun finds out, what that starts in a pod does not.
MOVED = "  env: {{OPAL_PREFIX: {0}, PMIX_INSTALL_PREFIX: {0}}}\n"


@pytest.mark.parametrize("example", TRAININGS, ids=lambda example: f"{example.file}-{example.group}")
def test_an_example_trains(example: Example, frameworks: FrameworkEnvironments, jobs: JobRunner) -> None:
    environment = frameworks.environment(example.group)
    moved = MOVED.format(environment) if example.group == "mpi4" else ""
    jobs.map_images(f'"gangline/examples*":\n  environment: {environment}\n{moved}')
    output = jobs.run(EXAMPLES / example.file)
    for member in example.trained:
        assert re.search(r"^trained: ", output.member_log(member), re.MULTILINE), f"{member}:\n{output.text}"
    assert re.search(r"job/\S+  Succeeded", output.text), output.text


@pytest.mark.parametrize("processes", ["3", "2:3"])
def test_a_script_trains_without_a_file(processes: str, frameworks: FrameworkEnvironments, jobs: JobRunner) -> None:
    """`gangline run --nproc 3 -- python train_torch.py`, as README has it; with a range, under torchrun."""
    python = frameworks.environment("torch") / "bin" / "python"
    output = jobs.run_command("--nproc", processes, "--", str(python), str(EXAMPLES / "train_torch.py"))
    members = ("master-0", "worker-0", "worker-1") if processes == "3" else ("worker-0", "worker-1", "worker-2")
    for rank, member in enumerate(members):
        assert re.search(
            rf"^rank {rank} of 3$" if processes == "3" else r"^rank \d of 3$", output.member_log(member), re.MULTILINE
        )
    assert re.search(r"job/train-torch  Succeeded", output.text), output.text
    # The ranks have different data, and the same weights at the end.
    errors = {found for member in members for found in re.findall(r"trained: .* ([\d.]+)", output.member_log(member))}
    assert len(errors) == 1, output.text
    assert float(errors.pop()) < 0.05


def test_every_example_with_a_framework_is_run() -> None:
    names = {path.name for path in EXAMPLES.glob("*.yaml")}
    assert names == {example.file for example in TRAININGS}


@pytest.mark.parametrize("example", TRAININGS, ids=lambda example: example.file)
def test_what_an_example_starts_is_beside_it(example: Example) -> None:
    text = (EXAMPLES / example.file).read_text()
    scripts = re.findall(r"\w+\.py", text)
    assert scripts
    assert all((EXAMPLES / script).is_file() for script in scripts)
    assert yaml.safe_load(text)["apiVersion"] == "kubeflow.org/v1"
