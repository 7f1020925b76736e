"""Makes standard input the controlling terminal, then executes a command: `controlling_tty.py PROGRAM NAME ARG...`.

Started as a script with a bare interpreter, in its own session. A function between fork and exec would do the same, but
is not safe in a process with threads.
"""

import fcntl
import os
import sys
import termios

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    try:
        os.execv(sys.argv[1], sys.argv[2:])  # noqa: S606 - the purpose of this script
    except OSError as error:
        sys.stderr.write(f"exec: {sys.argv[1]}: {error.strerror}\r\n")
        sys.exit(126)
