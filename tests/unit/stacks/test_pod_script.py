"""The script that reads stacks inside a container, run by a real shell, and what its output says."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.stacks.cluster import debug_container
from gangline.stacks.groups import stack_groups
from gangline.stacks.model import RankStack
from gangline.stacks.pod_script import IncompleteOutput, script, script_processes
from gangline.stacks.pyspy import find_py_spy
from gangline.stacks.sentence import stacks_sentence
from support.waiting import wait_until_blocking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MARK = f"gangline-test-of-the-script-{os.getpid()}"  # tests of this file may run side by side
PROGRAM = """\
import time
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def container(tmp_path: Path) -> Iterator[int]:
    """A shell with a Python program, marked as the processes of a container of our node are."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    process = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} {file}; true"],
        env={**os.environ, "GANGLINE_CONTAINER": MARK, "RANK": "3", "API_KEY": "a-secret"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    yield process.pid
    os.killpg(process.pid, 9)
    process.communicate()


def run(*, py_spy: bool = True, native: bool = False) -> str:
    """What the script prints in the marked container, as an exec of our node runs it."""
    folders = [Path(find_py_spy()).parent] if py_spy else []
    tools = ":".join(map(str, [*folders, "/usr/bin", "/bin"]))
    done = subprocess.run(
        ["sh", "-c", script(native=native)],
        env={"PATH": tools, "GANGLINE_CONTAINER": MARK},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def sentence(output: str) -> str:
    return stacks_sentence(stack_groups([RankStack("worker-0", None, "", script_processes(output))]))


def test_a_container_is_read_and_only_that(container: int) -> None:
    expected = "worker-0 (rank 3) sleeps (train.py:3)"
    output = wait_until_blocking(lambda: text if sentence(text := run()) == expected else "")
    processes = script_processes(output)
    assert [one.source for one in processes] == ["proc", "py-spy"]
    assert processes[0].pid == container
    assert processes[1].parent == container
    assert "a-secret" not in output
    (main,) = processes[1].threads
    assert main.frames[0].code == "time.sleep(600)"
    assert main.wakeups is not None
    # It has read its modules.
    assert (processes[1].bytes_moved or 0) > 10_000


def test_without_py_spy_the_kernel_says_what_it_waits_for(container: int) -> None:
    if shutil.which("py-spy", path="/usr/bin:/bin"):
        pytest.skip("this machine has py-spy in /usr/bin")
    output = run(py_spy=False)
    assert script_processes(output)[1].error == "py-spy is not in the image"
    assert sentence(output).startswith("worker-0 (rank 3) sleeps (python")


def test_native_frames_can_be_had(container: int) -> None:
    frames = script_processes(run(native=True))[1].threads[0].frames
    assert any(frame.native for frame in frames)


@pytest.mark.parametrize("output", ["", "sh: not found", "@self 7\n@process 9", "@self $\n@end"])
def test_an_output_that_ends_too_early_is_no_answer(output: str) -> None:
    with pytest.raises(IncompleteOutput):
        script_processes(output)


def test_the_command_of_an_ephemeral_container_is_what_the_kubelet_makes_the_script_of() -> None:
    pod = {"spec": {"containers": [{"name": "sidecar"}, {"name": "jax", "securityContext": {"runAsUser": 7}}]}}
    container = debug_container("one", "tools:1", pod, "jax")
    # The kubelet replaces $$ by $, and $(NAME) by the value of a variable.
    assert (
        re.sub(r"\$(\$|\((\w+)\))", lambda match: "$" if match[1] == "$" else "?", container["command"][2]) == script()
    )
    assert container["securityContext"] == {"runAsUser": 7}
    assert "securityContext" not in debug_container("one", "tools:1", pod, "sidecar")


def test_processes_of_the_script_itself_and_broken_parts_are_left_out() -> None:
    stat = "(a b) S {} 0 0 0 0 0 0 0 0 0 150 50 0"
    output = "\n".join(
        (
            "@self 20",
            "@process 1",
            f"@stat 1 {stat.format(0)}",
            "@channel ep_poll",
            "@command my program ",
            "@process 21",
            f"@stat 21 {stat.format(20)}",
            "@process 30",
            "@stat ",
            "@end",
        )
    )
    (one,) = script_processes(output)
    assert (one.pid, one.command, one.state) == (1, "my program", "S")
    assert one.threads[0].wait_channel == "ep_poll"
    assert one.cpu_seconds == 200 / os.sysconf("SC_CLK_TCK")
