"""Where the plane of this machine keeps its things. Light: every command asks."""

import os
from collections.abc import Mapping
from pathlib import Path


def home_folder(given: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder asked for, by argument or GANGLINE_HOME; else the user's state folder."""
    asked = given or environ.get("GANGLINE_HOME")
    if asked:
        return Path(asked).absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("gangline", appauthor=False))
