"""The folder in which the plane of this machine keeps its state, and paths of its server. Cheap to import."""

import os
from collections.abc import Mapping
from pathlib import Path

BACKUP_PATH = "/gangline/backup"
"""The path at which a running plane serves a backup of its store."""


def home_folder(folder: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the argument or of GANGLINE_HOME; else the user's state folder."""
    configured = folder or environ.get("GANGLINE_HOME")
    if configured:
        return Path(configured).absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("gangline", appauthor=False))
