"""What this system has, and what the portable mode switches off."""

import os
import resource
import signal
import subprocess
import sys
from typing import NoReturn

import pytest

from gangline.base.host_features import MAX_OPEN_FILES, PORTABLE_VARIABLE, has_linux_features, signal_group

RAISE_AND_PRINT = """
import resource
from gangline.base.host_features import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_open_files_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("system", "portable", "expected"), [("linux", "", True), ("linux", "1", False), ("darwin", "", False)]
)
def test_linux_features_are_those_of_linux_unless_switched_off(
    monkeypatch: pytest.MonkeyPatch, system: str, portable: str, *, expected: bool
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setenv(PORTABLE_VARIABLE, portable)
    assert has_linux_features() is expected


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (256, MAX_OPEN_FILES + 1, f"{MAX_OPEN_FILES} {MAX_OPEN_FILES + 1}"),
        (256, 300, "300 300"),
        (300, 300, "300 300"),
        (MAX_OPEN_FILES + 1, MAX_OPEN_FILES + 2, f"{MAX_OPEN_FILES + 1} {MAX_OPEN_FILES + 2}"),
    ],
)
def test_the_limit_of_open_files_is_raised_and_never_lowered(soft: int, hard: int, expected: str) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MAX_OPEN_FILES + 2:
        pytest.skip("this machine allows fewer open files than the test needs")
    command = [sys.executable, "-c", RAISE_AND_PRINT.format(soft=soft, hard=hard)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == expected


@pytest.mark.parametrize("answer", [ProcessLookupError, PermissionError])
def test_a_group_that_has_ended_needs_no_signal(monkeypatch: pytest.MonkeyPatch, answer: type[OSError]) -> None:
    """Linux gives the first answer; macOS gives the second one while nobody has reaped the group."""

    def ended(group: int, number: int) -> NoReturn:
        raise answer

    monkeypatch.setattr(os, "killpg", ended)
    signal_group(2**22, signal.SIGKILL)


def test_a_signal_reaches_the_group() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        signal_group(process.pid, signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
