"""Enters the namespaces of a process, then executes a command: `enter_namespaces.py PID FOLDER PROGRAM ARGUMENT...`.

Started as a script with a bare interpreter: only a process with one thread can enter namespaces.
"""

# pathlib is slow to import.
# ruff: noqa: PTH116

import ctypes
import os
import sys

NAMESPACES = (("user", 0x10000000), ("net", 0x40000000), ("uts", 0x04000000), ("mnt", 0x00020000))
"""Names and CLONE_* flags. The user namespace is first: it gives the right to enter the others."""


def enter(pid: str) -> None:
    """Enter the namespaces of a process. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    # All are opened before the first is entered: afterwards /proc may be unreadable.
    descriptors = [(name, kind, os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)) for name, kind in NAMESPACES]
    for name, kind, descriptor in descriptors:
        # A process cannot enter its own user namespace again.
        same = os.path.samestat(os.fstat(descriptor), os.stat(f"/proc/self/ns/{name}"))
        if not same and libc.setns(descriptor, kind):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), name)
        os.close(descriptor)


def main(pid: str, folder: str, command: list[str]) -> int:
    try:
        enter(pid)
        os.chdir(folder)
        os.execvp(command[0], command)  # noqa: S606 - the purpose of this script
    except OSError as error:
        sys.stderr.write(f'exec: "{command[0]}": {error.strerror}\n')
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
