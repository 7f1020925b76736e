"""`gangline.train`: functions and folders as jobs of this machine."""

import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
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
    with pytest.raises(JobFailed, match=r"worker-0 \(rank 0\): RuntimeError: out of luck") as failed:
        run.wait(timeout=60)
    assert failed.value.log == ("begin",)
    line = broken.__code__.co_firstlineno + 2
    assert f'File "test_train.py", line {line}, in broken' in failed.value.__notes__[0]
    assert "out of luck" in " ".join(run.why().causes[0].evidence)


def test_every_rank_returns_its_own_value(client: TrainingClient) -> None:
    offset = {"by": 10}

    def rank() -> tuple[int, int]:
        import os

        return int(os.environ["RANK"]) + offset["by"], int(os.environ["LOCAL_RANK"])

    run = train(rank, replicas=3, client=client)
    assert run.results(timeout=60) == [(10, 0), (11, 1), (12, 2)]
    assert run.result() == (10, 0)
    assert not any("gangline-result" in line.text for line in run.logs())


def test_a_team_is_started_again_as_often_as_allowed(client: TrainingClient, tmp_path: Path) -> None:
    marker = str(tmp_path / "tried")

    def fails_once(parameters: dict[str, Any]) -> str:
        import os
        import pathlib

        if os.environ["RANK"] == "0":
            file = pathlib.Path(parameters["marker"])
            tried = file.exists()
            file.touch()
            if not tried:
                raise OSError("lost the disk")
        return "trained"

    run = train(fails_once, replicas=2, parameters={"marker": marker}, max_restarts=1, client=client)
    assert run.wait(timeout=60).status.restarts == 1
    with pytest.raises(ValueError, match="max_restarts: is -1"):
        train(fails_once, max_restarts=-1, client=client)


PROGRAM = """
import gangline
scale = [2]
def fit(parameters):
    return parameters["x"] * scale[0]
print(gangline.train(fit, replicas=2, parameters={"x": 21}, local=True).results(timeout=60))
try:
    gangline.train(lambda: 1 / 0, local=True).wait(timeout=60)
except gangline.JobFailed as failed:
    print(failed.error_type, failed.rank)
"""


@pytest.mark.parametrize("way", ["-c", "stdin", "file"])
def test_a_program_needs_no_file_and_no_main_guard(way: str, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    words = {"-c": ["-c", PROGRAM], "stdin": ["-"], "file": [str(file)]}[way]
    done = subprocess.run(
        [sys.executable, *words], input=PROGRAM, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout == "[42, 42]\nZeroDivisionError 0\n"
    assert done.stderr == ""


HELPERS = """
import threading
lock = threading.Lock()
class Config:
    rate = 3
def rate():
    with lock:
        return Config.rate
"""

OWN_MODULES = """
import gangline, helpers
from helpers import Config
def module(): return helpers.rate()
def part(): return Config.rate + 1
def inside():
    import helpers
    return helpers.rate() + 2
with gangline.TrainingClient(local=True) as client:
    print([gangline.train(function, client=client).result(timeout=60) for function in (module, part, inside)])
"""


def test_modules_beside_a_script_are_found_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "own.py").write_text(OWN_MODULES)
    words = [sys.executable, str(tmp_path / "own.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False, cwd="/")
    assert (done.stdout, done.stderr) == ("[3, 4, 5]\n", "")


def test_a_function_typed_into_a_repl_is_trained(tmp_path: Path) -> None:
    lines = ["import gangline", "def fit(): return base + 2", "", "base = 40"]
    lines += ["gangline.train(fit, local=True).result(timeout=60, show=False)", "exit()"]
    leader, follower = pty.openpty()
    environ = {**os.environ, "TERM": "dumb", "PYTHON_BASIC_REPL": "1", "HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-q"], stdin=follower, stdout=follower, stderr=follower, cwd=tmp_path, env=environ
    ):
        os.close(follower)
        os.write(leader, ("\n".join(lines) + "\n").encode())
        screen = b""
        with suppress(OSError):
            while part := os.read(leader, 4096):
                screen += part
        os.close(leader)
    text = screen.decode().replace("\r", "")
    assert "\n42\n" in text
    assert "Traceback" not in text


def test_a_job_that_the_server_refuses_leaves_no_folder(
    client: TrainingClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(gangline.TrainingError, match="memory"):
        train(add, parameters={"numbers": []}, resources={"memory": "lots"}, client=client)
    assert list(tmp_path.iterdir()) == []
    run = train(add, framework="jax", parameters={"numbers": []}, client=client)
    run.wait(timeout=60)
    assert len(list(tmp_path.iterdir())) == 1
    del run
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_cancelled_twice_without_harm(client: TrainingClient) -> None:
    def endless() -> None:
        import time

        time.sleep(600)

    run = train(endless, framework="jax", client=client)
    with pytest.raises(
        TimeoutError, match=r"job endless-\w+: not finished within 0.1 seconds; it is \w+; .why\(\) says"
    ):
        run.wait(timeout=0.1)
    run.cancel()
    run.cancel()


@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        ((add,), {"framework": "mpi"}, "framework: is 'mpi'; write one of pytorch, tensorflow"),
        ((add, ["python"]), {}, "command: is for a folder"),
        (("no-such-folder",), {}, "no-such-folder: is no folder"),
        ((None,), {}, "expected a function or a folder, got None"),
        ((".",), {}, "command: write what to run in the folder"),
        ((".", "python train.py"), {}, "command: write what to run in the folder"),
        ((".", ["x"]), {"packages": ["numpy"]}, "are for a function"),
        ((add,), {"replicas": 0}, "0 members; write 1 or more"),
        ((add,), {"packages": ["no-such-thing==1"], "parameters": {}}, "no-such-thing==1: not installed here"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    client: TrainingClient, arguments: Any, more: dict[str, Any], told: str
) -> None:
    before = client.list_jobs(job_kind="PyTorchJob")
    with pytest.raises(ValueError, match=told):
        gangline.train(*arguments, client=client, **more)
    assert client.list_jobs(job_kind="PyTorchJob") == before
