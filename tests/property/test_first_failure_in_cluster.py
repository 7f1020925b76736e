"""200 random failing teams as a cluster reports them: ends in whole seconds, log lines with times, clocks that differ.

The texts are those that torch, TensorFlow, XGBoost, MPI and plain programs write, and some that nobody has seen.
"""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gangline.api.core import ContainerState, ContainerStateTerminated, ContainerStatus, Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.jobs.plan.failures.records import FailedPod, LogTails, first_failed
from gangline.jobs.pods.replicas import Member
from gangline.testing.builders import make_member

TEAMS = 200
MIN_SHARE = 0.98
START = datetime(2026, 11, 18, 7, 0, 0, tzinfo=UTC)
SITE = "/usr/local/lib/python3.11/site-packages"
OWN_ERRORS = (
    (
        "    loss = criterion(output, target)",
        "ValueError: Expected input batch_size (32) to match target batch_size (31).",
    ),
    ("    row = table[key]", "KeyError: 'label'"),
    ("    raise RuntimeError(text)", "RuntimeError: loss is nan at step 118"),
    ("    raise DataCorrupt(name)", "__main__.DataCorrupt: shard-0017.tar"),
    ("    x = x.cuda()", "RuntimeError: CUDA error: device-side assert triggered"),
    ("    raise OSError(28, 'No space left')", "OSError: [Errno 28] No space left on device"),
    ("    assert x.shape[0] == 4", "AssertionError"),
)
COMPLAINTS = (
    (
        f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 2053, in all_reduce',
        "    work.wait()",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.1.0.7]:41822",
    ),
    (
        f'  File "{SITE}/torch/distributed/distributed_c10d.py", line 3685, in barrier',
        "    work.wait()",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited",
    ),
    (
        f'  File "{SITE}/tensorflow/python/framework/ops.py", line 6656, in raise_from_not_ok_status',
        "    raise core._status_to_exception(e) from None",
        "tensorflow.python.framework.errors_impl.UnavailableError: Collective ops is aborted by: Socket closed",
    ),
    (
        f'  File "{SITE}/xgboost/core.py", line 282, in _check_call',
        "    raise XGBoostError(py_str(_LIB.XGBGetLastError()))",
        "xgboost.core.XGBoostError: [07:00:00] /workspace/src/collective/result.cc:78: ring allreduce failed",
    ),
    ('  File "train.py", line 40, in exchange', "    head = connection.recv(4)", "ConnectionResetError: [Errno 104]"),
    (f'  File "{SITE}/mpi4py/run.py", line 3, in recv', "    comm.recv()", "mpi4py.MPI.Exception: MPI_ERR_PROC_FAILED"),
    (
        '  File "/usr/lib/python3.11/multiprocessing/connection.py", line 399, in _recv',
        "    raise EOFError",
        "EOFError",
    ),
    ('  File "train.py", line 51, in main', "    raise RuntimeError(text)", "RuntimeError: zonk"),
    ('  File "train.py", line 51, in main', "    raise Vanished(text)", "__main__.Vanished: and that was that"),
    ('  File "train.py", line 51, in sync_weights', "    raise SystemError(text)", "SystemError: broken chain"),
)
PLAIN_COMPLAINTS = (
    "Rank {cause} has gone away, giving up",
    "LightGBM: Socket recv error, Connection reset by peer",
    "oh no",
)


def stamped(at: float, *lines: str) -> tuple[str, ...]:
    time = (START + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "000Z")
    return tuple(f"{time} {line}" for line in lines)


def failed_pod(member: Member, ended: float, code: int, reason: str = "Error") -> Pod:
    """The pod as its kubelet reports it: the fraction of the second is lost."""
    finished = (START + timedelta(seconds=ended)).replace(microsecond=0)
    state = ContainerStateTerminated(
        exit_code=code, reason=reason, started_at=START - timedelta(minutes=5), finished_at=finished
    )
    pod = make_member(member.type, member.index, of=PYTORCHJOB, phase="Failed")
    status = ContainerStatus(name="pytorch", state=ContainerState(terminated=state))
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, container_statuses=(status,)))


