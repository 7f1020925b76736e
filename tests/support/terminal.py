"""Runs a command on a real pty, and keeps what the screen shows."""

import codecs
import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

_ESCAPE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|\x1b[()][A-Z0-9]|\x1b[=>78]")
# The beginning of an order, of which the rest is yet to come.
_PARTIAL_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*|[()])?\Z")
# Up to the next return: a line, or what is drawn in its place.
_LINE_PIECE, _ALL_TEXT = re.compile(r"\r?[^\r]*"), re.compile(r"(?s:.*)")


class TerminalScreen:
    """What is written, as a person sees it. Knows what a block that is drawn in place needs: up, erase, return."""

    def __init__(self) -> None:
        self.lines: list[str] = [""]
        self.row = self.column = 0
        self.has_colour = False

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.lines).rstrip()

    def write(self, data: str) -> None:
        at = 0
        while at < len(data):
            found = _ESCAPE.match(data, at)
            if found is not None:
                self._apply_escape(found[1] or "", found[2] or "")
                at = found.end()
            else:
                self._write_character(data[at])
                at += 1

    def _write_character(self, character: str) -> None:
        if character == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif character == "\r":
            self.column = 0
        elif character >= " ":
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _apply_escape(self, given: str, order: str) -> None:
        number = int(given) if given.isdigit() else 1
        if order == "A":
            self.row = max(0, self.row - number)
        elif order == "K":
            self.lines[self.row] = "" if given == "2" else self.lines[self.row][: self.column]
        elif order == "m":
            codes = {int(code) for code in given.split(";") if code.isdigit()}
            self.has_colour |= any(30 <= code <= 47 or 90 <= code <= 107 for code in codes)


class PtyTerminal:
    """A command on a pty, 24 by 100 unless told. Ended with the block, if it has not by itself."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        size: tuple[int, int] = (24, 100),
    ) -> None:
        self.screen = TerminalScreen()
        self.raw = b""
        self._pending, self._decoder = "", codecs.getincrementaldecoder("utf-8")(errors="ignore")
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**os.environ, "TERM": "xterm-256color", **(env or {})},
            # A session of its own whose terminal this is, so that Ctrl-C reaches it as a person's would.
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0) and None,
        )
        os.close(slave)

    def __enter__(self) -> "PtyTerminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        os.close(self._master)

    def wait_for(self, seen: Callable[[str], object], patience: float = 60.0) -> None:
        """Read on until the screen shows it, be it for a moment only. Fails with the screen when it never does.

        What comes after that moment is left to the next look, however much of it is there already: a test that was
        kept waiting sees all that a person would have seen.
        """
        end = time.monotonic() + patience
        while not seen(self.screen.text):
            assert self._show_pending(_LINE_PIECE) or self._read(end - time.monotonic()), self.screen.text

    def press_keys(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for_exit(self, patience: float = 90.0) -> int:
        """Read to the end; returns the exit code."""
        end = time.monotonic() + patience
        while self._show_pending(_ALL_TEXT) or self._read(end - time.monotonic()):
            assert time.monotonic() < end, self.screen.text
        return self.process.wait(max(1.0, end - time.monotonic()))

    def _show_pending(self, much: re.Pattern[str]) -> bool:
        """So much of what was read; False if all of it is shown."""
        # An order may be cut in two: what is left waits for the next piece.
        found = much.match(_PARTIAL_ESCAPE.sub("", self._pending))
        shown = found[0] if found else ""
        self.screen.write(shown)
        self._pending = self._pending[len(shown) :]
        return bool(shown)

    def _read(self, patience: float) -> bool:
        """A piece more; False at the end, or when none came in time."""
        if patience <= 0 or not select.select([self._master], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError as error:
            # How Linux says that nobody has the other end open any more.
            if error.errno != errno.EIO:
                raise
            return False
        self.raw += data
        self._pending += self._decoder.decode(data)
        return bool(data)
