"""Type checkers see the public API as it is: right uses pass, wrong ones are complained about."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMES = "tests/typing/public_names.py"


def test_right_uses_of_the_public_api_pass_and_wrong_ones_do_not() -> None:
    # Without options of its own, so that it shares the cache of `make check`.
    done = subprocess.run([sys.executable, "-m", "mypy", NAMES], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr or done.stdout
    # A complaint of mypy's, or a `type: ignore` that it finds nothing to ignore for.
    assert not [line for line in done.stdout.splitlines() if line.startswith(NAMES)]


def test_there_are_wrong_uses_of_every_package() -> None:
    wrong = [line for line in (ROOT / NAMES).read_text().splitlines() if "# type: ignore[" in line]
    assert len(wrong) >= 15
