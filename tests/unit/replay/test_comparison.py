"""What is said of a recording and its replay."""

from gangline.replay.bundle import FaultCause, RecordedFault, RecordedVerdict
from gangline.replay.comparison import comparison_lines, fault_text, is_same

RECORDED = RecordedVerdict("worker-1", 2, "python-exception", "", "Failed")


def test_the_same_replica_and_rule_are_the_same() -> None:
    recorded, replayed = comparison_lines(RECORDED, RECORDED)
    assert recorded == "recorded: worker-1 (rank 2) first, why: python-exception, job Failed"
    assert replayed.endswith(" · the same")


def test_every_difference_is_named() -> None:
    other = RecordedVerdict("worker-0", 1, "exit-code", "", "Failed")
    assert not is_same(RECORDED, other)
    assert comparison_lines(RECORDED, other)[1].endswith(
        "not the same: another replica failed first and why has another rule"
    )
    assert comparison_lines(RECORDED, RecordedVerdict())[1].startswith(
        "replayed: no replica failed, why: nothing wrong"
    )


def test_a_fault_in_a_few_words() -> None:
    assert fault_text(RecordedFault("worker-1", FaultCause.EXIT, 3, step=12, after_seconds=8.12)) == (
        "worker-1: exit 3 at step 12, 8.1 s after its start"
    )
    assert fault_text(RecordedFault("worker-1", FaultCause.SIGNAL, 137, 9)) == "worker-1: signal 9"
    assert fault_text(RecordedFault("ps-0", FaultCause.OOM, after_seconds=2)) == (
        "ps-0: out of memory 2.0 s after its start"
    )
