"""`make install` in all the states that a folder can be in, with a uv that fetches nothing; and what it says."""

import ast
import errno
import io
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from hack.bootstrap import (  # noqa: E402
    PackageCount,
    ProgressLine,
    explained,
    no_venv_message,
    old_python_message,
    os_error_message,
)

UNFINISHED = "gangline-setup.unfinished"

# Makes environments as uv does, but of nothing: `uv venv FOLDER`, `uv pip install --python PYTHON ...`.
FAKE_UV = """
    import os, pathlib, subprocess, sys
    words = sys.argv[1:]
    with open(os.environ["FAKE_UV_CALLS"], "a") as calls:
        print(*words, file=calls)
    if "FAKE_UV_WORDS" in os.environ:
        sys.exit(os.environ["FAKE_UV_WORDS"])
    if words[0] == "venv":
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", words[-1]], check=True)
        (packages,) = pathlib.Path(words[-1]).glob("lib/*/site-packages")
        (packages / "pip.py").touch()
    elif "--editable" in words:
        script = pathlib.Path(words[words.index("--python") + 1]).with_name("gangline")
        script.write_text("#!/bin/sh\\necho gangline of $0\\n")
        script.chmod(0o755)
    else:
        print("Downloading numpy (16.1MiB)")
"""


class Clone:
    """A folder with what the set-up reads, and a uv of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "hack").mkdir(parents=True)
        shutil.copy(ROOT / "hack" / "bootstrap.py", folder / "hack")
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        shutil.copy(ROOT / "pyproject.toml", folder)
        self.uv = folder / "uv"
        self.uv.write_text(f"#!{sys.executable}\n{textwrap.dedent(FAKE_UV)}")
        self.uv.chmod(0o755)
        self.log = folder / "calls"

    @property
    def venv(self) -> Path:
        return self.folder / ".venv"

    def install(self, stage: str = "runtime", **environment: str) -> subprocess.CompletedProcess[str]:
        self.log.write_text("")
        command = [sys.executable, "-I", "hack/bootstrap.py", stage, "--uv", str(self.uv)]
        settings = {**os.environ, "FAKE_UV_CALLS": str(self.log), **environment}
        return subprocess.run(command, cwd=self.folder, env=settings, capture_output=True, text=True)

    def calls(self) -> list[str]:
        """What uv was asked for by the last call: `venv`, `pip`."""
        return [line.split()[0] for line in self.log.read_text().splitlines()]


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "a clone")


def test_a_new_folder_is_set_up_and_a_second_call_does_and_says_nothing(clone: Clone) -> None:
    first = clone.install()
    assert first.returncode == 0, first.stderr
    summary = re.search(r"set-up: (\d+) packages in ", first.stderr.splitlines()[-2])
    assert summary is not None
    assert int(summary[1]) < 30
    assert first.stderr.splitlines()[-1] == "the command in this shell: . .venv/bin/activate"
    assert clone.calls() == ["venv", "pip", "pip"]
    second = clone.install()
    assert (second.returncode, second.stdout + second.stderr, clone.calls()) == (0, "", [])


def test_dev_comes_on_top_of_runtime_and_contains_it(clone: Clone) -> None:
    clone.install("runtime")
    assert clone.install("dev").returncode == 0
    assert "venv" not in clone.calls()
    clone.install("runtime")
    assert clone.calls() == []


def test_after_dev_alone_runtime_is_there(clone: Clone) -> None:
    clone.install("dev")
    clone.install("runtime")
    assert clone.calls() == []


def test_a_moved_folder_is_made_anew(clone: Clone) -> None:
    clone.install()
    moved = clone.folder.rename(clone.folder.with_name("moved"))
    clone.folder, clone.uv, clone.log = moved, moved / "uv", moved / "calls"
    done = clone.install()
    assert done.returncode == 0
    assert ".venv is made anew: it was moved" in done.stderr
    assert clone.calls() == ["venv", "pip", "pip"]


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (lambda venv: (venv / UNFINISHED).touch(), "an earlier set-up was not finished"),
        (lambda venv: (venv / "bin" / "python").unlink(), "its Python is gone"),
        (lambda venv: shutil.rmtree(venv / "bin"), "its Python is gone"),
    ],
)
def test_half_an_environment_is_made_anew(clone: Clone, harm: object, reason: str) -> None:
    clone.install()
    assert callable(harm)
    harm(clone.venv)
    done = clone.install()
    assert (done.returncode, clone.calls()) == (0, ["venv", "pip", "pip"])
    assert reason in done.stderr


def test_an_installer_that_fails_leaves_no_environment_that_counts_as_made(clone: Clone) -> None:
    failed = clone.install(FAKE_UV_WORDS="error: dns error: no such host")
    assert failed.returncode == 1
    (line,) = (line for line in failed.stderr.splitlines() if line.startswith("error:"))
    assert "the package index cannot be reached" in line
    assert clone.install().returncode == 0
    assert clone.calls() == ["venv", "pip", "pip"]


def test_an_environment_made_by_hand_is_used_and_keeps_what_is_in_it(clone: Clone) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(clone.venv)], check=True)
    (clone.venv / "mine").touch()
    assert clone.install().returncode == 0
    assert (clone.calls(), (clone.venv / "mine").exists()) == (["pip", "pip"], True)
    # What people type in it is not that of another Python.
    assert (clone.venv / "bin" / "pip").exists()


def test_changed_pins_are_installed_into_what_is_there(clone: Clone) -> None:
    clone.install()
    pins = clone.folder / "requirements" / "runtime.txt"
    pins.write_text(pins.read_text() + "# changed\n")
    clone.install()
    assert clone.calls() == ["pip", "pip"]


def test_another_version_of_gangline_installs_gangline_alone(clone: Clone) -> None:
    clone.install()
    project = clone.folder / "pyproject.toml"
    project.write_text(project.read_text().replace("[project.scripts]", '[project.scripts]\nmore = "gangline:more"'))
    done = clone.install()
    assert "set-up: gangline in " in done.stderr
    assert clone.calls() == ["pip"]


def test_a_setting_of_a_linter_installs_nothing(clone: Clone) -> None:
    clone.install()
    project = clone.folder / "pyproject.toml"
    project.write_text(project.read_text().replace("line-length = 120", "line-length = 99"))
    clone.install()
    assert clone.calls() == []


def test_a_link_that_leads_nowhere_is_one_line(clone: Clone) -> None:
    clone.venv.symlink_to(clone.folder / "nowhere")
    done = clone.install()
    assert done.returncode == 1
    assert done.stderr == "error: .venv is a link, and cannot be used: its Python is gone; remove the link\n"


def test_a_folder_that_cannot_be_written_is_one_line(clone: Clone) -> None:
    # A file where a folder should be stops root, too.
    clone.venv.write_text("")
    done = clone.install()
    assert (done.returncode, done.stderr.splitlines()[-1][:13]) == (1, "error: .venv:")
    assert "Traceback" not in done.stderr


def test_an_environment_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "CACHEDIR.TAG")
    line = os_error_message(error, tmp_path / ".venv")
    assert line.startswith(f"{tmp_path}/.venv: Permission denied; clone into a folder that you may write")


def test_what_a_person_set_for_python_does_not_lead_the_set_up_astray(clone: Clone) -> None:
    assert clone.install(PYTHONPATH="/nowhere", PIP_TARGET="/nowhere", PYTHONHOME="/nowhere").returncode == 0


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: Could not install: [Errno 13] Permission denied: 'x'", "a folder that you may write"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", "pins by hash"),
        ("ssl.SSLCertVerificationError: CERTIFICATE_VERIFY_FAILED", "name your CA"),
        ("Failed to establish a new connection: [Errno -3] Temporary failure in name resolution", "check the network"),
        ("  Caused by: client error (Connect)", "check the network"),
        ("ERROR: No matching distribution found for numpy==2.4.6", "no wheel of numpy==2.4.6 for Python"),
        ("ERROR: something nobody has seen", "the installer failed: ERROR: something nobody has seen"),
    ],
)
def test_what_an_installer_says_is_explained_in_one_line(words: str, meaning: str) -> None:
    line = explained(["Collecting numpy==2.4.6\n", f"{words}\n"], ".venv/log")
    assert meaning in line
    assert line.endswith("(details: .venv/log)")
    assert "\n" not in line


def test_no_output_is_explained_too() -> None:
    assert explained([], "log") == "the installer failed: no word (details: log)"


def test_an_old_python_gets_a_command_that_works() -> None:
    line = old_python_message((3, 9), "/usr/bin/python3")
    assert line.startswith("Python 3.11 or newer is needed, /usr/bin/python3 is 3.9; write: make PYTHON=python3.1")


def test_a_python_without_venv_is_told_the_package() -> None:
    minor = ".".join(map(str, sys.version_info[:2]))
    line = no_venv_message("/usr/bin/python3", ["ensurepip"])
    assert (
        f"/usr/bin/python3 has no ensurepip, so it cannot make a virtual environment; on Debian and Ubuntu: sudo apt install python{minor}-venv"
        in line
    )


def test_an_old_python_can_read_the_script_as_far_as_the_message() -> None:
    ast.parse((ROOT / "hack" / "bootstrap.py").read_text(), feature_version=(3, 7))


PINS = "aiohttp==3.14.5 \\\n    --hash=sha256:0\nnumpy==2.4.6 ; python_full_version < '3.12' \\\nnumpy==2.5.4 ; python_full_version >= '3.12' \\\ntyping-extensions==4.16.0 ; python_full_version < '3.13' \\\n"


def test_packages_are_counted_once_and_only_those_for_this_python() -> None:
    count = PackageCount(PINS)
    assert count.total == 3
    assert count.read("Ignoring numpy: markers 'python_full_version < \"3.12\"' don't match your environment\n") == ""
    assert count.read("Ignoring typing-extensions: markers '…' don't match your environment\n") == ""
    assert count.read("Collecting aiohttp==3.14.5 (from -r requirements/runtime.txt (line 2))\n") == "1/2 aiohttp"
    assert count.read("  Using cached aiohttp-3.14.5.whl (1.8 MB)\n") == ""
    assert count.read("Requirement already satisfied: numpy==2.5.4 in ./lib\n") == "2/2 numpy"
    assert count.read("Installing collected packages: aiohttp, numpy\n") == "2/2 into place"


def test_uv_downloads_are_counted() -> None:
    count = PackageCount(PINS)
    assert count.read("Resolved 2 packages in 354ms\n") == ""
    assert count.read("Downloading numpy (16.1MiB)\n") == "1/2 numpy"
    assert count.read("Prepared 2 packages in 765ms\n") == "2/2 into place"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_drawn_again() -> None:
    terminal = Terminal()
    line = ProgressLine(terminal)
    line.show("installing 1/2 aiohttp", every=10)
    line.show("installing 2/2 numpy", every=10)
    line.say("set-up: 2 packages")
    drawn = terminal.getvalue().split("\r\x1b[K")
    assert [text.partition(" ...")[0] for text in drawn[1:3]] == [
        "set-up: installing 1/2 aiohttp",
        "set-up: installing 2/2 numpy",
    ]
    assert drawn[-1] == "set-up: 2 packages\n"
    assert terminal.getvalue().count("\n") == 1


def test_elsewhere_there_are_few_plain_lines() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream)
    line.show("installing 28 packages")
    for number in range(1, 29):
        line.show(f"installing {number}/28 x", every=10)
    line.tick()
    assert stream.getvalue().splitlines() == [
        "set-up: installing 28 packages",
        "set-up: installing 10/28 x",
        "set-up: installing 20/28 x",
    ]


def test_run_time_and_build_backend_are_few_packages() -> None:
    files = [ROOT / "requirements" / name for name in ("runtime.txt", "build.txt")]
    assert PackageCount("\n".join(file.read_text() for file in files)).total < 30
