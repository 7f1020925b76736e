"""Every file in examples/ is what it says: plain Kubeflow YAML that trains here, with numpy or nothing at all."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangline.api.kubeflow.kinds import JOB_APIS

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def programs(file: Path) -> list[Path]:
    """The scripts that a file starts."""
    return [EXAMPLES / name for name in sorted(set(re.findall(r"\w+\.py", body(file))))]


def body(file: Path) -> str:
    """Without comments."""
    return "\n".join(line.partition("#")[0] for line in file.read_text().splitlines())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_trains(file: Path) -> None:
    job = yaml.safe_load(file.read_text())
    (replicas,) = (value for name, value in job["spec"].items() if name.endswith("ReplicaSpecs"))
    workers = {"Master", "Worker"} & set(replicas)
    done = subprocess.run(
        [sys.executable, "-m", "gangline", "run", str(file.relative_to(EXAMPLES.parent))],
        capture_output=True,
        text=True,
        cwd=EXAMPLES.parent,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{job['kind'].lower()}/{job['metadata']['name']}  Succeeded" in done.stdout
    assert len(re.findall(r"\| trained: ", done.stdout)) == sum(replicas[each]["replicas"] for each in workers)


def test_there_is_one_of_every_kind() -> None:
    bodies = [yaml.safe_load(file.read_text()) for file in FILES]
    apis = [(body["apiVersion"], body["kind"]) for body in bodies]
    assert sorted(apis) == sorted((kind.model.API_VERSION, kind.kind) for kind in JOB_APIS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_says_what_it_needs_and_needs_no_more(file: Path) -> None:
    assert "numpy only" in file.read_text().splitlines()[0]
    assert f"gangline run examples/{file.name}" in file.read_text()
    assert programs(file)
    for program in programs(file):
        imported = {
            name.partition(".")[0]
            for node in ast.walk(ast.parse(program.read_text()))
            for name in ([each.name for each in node.names] if isinstance(node, ast.Import) else [])
            + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        }
        assert imported - set(sys.stdlib_module_names) <= {"numpy"}, program.name
