"""What this system has, and what the portable mode switches off."""

import resource
import subprocess
import sys

import pytest

from gangline.base.host_features import MAX_OPEN_FILES, PORTABLE_VARIABLE, has_linux_features

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
