"""Ends of programs of other languages, of loggers, and of errors whose names say less than their words and times."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangline.jobs.plan.failures.ends import EndKind, ReplicaEnd, end_kind
from gangline.jobs.plan.failures.first import first_end
from gangline.jobs.plan.failures.last_error import last_error

SECOND = datetime(2026, 11, 18, 7, 0, 0, tzinfo=UTC)
STEPS = ("step 0 loss 1.0", "step 1 loss 0.5")


def stamped(at: float, *lines: str) -> tuple[str, ...]:
    time = (SECOND + timedelta(seconds=at)).isoformat(timespec="microseconds").replace("+00:00", "000Z")
    return tuple(f"{time} {line}" for line in lines)


def ended(at: float, *log: str, index: int = 0, code: int = 1, **more: Any) -> ReplicaEnd:
    """An end as our own node reports it: to the microsecond."""
    time = SECOND + timedelta(seconds=at)
    log = (*stamped(-1, *STEPS), *log)
    return ReplicaEnd(f"worker-{index}", code, ended_at=time, is_exact=True, log=log, rank=index, **more)


def raised(error: str, source: str = "step()", file: str = "train.py") -> tuple[str, ...]:
    return ("Traceback (most recent call last):", f'  File "{file}", line 3, in main', f"    {source}", error)


def first_rank(*ends: ReplicaEnd) -> int | None:
    found = first_end(ends)
    return ends[found.index].rank if found is not None else None


JAVA_CAUSE = ("java.lang.IllegalStateException: cannot parse row 8", "\tat com.acme.Data.parse(Data.java:12)")
JAVA_PEER = (
    'Exception in thread "main" java.io.EOFException',
    "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:398)",
    "\tat com.acme.Train.main(Train.java:44)",
)
JAVASCRIPT = ("TypeError: Cannot read properties of undefined", "    at step (/app/train.js:12:24)", "", "Node.js v20")


@pytest.mark.parametrize(
    ("lines", "name", "first_line"),
    [
        (JAVA_CAUSE, "java.lang.IllegalStateException", JAVA_CAUSE[0]),
        (JAVA_PEER, "java.io.EOFException", JAVA_PEER[0]),
        (JAVASCRIPT, "TypeError", JAVASCRIPT[0]),
        (("thread 'main' (4711) panicked at src/main.rs:17:9:", "index out of bounds"), "", "thread 'main' (4711)"),
        (("train: model.c:88: forward: Assertion `n > 0' failed.",), "", "train: model.c:88"),
    ],
)
def test_the_error_of_another_language_has_the_time_of_its_first_line(
    lines: tuple[str, ...], name: str, first_line: str
) -> None:
    error = last_error((*stamped(0, *STEPS), *stamped(1.25, lines[0]), *stamped(1.5, *lines[1:])))
    assert error.exception == name
    assert error.text.startswith(first_line)
    assert error.at == SECOND + timedelta(seconds=1.25)


def test_a_long_stack_of_another_language_is_one_error() -> None:
    frames = (f"\tat com.acme.Layer{depth}.run(Layer.java:{depth})" for depth in range(60))
    error = last_error(stamped(1, JAVA_CAUSE[0], *frames))
    assert error.exception == "java.lang.IllegalStateException"


def test_java_that_ends_with_its_stream_complains_unless_it_reads_a_file() -> None:
    assert end_kind(ended(1, *stamped(1, *JAVA_PEER))) is EndKind.COMPLAINT
    file = "\tat java.base/java.io.FileInputStream.readBytes(Native Method)"
    assert end_kind(ended(1, *stamped(1, *JAVA_PEER, file))) is not EndKind.COMPLAINT


def test_the_members_of_an_exception_group_are_errors() -> None:
    group = (
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "train.py", line 7, in <module>',
        "  |     asyncio.run(main())",
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)",
        "  +-+---------------- 1 ----------------",
        "    | Traceback (most recent call last):",
        '    |   File "train.py", line 6, in load',
        "    |     return table[key]",
        "    | KeyError: 'label'",
        "    +------------------------------------",
    )
    error = last_error(stamped(1, *group))
    assert (error.exception, error.frames[-1].function) == ("KeyError", "load")
    assert end_kind(ended(1, *stamped(1, *group))) is EndKind.OWN_ERROR


@pytest.mark.parametrize(
    "line",
    [
        "2026-11-18 07:00:01,250 ERROR train: loss is NaN, aborting",
        "[rank1]:CRITICAL: loss is NaN",
        "E1118 07:00:01.250000 77 train.cc:88] loss is NaN",
        '{"ts": 1.2, "level": "fatal", "msg": "loss is NaN"}',
        "ts=1.2 level=error msg=nan",
        "train.py: error: loss is NaN",
    ],
)
def test_a_line_that_calls_itself_an_error_says_when_a_program_failed(line: str) -> None:
    """It takes its time to save a checkpoint, and its peers have ended by then."""
    ends = (
        ended(2.0, *stamped(1.9, "abandoning ship"), index=0),
        ended(3.4, *stamped(1.85, line), *stamped(3.3, "checkpoint saved"), index=1),
        ended(2.1, *stamped(2.0, "da ist etwas schiefgelaufen"), index=2),
    )
    assert first_rank(*ends) == 1


@pytest.mark.parametrize("after", ["step 2 loss 0.3", "ERROR: loading the cache failed"])
def test_an_error_that_a_program_survived_or_others_wrote_too_says_nothing(after: str) -> None:
    """Libraries greet with errors, and programs go on after them."""
    greeting = "ERROR: loading the cache failed"
    ends = (
        ended(2.0, *stamped(1.0, greeting), *stamped(1.9, after), index=0),
        ended(1.9, *stamped(1.1, greeting), *stamped(1.2, "step 2 loss 0.4"), index=1, code=3),
    )
    assert first_rank(*ends) == 1


def test_an_error_line_long_before_the_end_says_nothing() -> None:
    ends = (
        ended(60.0, *stamped(1.0, "ERROR: no plugin for this card"), index=0),
        ended(59.0, *raised("KeyError: 'label'"), index=1),
    )
    assert first_rank(*ends) == 1


@pytest.mark.parametrize(
    ("error", "source"),
    [
        ("TimeoutError: reading shard 7 took more than 5 s", "if slow: raise TimeoutError(text)"),
        ("ConnectionError: cannot open the feature store at features.local:5432", "raise ConnectionError(text)"),
        ("BrokenPipeError: [Errno 32] Broken pipe", "encoder.stdin.write(frame)"),
    ],
)
def test_an_error_about_something_else_than_peers_is_no_complaint(error: str, source: str) -> None:
    ends = (
        ended(2.0, *stamped(1.95, "abandoning ship"), index=0),
        ended(1.95, *stamped(1.9, *raised(error, source)), index=1),
    )
    assert end_kind(ends[1]) is EndKind.UNCLEAR
    assert first_rank(*ends) == 1


def test_a_timeout_of_a_call_to_peers_is_a_complaint() -> None:
    log = stamped(1.9, *raised("TimeoutError: timed out", "head = connection.recv(4)"))
    assert end_kind(ended(2, *log)) is EndKind.COMPLAINT


def test_another_one_is_not_a_peer() -> None:
    error = "RuntimeError: the vocabulary is another one than that of the checkpoint"
    assert end_kind(ended(2, *stamped(1.9, *raised(error)))) is EndKind.UNCLEAR


@pytest.mark.parametrize(
    "error",
    [
        "ValueError: invalid literal for int() with base 10: b''",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "struct.error: unpack requires a buffer of 4 bytes",
    ],
)
def test_an_error_about_no_data_does_not_overrule_times(error: str) -> None:
    """A peer took the end of a stream for data, in a function that does not read it."""
    ends = (
        ended(2.0, *stamped(1.925, *raised(error, "return parse(head)")), index=0),
        ended(1.9, index=1, code=3),
    )
    assert end_kind(ends[0]) is EndKind.UNCLEAR
    assert first_rank(*ends) == 1


def test_different_errors_of_several_replicas_do_not_overrule_times() -> None:
    ends = (
        ended(2.0, *stamped(1.92, *raised("IndexError: index out of range", "return head[0]")), index=0),
        ended(2.0, *stamped(1.925, *raised("KeyError: 'kind'", "return head['kind']")), index=1),
        ended(1.9, index=2, code=3),
    )
    assert first_rank(*ends) == 2
    assert first_rank(ends[0], ends[2]) == 0
