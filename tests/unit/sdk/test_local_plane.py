"""The start of a plane in a child process."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.sdk.local_plane import PlaneStartError, start_ready

FOREVER = "import sys; sys.stdin.read()"


def test_a_process_that_is_ready_is_returned(tmp_path: Path) -> None:
    with start_ready([sys.executable, "-c", f"print('ready', flush=True); {FOREVER}"], tmp_path / "log") as process:
        assert process.poll() is None
        process.communicate()
    assert process.returncode == 0


def test_a_process_that_ends_is_an_error_with_its_last_lines(tmp_path: Path) -> None:
    code = "import sys; print(*'abcdefg', sep='\\n', file=sys.stderr); sys.exit(3)"
    with pytest.raises(
        PlaneStartError, match=r"did not start; to see why, type: .*gangline.* up\n  c\n  d\n  e\n  f\n  g$"
    ):
        start_ready([sys.executable, "-c", code], tmp_path / "log")


def test_a_process_that_says_nothing_is_ended_after_a_while(tmp_path: Path) -> None:
    with pytest.raises(PlaneStartError, match=r"was not ready after 0\.05 s"):
        start_ready([sys.executable, "-c", FOREVER], tmp_path / "log", timedelta(seconds=0.05))
