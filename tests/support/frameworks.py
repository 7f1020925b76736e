"""Real frameworks, each in the virtual environment that hack/frameworks.sh made, and jobs that run on them."""

import hashlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from support.requirements import skip_or_fail
from support.servers.real import cache_dir

PINS_FOLDER = Path(__file__).parents[2] / "requirements" / "frameworks"


class FrameworkEnvironments:
    """The virtual environments of the frameworks, by group. "" is the interpreter that runs the tests."""

    def environment(self, group: str) -> Path:
        """The virtual environment of a group. Skips the test where there is none."""
        if not group:
            return Path(sys.prefix)
        pins = (PINS_FOLDER / f"{group}.txt").read_bytes()
        # As hack/frameworks.sh has it.
        home = cache_dir().parents[1] / "frameworks"
        found = home / f"{group}-{hashlib.sha256(pins).hexdigest()[:12]}"
        if not (found / "complete").is_file():
            skip_or_fail(
                f"framework group {group} not found: run make test-frameworks", required="GANGLINE_REQUIRE_FRAMEWORKS"
            )
        return found


class JobRunner:
    """`gangline run` with a mapping of images, as a person types it."""

    def __init__(self, folder: Path) -> None:
        self._images = folder / "images.yaml"

    def map_images(self, text: str) -> None:
        """Write the mapping of images to environments. Five lines must be enough for any framework."""
        assert len(text.splitlines()) <= 5
        self._images.write_text(text)

    def run(self, file: Path) -> "RunOutput":
        """Run a job to its end; it must succeed."""
        with self.start(file) as job:
            return job.wait_for_exit(0)

    def start(self, file: Path) -> AbstractContextManager["RunningJob"]:
        return self.start_command("--images", str(self._images), str(file))

    def run_command(self, *words: str) -> "RunOutput":
        """Run a job from a command to its end; it must succeed."""
        with self.start_command(*words) as job:
            return job.wait_for_exit(0)

    @contextmanager
    def start_command(self, *words: str) -> Iterator["RunningJob"]:
        """`gangline run` with these words."""
        process = subprocess.Popen(
            [sys.executable, "-m", "gangline", "run", "--timeout", "240", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self._images.parent,
        )
        try:
            yield RunningJob(process)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            # A rank that is stopped, or hangs, is killed when its 30 seconds are over.
            process.communicate(timeout=60)


class RunningJob:
    """A running `gangline run`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: list[str] = []

    def wait_for_line(self, pattern: str) -> "re.Match[str]":
        """Wait for a line after those already waited for."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if found := re.search(pattern, line):
                return found
        raise AssertionError(f"nobody said {pattern!r}:\n{''.join(self._lines)}")

    def wait_for_exit(self, code: int, *, seconds: float = 280) -> "RunOutput":
        """Wait for the end; returns all output."""
        rest, errors = self._process.communicate(timeout=seconds)
        text = "".join(self._lines) + rest
        assert self._process.returncode == code, text + errors
        return RunOutput(text)


class RunOutput:
    """What `gangline run` printed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def member_log(self, member: str) -> str:
        """The log of one member."""
        lines = self.text.splitlines()
        return "\n".join(line.partition("| ")[2] for line in lines if line.startswith(f"{member}| "))
