"""`gangline.train`: functions and folders as jobs of this machine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gangline
from gangline import JobFailed, TrainingClient, train

pytestmark = pytest.mark.xdist_group("sdk")


@pytest.fixture(scope="module")
def client() -> Iterator[TrainingClient]:
    with TrainingClient(local=True) as running:
        yield running


def add(parameters: dict[str, Any]) -> dict[str, Any]:
    print("adding", end="")
    return {"sum": sum(parameters["numbers"])}


def test_a_function_returns_what_it_returns(client: TrainingClient) -> None:
    run = train(add, framework="jax", replicas=2, parameters={"numbers": [1, 2, 3]}, client=client)
    assert run.result(timeout=60) == {"sum": 6}
    assert run.job.state == "Succeeded"
    assert run.job.replicas == {"Worker": 2}
    assert "Succeeded" in run._repr_html_()


def test_a_folder_runs_where_it_is(client: TrainingClient, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; open('made', 'w').write('x'); print('price: $5', *sys.argv[1:])")
    run = train(tmp_path, ["python", "train.py", "$(HOME)"], framework="tensorflow", client=client)
    assert run.wait(timeout=60).state == "Succeeded"
    assert [line.text for line in run.logs()] == ["price: $5 $(HOME)"]
    assert (tmp_path / "made").exists()
    with pytest.raises(TypeError, match="a folder returns nothing"):
        run.result()


def test_lines_are_followed_and_a_failure_explained(client: TrainingClient) -> None:
    def broken() -> None:
        print("begin")
        raise RuntimeError("out of luck")

    run = train(broken, framework="jax", client=client)
    assert next(iter(run.logs(follow=True))).text == "begin"
    with pytest.raises(JobFailed, match="worker-0"):
        run.wait(timeout=60)
    assert "out of luck" in " ".join(run.why().causes[0].evidence)


def test_a_run_is_cancelled_twice_without_harm(client: TrainingClient) -> None:
    def endless() -> None:
        import time

        time.sleep(600)

    run = train(endless, framework="jax", client=client)
    run.cancel()
    run.cancel()


@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        ((add,), {"framework": "mpi"}, "framework: is 'mpi'; write one of pytorch, tensorflow"),
        ((add, ["python"]), {}, "command: is for a folder"),
        (("no-such-folder",), {}, "no-such-folder: is no folder"),
        ((".",), {}, "command: write what to run in the folder"),
        ((".", "python train.py"), {}, "command: write what to run in the folder"),
        ((".", ["x"]), {"packages": ["numpy"]}, "are for a function"),
        ((add,), {"replicas": 0}, "0 members; write 1 or more"),
        ((add,), {"packages": ["no-such-thing==1"]}, "no-such-thing==1: not installed here"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    client: TrainingClient, arguments: Any, more: dict[str, Any], told: str
) -> None:
    before = client.list_jobs(job_kind="PyTorchJob")
    with pytest.raises(ValueError, match=told):
        gangline.train(*arguments, client=client, **more)
    assert client.list_jobs(job_kind="PyTorchJob") == before
