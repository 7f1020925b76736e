"""Where the plane of this machine keeps its things."""

import os
from pathlib import Path


def home_folder(given: Path | None) -> Path:
    """The folder asked for, else the user's state folder."""
    if given is not None:
        return given.absolute()
    if os.environ.get("GANGLINE_HOME"):
        return Path(os.environ["GANGLINE_HOME"]).absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("gangline", appauthor=False))
