"""An accident on purpose: one member is really killed, once, when it is so far."""

from pathlib import Path

from gangline.api.meta import Key
from gangline.cli.cleanup.processes import kill
from gangline.cli.follow.follower import Watcher
from gangline.progress.line import Progress


def accident(state: Path, victim: str, moment: float, *, job: str = "linear") -> Watcher:
    """Tell it progress: at the moment it sends SIGKILL to the victim's process, and says so."""
    done = False

    def watch(member: str, progress: Progress) -> str | None:
        nonlocal done
        if done or member != victim or (progress.share or 0.0) < moment:
            return None
        pid = kill(state, Key("default", f"{job}-{victim}"))
        done = pid is not None
        return f"demo: SIGKILL to {victim} (pid {pid}); watch it heal" if done else None

    return watch
