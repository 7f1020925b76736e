"""The exception of a program, from its termination message or its log."""

import copy
import pickle

import pytest

from gangline import Job, JobFailed, Replica, jax_job, pytorch_job
from gangline.api.kubeflow.training import Failure
from gangline.sdk.build.remote_call import MAX_MESSAGE_LENGTH, failure_message
from gangline.sdk.outcome.python_errors import PythonError, job_error, python_error

PLAIN = """\
epoch 1
{"progress": {"step": 1}}
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    fit()
  File "train.py", line 4, in fit
    raise ValueError("shapes do not match")
ValueError: shapes do not match"""

CHAINED = """\
loading
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    {}["x"]
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 5, in <module>
    raise my.package.ConfigError("no x")
my.package.ConfigError: no x
cleaning up"""

GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 1, in <module>
  |     raise ExceptionGroup("two", [ValueError("a"), OSError("b")])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 2, in one
    |     raise ValueError("a")
    | ValueError: a
    +------------------------------------"""

SYNTAX = """\
hello
  File "train.py", line 2
    print("x"
         ^
SyntaxError: '(' was never closed"""

RANKED = "\n".join(f"[rank2]: {line}" for line in PLAIN.splitlines())


@pytest.mark.parametrize(
    ("text", "kind", "message", "begin", "log"),
    [
        (PLAIN, "ValueError", "shapes do not match", "Traceback", ("epoch 1",)),
        (RANKED, "ValueError", "shapes do not match", "Traceback", None),
        (CHAINED, "my.package.ConfigError", "no x", "Traceback", ("loading",)),
        (GROUP, "ValueError", "a", "    | Traceback", None),
        (SYNTAX, "SyntaxError", "'(' was never closed", '  File "train.py"', ("hello",)),
        ("AssertionError", "", "", "", ("AssertionError",)),
        ("Killed", "", "", "", ("Killed",)),
        ("", "", "", "", ()),
    ],
)
def test_the_last_exception_of_a_log(
    text: str, kind: str, message: str, begin: str, log: tuple[str, ...] | None
) -> None:
    error = python_error(text.splitlines())
    assert (error.type, error.message) == (kind, message)
    assert error.traceback.startswith(begin)
    assert log is None or error.log == log


def test_an_exception_with_its_causes_is_kept_whole() -> None:
    assert python_error(CHAINED.splitlines()).traceback == CHAINED.partition("\n")[2].rpartition("\n")[0]


def test_an_exception_without_a_message() -> None:
    text = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    assert 0\nAssertionError'
    assert python_error(text.splitlines())[:2] == ("AssertionError", "")


def test_the_termination_message_wins_over_what_is_printed_after_the_error() -> None:
    later = 'Traceback (most recent call last):\n  File "x.py", line 1, in stop\n    stop()\nRuntimeError: pool closed'
    failure = Failure(replica="worker-0", message=PLAIN, log=(*PLAIN.splitlines(), *later.splitlines()))
    assert job_error(failure)[:2] == ("ValueError", "shapes do not match")
    assert (
        job_error(Failure(replica="worker-0", message="OOMKilled", log=tuple(PLAIN.splitlines()))).type == "ValueError"
    )
    assert job_error(Failure(replica="worker-0", message="SystemExit: no data"))[:2] == ("SystemExit", "no data")
    assert job_error(Failure(replica="worker-0")) == PythonError()


def test_a_termination_message_fits_and_keeps_the_error_and_the_last_frames() -> None:
    frames = [f'  File "train.py", line {number}, in f\n    {"x" * 60}\n' for number in range(40)]
    text = failure_message(["Traceback (most recent call last):\n", *frames], "ValueError: no\n")
    assert len(text) <= MAX_MESSAGE_LENGTH
    assert "line 39" in text
    assert "line 1," not in text
    assert python_error(text.splitlines())[:2] == ("ValueError", "no")
    long = failure_message(["Traceback (most recent call last):\n", *frames], f"ValueError: {'y' * 9000}\n")
    assert len(long) <= MAX_MESSAGE_LENGTH
    assert python_error(long.splitlines()).type == "ValueError"


def failed_job(job: Job, failure: dict[str, object] | None) -> Job:
    body = copy.deepcopy(job.to_dict())
    condition = {"type": "Failed", "status": "True", "message": "1 Worker replica(s) failed."}
    body["status"] = {"conditions": [condition], **({"firstFailure": failure} if failure else {})}
    return Job(body)


REPLICA = Replica("any", replicas=2)


def test_job_failed_says_the_users_error_where_it_happened_and_the_last_lines() -> None:
    job = pytorch_job("fit", master=Replica("any"), worker=REPLICA)
    failure = {"replica": "worker-1", "exitCode": 1, "reason": "Error", "log": PLAIN.splitlines()}
    error = JobFailed(failed_job(job, failure))
    assert str(error) == (
        "worker-1 (rank 2): ValueError: shapes do not match\n"
        "1 Worker replica(s) failed.\n"
        "last lines of worker-1:\n"
        "  epoch 1"
    )
    assert (error.error_type, error.error_message) == ("ValueError", "shapes do not match")
    assert (error.replica, error.rank, error.exit_code, error.log) == ("worker-1", 2, 1, ("epoch 1",))
    [note] = error.__notes__
    assert note.startswith('in worker-1 (rank 2):\nTraceback (most recent call last):\n  File "train.py", line 9')
    assert "\n".join(error._render_traceback_()) == f"JobFailed: {error}\n{note}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_job_failed_without_an_exception_says_what_is_known() -> None:
    job = jax_job("fit", worker=REPLICA)
    killed = JobFailed(
        failed_job(job, {"replica": "worker-0", "exitCode": 137, "reason": "OOMKilled", "log": ["step 3"]})
    )
    assert str(killed) == (
        "JAXJob /fit failed: worker-0 (rank 0) OOMKilled. 1 Worker replica(s) failed.\nlast lines of worker-0:\n  step 3"
    )
    assert (killed.error_type, killed.error_message) == ("", "")
    unknown = JobFailed(failed_job(job, None))
    assert str(unknown) == "JAXJob /fit failed. 1 Worker replica(s) failed."
    assert (unknown.replica, unknown.rank) == ("", None)


def test_a_replica_of_several_ranks_has_no_rank_of_its_own() -> None:
    failure = {"replica": "worker-0", "exitCode": 1, "log": PLAIN.splitlines()}
    several = pytorch_job("fit", master=Replica("any"), worker=REPLICA, nprocPerNode="2")
    assert JobFailed(failed_job(several, failure)).rank is None
    auto = pytorch_job("fit", master=Replica("any"), worker=REPLICA, nprocPerNode="auto")
    assert JobFailed(failed_job(auto, failure)).rank == 1
    assert (
        JobFailed(failed_job(pytorch_job("fit", worker=REPLICA, elasticPolicy={"minReplicas": 1}), failure)).rank
        is None
    )
