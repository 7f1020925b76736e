"""Lets `gangline stacks` read this program where the system forbids to read it from outside. Standard library only."""

import contextlib
import os
import sys

FILE_NAME = "gangline-stacks"
"""The name of the file in memory that the stacks are written to, followed by the pid of the program."""


def offer_stacks() -> bool:
    """Write the stacks of all threads into a file in memory whenever SIGURG comes. Returns whether that is so.

    SIGURG, because a program that does not expect it ignores it. Nothing happens where the program uses that signal
    itself, and outside of Linux. `report` calls it; a program that reports no progress may call it at its start.
    """
    if sys.platform == "linux":
        import faulthandler
        import fcntl
        import signal

        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if signal.getsignal(signal.SIGURG) is signal.SIG_DFL:
                file = os.memfd_create(f"{FILE_NAME}-{os.getpid()}")
                fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
                faulthandler.register(signal.SIGURG, file=file, all_threads=True)
                return True
    return False
