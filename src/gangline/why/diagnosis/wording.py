"""How names, times, amounts and exit codes are written for people."""

import signal
from collections.abc import Sequence
from datetime import datetime, timedelta

from gangline.api.quantity import Quantity, QuantityError, QuantityFormat

MAX_NAMES = 3
"""At most this many replicas are listed by name; the rest are counted."""

_EXIT_CODE_MEANINGS = {
    1: "the program ended with an error",
    2: "wrong use of the command line, or an error of a shell",
    126: "the command cannot be executed",
    127: "the command was not found",
    128: "the container could not be started",
    255: "the program gave up, or was started over a connection that broke",
}
_SIGNAL_MEANINGS = {
    signal.SIGKILL: "killed from outside",
    signal.SIGTERM: "asked to end from outside",
    signal.SIGSEGV: "it crashed in native code",
    signal.SIGABRT: "it aborted itself",
    signal.SIGBUS: "it touched memory that is not there, often a full /dev/shm",
    signal.SIGILL: "an instruction that this CPU does not have",
    signal.SIGFPE: "an arithmetic fault",
    signal.SIGINT: "interrupted",
}


def exit_code_meaning(code: int) -> str:
    """The meaning of an exit code in words."""
    name = signal_name(code)
    if not name:
        return _EXIT_CODE_MEANINGS.get(code, "the program's own code")
    meaning = _SIGNAL_MEANINGS.get(signal.Signals(code - 128), "")
    return meaning or name


def signal_name(code: int | None) -> str:
    """`SIGKILL` for 137; empty if the exit code is not a signal's."""
    if code is None or code <= 128:
        return ""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""


def name_list(replicas: Sequence[str]) -> str:
    """`worker-0, worker-1 and 6 more`."""
    names = sorted(dict.fromkeys(replicas), key=_natural_order)
    if len(names) > MAX_NAMES + 1:
        return f"{', '.join(names[:MAX_NAMES])} and {len(names) - MAX_NAMES} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _natural_order(name: str) -> tuple[str, int, str]:
    head, _, tail = name.rpartition("-")
    return (head, int(tail), "") if tail.isdigit() else (name, 0, name)


def count_phrase(number: int, thing: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def times_phrase(number: int) -> str:
    """`once`, `twice`, `5 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def duration_phrase(length: timedelta) -> str:
    """`42 s`, `12 min`, `3 h`, `2 days`."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in (("day", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return count_phrase(seconds // size, unit) if unit == "day" else f"{seconds // size} {unit}"
    return f"{seconds} s"


def time_of_day(moment: datetime) -> str:
    return moment.strftime("%H:%M:%S")


def quantity_text(quantity: Quantity) -> str:
    """Short enough to read: `209.8Gi`, `500m`, `1.5`."""
    if quantity.family is QuantityFormat.BINARY:
        value, power = float(quantity.value()), 0
        while value >= 1024 and power < 6:
            value, power = value / 1024, power + 1
        return f"{value:.1f}".removesuffix(".0") + ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")[power]
    return str(quantity)


def larger_quantity(text: str) -> str:
    """Half as much again, rounded: a suggestion to replace a limit that was too low."""
    try:
        quantity = Quantity.of(text)
    except QuantityError:
        return ""
    suggested = quantity.value() * 3 // 2
    for suffix, size in (("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10)):
        if suggested >= size:
            return f"{-(-suggested // size)}{suffix}"
    return str(suggested)
