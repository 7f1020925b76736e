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
