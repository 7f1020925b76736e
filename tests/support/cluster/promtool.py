"""promtool, which checks rules and metrics of Prometheus. hack/promtool.sh fetches it."""

import os
import shutil
from pathlib import Path

from support.requirements import skip_or_fail


def promtool() -> Path:
    """The program; skips the test where there is none, and fails it in CI."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gangline"
    cached = Path(os.environ.get("GANGLINE_CACHE") or default) / "promtool" / "promtool"
    found = shutil.which("promtool") or (str(cached) if cached.is_file() else None)
    if found is None:
        skip_or_fail("promtool not found: run hack/promtool.sh")
    return Path(found)
