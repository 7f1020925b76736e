"""Which of several ends was the first: kinds of ends, times of errors and ends, and what is not known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.jobs.plan.failures.ends import EndKind, ReplicaEnd, end_kind
from gangline.jobs.plan.failures.first import FirstEnd, first_end

SECOND = datetime(2026, 11, 18, 7, 0, 0, tzinfo=UTC)


def stamped(at: float, *lines: str) -> tuple[str, ...]:
    time = (SECOND + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "000Z")
    return tuple(f"{time} {line}" for line in lines)


def traceback(
    error: str, file: str = "train.py", function: str = "main", source: str = "step()", prefix: str = ""
) -> tuple[str, ...]:
    lines = ("Traceback (most recent call last):", f'  File "{file}", line 3, in {function}', f"    {source}", error)
    return tuple(f"{prefix}{line}" for line in lines)


def ended(at: float, *log: str, replica: str = "worker-0", code: int | None = 1, **more: Any) -> ReplicaEnd:
    """An end as our own node reports it: to the microsecond."""
    time = SECOND + timedelta(seconds=at)
    return ReplicaEnd(replica=replica, exit_code=code, ended_at=time, is_exact=True, log=log, **more)


def in_cluster(second: float, *log: str, replica: str = "worker-0", code: int | None = 1, **more: Any) -> ReplicaEnd:
    """An end as a kubelet reports it: in a second."""
    return ReplicaEnd(replica=replica, exit_code=code, ended_at=SECOND + timedelta(seconds=second), log=log, **more)


COMM = "/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py"
KINDS: dict[str, tuple[dict[str, Any], tuple[str, ...], EndKind]] = {
    "out of memory": ({"reason": "OOMKilled", "code": 137}, (), EndKind.TAKEN),
    "evicted": ({"reason": "Evicted", "code": None}, (), EndKind.TAKEN),
    "a segmentation fault": ({"signal": 11, "code": 139}, (), EndKind.CRASHED),
    "an exit code of the program's own that looks like a signal": ({"code": 139}, (), EndKind.UNCLEAR),
    "the signal of a broken pipe": ({"signal": 13, "code": 141}, (), EndKind.COMPLAINT),
    "a bug": ({}, traceback("KeyError: 'label'"), EndKind.OWN_ERROR),
    "a bug with a rank before every line": ({}, traceback("KeyError: 'a'", prefix="[rank3]: "), EndKind.OWN_ERROR),
    "silence": ({"code": 3}, ("step 1", "step 2"), EndKind.UNCLEAR),
    "unknown words": ({"code": 3}, ("zonk",), EndKind.UNCLEAR),
    "an error of a class that nobody knows": ({}, traceback("__main__.Oops: zonk"), EndKind.UNCLEAR),
    "a class named after what is gone": ({}, traceback("__main__.PeerVanished: zonk"), EndKind.COMPLAINT),
    "a reset connection": ({}, traceback("ConnectionResetError: [Errno 104] zonk"), EndKind.COMPLAINT),
    "the end of a stream": ({}, traceback("EOFError"), EndKind.COMPLAINT),
    "the end of a file": ({}, traceback("EOFError: Ran out of input", file="/lib/pickle.py"), EndKind.UNCLEAR),
    "any error of a collective": ({}, traceback("RuntimeError: zonk", file=COMM), EndKind.COMPLAINT),
    "a call of a collective": (
        {},
        traceback("RuntimeError: zonk", source="dist.all_reduce(tensor)"),
        EndKind.COMPLAINT,
    ),
    "a wrong argument of a collective": ({}, traceback("TypeError: zonk", file=COMM), EndKind.OWN_ERROR),
    "the error of a launcher after that of the program": (
        {},
        (
            *traceback("ZeroDivisionError: division by zero"),
            *traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", file=COMM),
        ),
        EndKind.OWN_ERROR,
    ),
    "an error while another one was handled": (
        {},
        (
            *traceback("ConnectionResetError: [Errno 104] zonk"),
            "During handling of the above exception, another exception occurred:",
            *traceback("KeyError: 'state'"),
        ),
        EndKind.COMPLAINT,
    ),
    "a service outside": (
        {},
        traceback("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"),
        EndKind.OWN_ERROR,
    ),
    "another rank by its number": ({"rank": 2}, traceback("RuntimeError: rank 5 is zonk"), EndKind.SUSPECT),
    "itself by its number": ({"rank": 2}, traceback("RuntimeError: rank 2 is zonk"), EndKind.UNCLEAR),
    "words of others": ({}, ("my neighbour has fallen silent",), EndKind.SUSPECT),
    "a bug with a word for others": ({}, traceback("KeyError: 'the other link'"), EndKind.OWN_ERROR),
    "an end of a stream that was taken for data": (
        {},
        traceback("IndexError: index out of range", source="kind = connection.recv(1)[0]"),
        EndKind.SUSPECT,
    ),
    "a signal that it may have sent to itself": ({"signal": 15, "code": 143}, (), EndKind.UNCLEAR),
    "an old error that it survived": (
        {},
        (*traceback("KeyError: 'a'"), *(f"step {number}" for number in range(20))),
        EndKind.UNCLEAR,
    ),
    "stopped from outside": ({"was_stopped": True, "signal": 15, "code": 143}, (), EndKind.UNCLEAR),
}  # fmt: skip


@pytest.mark.parametrize(("more", "log", "kind"), KINDS.values(), ids=KINDS.keys())
def test_what_an_end_says(more: dict[str, Any], log: tuple[str, ...], kind: EndKind) -> None:
    assert end_kind(ended(0.5, *log, **more)) is kind


def first_index(*ends: ReplicaEnd) -> int:
    first = first_end(ends)
    assert first is not None
    return first.index


def test_nobody_failed_first_if_nobody_failed() -> None:
    assert first_end([]) is None


def test_ends_in_the_same_second_are_in_the_order_in_which_the_node_saw_them() -> None:
    assert first_index(ended(0.52, "zonk"), ended(0.51, "zonk"), ended(0.9)) == 1


@pytest.mark.parametrize("complaint", [("Connection reset by peer",), traceback("EOFError"), ("lost rank 1",)])
def test_a_complaint_that_was_reported_first_is_not_first(complaint: tuple[str, ...]) -> None:
    """The first one has closed its connections and takes its time to end."""
    late = ended(0.45, *stamped(0.4, *traceback("RuntimeError: zonk")), replica="worker-1")
    assert first_index(ended(0.1, *stamped(0.05, *complaint)), late) == 1


def test_who_wrote_its_error_first_is_first_even_if_it_ended_last() -> None:
    cause = ended(0.9, *stamped(0.1, *traceback("RuntimeError: zonk")))
    peer = ended(0.3, *stamped(0.25, *traceback("RuntimeError: what a pity")))
    assert first_index(peer, cause) == 1


def test_out_of_memory_is_the_cause_although_the_node_notices_it_late() -> None:
    assert first_index(ended(0.1, "zonk"), ended(0.9, code=137, signal=9, reason="OOMKilled")) == 1
    later = ended(60, code=137, signal=9, reason="OOMKilled")
    assert first_index(ended(0.1, "zonk"), later) == 0


def test_an_exit_in_silence_is_not_beaten_by_an_error_after_it() -> None:
    assert first_index(ended(0.2, *stamped(0.15, *traceback("KeyError: 'zonk'"))), ended(0.1, code=7)) == 1


def test_in_a_cluster_times_of_log_lines_order_a_second() -> None:
    cause = in_cluster(0, *stamped(0.61, *traceback("RuntimeError: zonk")))
    peer = in_cluster(0, *stamped(0.72, *traceback("RuntimeError: what a pity")))
    assert first_end([peer, cause]) == FirstEnd(1, order_known=True)


def test_in_a_cluster_without_logs_the_order_within_a_second_is_not_known() -> None:
    first = first_end([in_cluster(0), in_cluster(0), in_cluster(1)])
    assert first is not None
    assert not first.order_known
    apart = first_end([in_cluster(3), in_cluster(0)])
    assert apart == FirstEnd(1, order_known=True)


def test_in_a_cluster_a_kind_of_end_decides_without_logs() -> None:
    assert first_end([in_cluster(0), in_cluster(0, code=137, reason="OOMKilled")]) == FirstEnd(1, order_known=True)


def test_in_a_cluster_who_ended_in_silence_among_complaints_in_unknown_words_is_first() -> None:
    peers = [
        in_cluster(0, *stamped(at, *traceback("RuntimeError: zonk")), replica=f"worker-{number}")
        for number, at in enumerate((0.3, 0.5, 0.7))
    ]
    assert first_index(*peers, in_cluster(0, *stamped(0.01, "step 1"), replica="worker-3", code=7)) == 3


def test_in_a_cluster_whom_the_others_name_is_first() -> None:
    peers = [
        in_cluster(0, *stamped(at, *traceback("RuntimeError: zonk 3 at worker 3")), replica=f"worker-{number}")
        for number, at in enumerate((0.3, 0.5))
    ]
    silent = [in_cluster(0, replica=f"worker-{number}", code=1) for number in (2, 3)]
    assert first_index(*peers, *silent) == 3


def test_who_was_stopped_is_first_only_if_its_log_says_so() -> None:
    peer = ended(0.1, "zonk")
    stopped = ended(0.5, was_stopped=True, code=143, signal=15)
    assert first_index(peer, stopped) == 0
    failed_before = ended(0.5, *stamped(0.02, *traceback("KeyError: 'a'")), was_stopped=True, code=143, signal=15)
    assert first_index(peer, failed_before) == 1
