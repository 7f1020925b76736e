"""What to type in this shell to run this gangline: texts that people copy must work there."""

import os
import shlex
import shutil
import sys
from pathlib import Path

COMMAND = "gangline"
KUBECTL_PLUGIN = "kubectl-gangline"


def own_command() -> str:
    """The words that run this gangline: `gangline`, `.venv/bin/gangline`, `kubectl gangline`, `python -m gangline`."""
    started = Path(sys.argv[0] or COMMAND)
    if started.name == KUBECTL_PLUGIN:
        return f"kubectl {COMMAND}"
    script = _script(started)
    if script is None:
        return f"{shown_path(Path(sys.executable))} -m {COMMAND}"
    on_path = shutil.which(COMMAND)
    return COMMAND if on_path is not None and Path(on_path).samefile(script) else shown_path(script)


def own_command_line(*words: str) -> str:
    """A command line of this gangline, to be copied into a shell."""
    return " ".join((own_command(), *map(shlex.quote, words)))


def shown_path(path: Path) -> str:
    """A path, quoted for a shell: relative to the working directory if it is below that."""
    try:
        folder, path = Path.cwd(), path.absolute()
    except FileNotFoundError:
        return shlex.quote(str(path))
    return shlex.quote(str(path.relative_to(folder) if path.is_relative_to(folder) else path))


def _script(started: Path) -> Path | None:
    """The script that was started, else the one that is installed beside the interpreter."""
    beside = Path(sys.executable).parent / COMMAND
    candidates = (started, beside) if started.name == COMMAND and os.sep in str(started) else (beside,)
    return next((script for script in candidates if script.is_file() and os.access(script, os.X_OK)), None)
