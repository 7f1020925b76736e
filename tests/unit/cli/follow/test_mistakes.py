"""Mistakes of a program that end a job at once."""

from collections.abc import Mapping

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.cli.follow.job_view import JobView
from gangline.cli.follow.mistakes import ProgramSite, mistake_text, program_mistakes, team_mistake
from gangline.testing.builders import make_job, make_member
from gangline.why.diagnosis.failures import ReplicaFailure

SITE = ProgramSite(python="/x/bin/python", install="/x/bin/python -m pip install", folder="/here")
IMPORT = ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'torch'")


def failure(
    replica: str = "worker-0", *log: str, code: int = 1, reason: str = "Error", message: str = ""
) -> ReplicaFailure:
    return ReplicaFailure(replica, f"job-{replica}", "pytorch", code, reason, message, log=log)


def text(*log: str, code: int = 1, reason: str = "Error", message: str = "", site: ProgramSite = SITE) -> str:
    mistakes = program_mistakes([failure("worker-0", *log, code=code, reason=reason, message=message)])
    return mistake_text(mistakes[0], site) if mistakes else ""


@pytest.mark.parametrize(
    ("log", "code", "line"),
    [
        (
            IMPORT,
            1,
            "torch is not installed in this Python (/x/bin/python); install it: /x/bin/python -m pip install torch",
        ),
        (
            ["ModuleNotFoundError: No module named 'sklearn.utils'"],
            1,
            "sklearn is not installed in this Python (/x/bin/python); install it: /x/bin/python -m pip install scikit-learn",
        ),
        (
            ["/x/bin/python: No module named yaml"],
            1,
            "yaml is not installed in this Python (/x/bin/python); install it: /x/bin/python -m pip install PyYAML",
        ),
        (
            ["ImportError: cannot import name 'a' from 'b' (/b.py)"],
            1,
            "an import fails in this Python (/x/bin/python): cannot import name 'a' from 'b' (/b.py)",
        ),
        (
            ['  File "/here/train.py", line 7', "    def f(:", "          ^", "SyntaxError: invalid syntax"],
            1,
            "the program is not valid Python: invalid syntax (/here/train.py, line 7)",
        ),
        (
            ["python: can't open file '/here/no.py': [Errno 2] No such file or directory"],
            2,
            "/here/no.py does not exist; processes start in /here",
        ),
        (
            ["usage: a.py [-h]", "a.py: error: the following arguments are required: --local_rank"],
            2,
            (
                "the program refuses its arguments: the following arguments are required: --local_rank; "
                "every process has it in the variable LOCAL_RANK"
            ),
        ),
        (
            ["usage: train.py [-h] --lr LR", "train.py: error: the following arguments are required: --lr"],
            2,
            "the program refuses its arguments: the following arguments are required: --lr",
        ),
        (
            ["bash: line 1: trane: command not found"],
            127,
            'the command "trane" cannot be started; is it installed, and executable?',
        ),
    ],
)
def test_a_mistake_is_one_line_with_what_to_do(log: list[str], code: int, line: str) -> None:
    assert text(*log, code=code) == line


def test_a_program_that_could_not_be_started_is_a_mistake() -> None:
    message = 'exec: "trane": executable file not found in $PATH'
    assert text(code=128, reason="StartError", message=message).startswith('the command "trane" cannot be started')


def test_without_an_interpreter_the_image_is_named() -> None:
    assert text(*IMPORT, site=ProgramSite(image="img:1")) == "torch is not installed in image img:1; add torch there"
    assert text(*IMPORT, site=ProgramSite()) == "torch is not installed where the program runs; add torch there"


def test_a_module_of_the_users_own_is_not_to_be_installed() -> None:
    site = SITE._replace(module_folder="src")
    assert text(*IMPORT, site=site) == "torch is in src, where Python does not look; set PYTHONPATH=src"


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (["FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'"], 1),  # may come later
        (["error: argument of type NoneType"], 1),  # a usage error ends with 2
        (["RuntimeError: Connection reset by peer"], 1),
        (["killed"], 137),
        ([], 1),
    ],
)
def test_what_a_restart_may_mend_is_no_mistake(log: list[str], code: int) -> None:
    assert text(*log, code=code) == ""


def team(**logs: tuple[str, ...]) -> dict[str, ReplicaFailure]:
    return {name.replace("_", "-"): failure(name.replace("_", "-"), *log) for name, log in logs.items()}


@pytest.mark.parametrize(
    ("failures", "restarts", "replicas", "final"),
    [
        (team(worker_0=IMPORT, worker_1=IMPORT), {}, 2, True),
        (team(worker_0=IMPORT, worker_1=IMPORT), {"worker-0": 1, "worker-1": 2}, 2, True),
        (team(worker_0=IMPORT), {}, 2, False),
        (team(worker_0=IMPORT, worker_1=("MemoryError",)), {}, 2, False),
        (team(worker_0=IMPORT, worker_1=IMPORT), {"worker-0": 3}, 2, False),
        ({}, {}, 0, False),
    ],
)
def test_only_a_first_failure_of_the_whole_team_is_final(
    failures: Mapping[str, ReplicaFailure], restarts: Mapping[str, int], replicas: int, final: bool
) -> None:
    assert (team_mistake(failures, restarts, replicas) is not None) == final


def test_the_view_keeps_the_first_failure_of_a_pod_that_was_replaced() -> None:
    view = JobView()
    view.job = make_job(PYTORCHJOB, worker=1)
    view.update_pod("worker-0", make_member("Worker", phase="Failed", exit_code=1, uid="a"))
    assert view.mistake(1) is None
    for line in IMPORT:
        view.add_line("worker-0", line)
    view.update_pod("worker-0", make_member("Worker", uid="b"))
    mistake = view.mistake(1)
    assert mistake is not None
    assert (mistake.replica, mistake.rule, mistake.values["module"]) == ("worker-0", "module-missing", "torch")
    assert view.mistake_of("worker-0") == mistake
    record = view.failure_record(PYTORCHJOB, "worker-0")
    assert (record.replica, record.exit_code, record.log) == ("worker-0", 1, IMPORT)
