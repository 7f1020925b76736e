"""The agent of MPI launchers; `hack/agent.sh` builds it."""

import os
import subprocess
from pathlib import Path

from support.requirements import skip_or_fail

SCRIPT = Path(__file__).parents[3] / "hack" / "agent.sh"


def built_agent() -> Path:
    """The program of this very source. Skips the test if it was not built."""
    where = subprocess.run([SCRIPT, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    if not os.access(where, os.X_OK):
        skip_or_fail("the agent of MPI launchers was not built: run hack/agent.sh")
    return Path(where)
