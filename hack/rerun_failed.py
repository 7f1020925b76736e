"""Runs the tests that failed in the last run once more, one at a time: python hack/rerun_failed.py [pytest's options]

A machine that is busy with something else can make a test fail that waits for a real process. Such a test passes when it
runs alone, and is listed as unsteady, to be mended. A test that fails twice, more than a few failures, or a run that broke
off is a failure: exit code 1.
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MAX_FAILURES = 5
"""With more failures than this something is broken."""


def failed_tests() -> list[str]:
    """The tests that failed in the last run; empty if it failed without a failed test."""
    return sorted(json.loads(LAST_FAILED.read_text())) if LAST_FAILED.is_file() else []


def main() -> int:
    failed = failed_tests()
    if not failed or len(failed) > MAX_FAILURES:
        print(f"{len(failed)} failed tests are not run again: it is done for 1 to {MAX_FAILURES}")
        return 1
    print("once more, one at a time:", *failed, sep="\n  ")
    # The group of xdist is part of the name in the cache, and not of the name of the test.
    names = [name.rsplit("@", 1)[0] if "@" in name.rsplit("]", 1)[-1] else name for name in failed]
    code = subprocess.run([sys.executable, "-m", "pytest", *sys.argv[1:], *names], check=False).returncode
    if code == 0:
        print("unsteady, failed once and passed alone:", *failed, sep="\n  ")
    return 1 if code else 0


if __name__ == "__main__":
    sys.exit(main())
