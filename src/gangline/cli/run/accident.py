"""An accident on purpose: one member is really killed, once, when it is so far."""

from pathlib import Path

from gangline.api.meta import Key
from gangline.cli.cleanup.processes import kill_pod
from gangline.cli.follow.follower import ProgressHook
from gangline.progress.line import Progress


def kill_once(state: Path, victim: str, moment: float, *, job: str = "linear") -> ProgressHook:
    """Tell it progress: at the moment it sends SIGKILL to the victim's process, and says so."""
    done = False

    def watch(member: str, progress: Progress) -> str | None:
        nonlocal done
        if done or member != victim or (progress.fraction or 0.0) < moment:
            return None
        pid = kill_pod(state, Key("default", f"{job}-{victim}"))
        done = pid is not None
        return f"demo: SIGKILL to {victim} (pid {pid}); watch it heal" if done else None

    return watch