def failing_team(seed: int) -> tuple[dict[Member, Pod], LogTails, dict[str, int], int]:
    """A team that failed: its pods, the ends of their logs, their ranks, and the rank that failed first."""
    dice = random.Random(seed)
    size, began = dice.randint(2, 16), dice.uniform(0, 3)
    cause = dice.randrange(size)
    pods: dict[Member, Pod] = {}
    logs: dict[str, tuple[str, ...]] = {}
    ranks: dict[str, int] = {}
    for rank in range(size):
        member = Member("Master", 0) if rank == 0 else Member("Worker", rank - 1)
        # Nodes' clocks differ a little, and the runtime reads a line a moment after it was written.
        skew = dice.gauss(0, 0.003)
        steps = [line for step in range(5) for line in stamped(began - 5 + step + skew, f"step {step} loss 0.{step}")]
        if rank == cause:
            ended, code, reason, lines = _first_end(dice, seed, began + skew)
        else:
            ended, code, reason, lines = _consequence(dice, cause, began + dice.uniform(0, 0.5) + skew)
        pods[member] = failed_pod(member, ended, code, reason)
        logs[pods[member].metadata.uid] = (*steps, *lines)
        ranks[str(member)] = rank
    return pods, logs, ranks, cause


def _first_end(dice: random.Random, seed: int, at: float) -> tuple[float, int, str, tuple[str, ...]]:
    match seed % 5:
        case 0:
            source, error = dice.choice(OWN_ERRORS)
            lines = ("Traceback (most recent call last):", '  File "train.py", line 17, in main', source, error)
            # The interpreter takes its time to end.
            return at + dice.uniform(0.01, 0.4), 1, "Error", stamped(at, *lines)
        case 1:
            return at + dice.uniform(0.005, 0.05), dice.choice((2, 3, 7)), "Error", ()
        case 2:
            return at, dice.choice((137, 139, 143)), "Error", ()
        case 3:
            return at, 137, "OOMKilled", ()
        case _:
            return at, dice.choice((1, 3, 41)), "Error", ()


def _consequence(dice: random.Random, cause: int, at: float) -> tuple[float, int, str, tuple[str, ...]]:
    if dice.random() < 0.2:
        words = dice.choice(PLAIN_COMPLAINTS).format(cause=cause)
        return at + 0.01, dice.choice((1, 1, 4)), "Error", stamped(at, words)
    lines = ("Traceback (most recent call last):", '  File "train.py", line 20, in main', *dice.choice(COMPLAINTS))
    return at + dice.uniform(0.01, 0.1), 1, "Error", stamped(at, *lines)


def named(pods: dict[Member, Pod], logs: LogTails, ranks: dict[str, int]) -> FailedPod:
    first = first_failed(pods, "pytorch", logs, ranks)
    assert first is not None
    return first


def test_log_times_order_what_a_cluster_reports_in_seconds() -> None:
    wrong: dict[int, Any] = {}
    for seed in range(TEAMS):
        pods, logs, ranks, cause = failing_team(seed)
        first = named(pods, logs, ranks)
        if ranks[str(first.member)] != cause:
            wrong[seed] = (seed % 5, len(pods), ranks[str(first.member)], cause, first.order_known)
    assert len(wrong) <= TEAMS * (1 - MIN_SHARE), wrong


def test_without_logs_a_wrong_name_is_never_given_as_a_fact() -> None:
    known, wrong = 0, {}
    for seed in range(TEAMS):
        pods, _, ranks, cause = failing_team(seed)
        first = named(pods, {}, ranks)
        known += first.order_known
        if first.order_known and ranks[str(first.member)] != cause:
            wrong[seed] = (seed % 5, len(pods), cause)
    assert known > TEAMS / 3, "kinds of ends and different seconds still tell"
    assert len(wrong) <= TEAMS * (1 - MIN_SHARE), wrong
