"""Notebooks, executed without a browser: the example, the page about them, and what goes wrong in cells."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebooks" / "train.ipynb"
PAGE = ROOT / "docs" / "notebook.md"
KERNEL = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

pytestmark = [
    pytest.mark.xdist_group("sdk"),
    pytest.mark.filterwarnings("ignore"),  # of the Jupyter packages, about themselves
]


@pytest.fixture(autouse=True)
def own_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of this very Python, whatever the machine has besides."""
    place = tmp_path / "data" / "kernels" / "python3"
    place.mkdir(parents=True)
    (place / "kernel.json").write_text(json.dumps({"argv": KERNEL, "display_name": "ours", "language": "python"}))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))


def outputs_of(notebook: Any) -> dict[str, Any]:
    return {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def html_of(outputs: Any) -> str:
    return "".join(output["data"].get("text/html", "") for output in outputs if "data" in output)


def check_outputs(outputs: dict[str, Any]) -> None:
    """What the example shows, fresh or saved."""
    fit = html_of(next(shown for source, shown in outputs.items() if "--name fit" in source))
    assert fit.count("succeeded</td>") == 4
    assert fit.count("200/200 loss") == 4
    assert "rank 3│ rank 3 of 4 has learned [ 1.  -2.   3.   0.5]" in fit
    assert outputs["weights.round(3)"][0]["data"]["text/plain"] == "array([ 1. , -2. ,  3. ,  0.5])"
    broken = next(shown for source, shown in outputs.items() if "--name broken" in source)
    assert "master-0 (rank 0)</td><td" in html_of(broken)
    assert "stopped</td>" in html_of(broken)
    [error] = [output for output in broken if output["output_type"] == "error"]
    assert error["evalue"].startswith("worker-0 (rank 1): ValueError: a batch of 33 cannot be halved\n")
    assert 'File "Cell In[5]", line 7, in <module>' in "\n".join(error["traceback"])
    assert "gangline/" not in "\n".join(error["traceback"])
    why = outputs["%gangline why broken"][0]["text"]
    assert "worker-0" in why
    assert "ValueError: a batch of 33 cannot be halved" in why
    function = next(shown for source, shown in outputs.items() if "def square" in source)
    assert function[-1]["data"]["text/plain"] == (
        "[{'rank': 0, 'value': 0}, {'rank': 1, 'value': 10}, {'rank': 2, 'value': 40}]"
    )
    assert "gangline-job" in html_of(function)
    assert "<svg" in html_of(outputs["run.job"])


def test_the_example_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    check_outputs(outputs_of(client.execute()))


def test_the_saved_outputs_of_the_example_are_true_and_name_no_machine() -> None:
    check_outputs(outputs_of(nbformat.read(NOTEBOOK, as_version=4)))  # type: ignore[no-untyped-call]
    text = NOTEBOOK.read_text()
    assert re.findall(r"/(?:tmp|root|home|Users|work|usr|var|private)\b[^\"]*|site-packages", text) == []
    assert '"execution": {' not in text


def test_the_cells_of_the_page_run(tmp_path: Path) -> None:
    cells = re.findall(r"^```ipython\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(cells) >= 5
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    outputs = outputs_of(client.execute())
    assert outputs["print(weights)\n"][0]["text"] == "[0. 0.]\n"
    assert "rank 3│ rank 3 of 4" in html_of(next(shown for source, shown in outputs.items() if "--nproc 4" in source))
    assert "Succeeded" in outputs["%gangline get jobs\n"][0]["text"]


class Kernel:
    """A kernel with the extension loaded. `run` returns what a cell shows; its updates replace each other."""

    def __init__(self, manager: KernelManager, client: Any) -> None:
        self.manager, self._client = manager, client

    def run(self, cell: str, on_html: Callable[[str], None] = lambda html: None) -> tuple[str, str]:
        """The last HTML, and text and error together."""
        html, text = "", ""

        def hook(message: dict[str, Any]) -> None:
            nonlocal html, text
            content = message["content"]
            match message["msg_type"]:
                case "display_data" | "update_display_data":
                    html = content["data"].get("text/html", "")
                    on_html(html)
                case "stream":
                    text += content["text"]
                case "error":
                    text += "\n".join(content["traceback"])
                case "execute_result":
                    text += content["data"]["text/plain"]

        self._client.execute_interactive(cell, output_hook=hook, timeout=100)
        return html, text


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(argv=KERNEL)
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    running = Kernel(manager, client)
    running.run("%load_ext gangline")
    yield running
    client.stop_channels()
    manager.shutdown_kernel()


def children(manager: KernelManager) -> list[psutil.Process]:
    assert manager.provisioner is not None
    return psutil.Process(manager.provisioner.pid).children(recursive=True)  # type: ignore[attr-defined]


def test_an_interrupt_stops_the_whole_team(kernel: Kernel) -> None:
    interrupts: list[None] = []

    def interrupt(html: str) -> None:
        if html.count("│ pid") == 2 and not interrupts:
            interrupts.append(None)
            kernel.manager.interrupt_kernel()

    cell = "%%gangline -n 2 --name hangs\nimport os, time\nprint('pid', os.getpid(), flush=True)\ntime.sleep(600)"
    html, text = kernel.run(cell, interrupt)
    assert text == "KeyboardInterrupt: the team was stopped"
    assert "interrupted: the team was stopped" in html
    assert html.count("stopped</td>") == 2
    assert not [pid for pid in re.findall(r"pid (\d+)", html) if psutil.pid_exists(int(pid))]
    # The kernel goes on, and so does its plane.
    assert "rank 0│ 3" in kernel.run("%%gangline\nprint(1 + 2)")[0]
    assert len(children(kernel.manager)) > 0
    kernel.run("%unload_ext gangline")
    assert children(kernel.manager) == []


def test_a_rank_that_fails_after_the_leader_is_not_hidden(kernel: Kernel) -> None:
    html, text = kernel.run(
        "%%gangline -n 2\nimport os, time\nif os.environ['RANK'] == '1':\n    time.sleep(1)\n    1 / 0"
    )
    assert "Failed</span>" in html
    assert text.startswith("JobFailed: worker-0 (rank 1): ZeroDivisionError: division by zero\n")
    assert 'File "Cell In[2]", line 5, in <module>' in text


def test_objects_of_the_notebook_go_to_the_cell_and_come_back(kernel: Kernel) -> None:
    kernel.run("class Model:\n    def __init__(self, w): self.w = w\ndef double(x): return 2 * x\nm = Model(4)")
    kernel.run(
        "%%gangline -n 2 --send m,double --get m,big --max-restarts 1\nm.w = double(m.w)\nbig = bytes(3_000_000)"
    )
    assert kernel.run("(m.w, type(m) is Model, len(big))")[1] == "(8, True, 3000000)"


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%gangline --nproc 0\n1", "UsageError: --nproc: is 0; write 1 or more\n"),
        (
            "%%gangline --prcs 2\n1",
            "UsageError: unrecognized arguments: --prcs 2; %%gangline --help lists the options\n",
        ),
        ("%%gangline\nx = (", "UsageError: Cell In[2], line 2: '(' was never closed: x = (\n"),
        (
            "%%gangline\n!ls",
            "UsageError: Cell In[2], line 2: !ls is for the notebook, not for Python; write it in a cell",
        ),
        ("%%gangline --context no-such\n1", "UsageError: "),
        ("%%gangline --send a\n1", "UsageError: --send: the notebook has no variable a\n"),
        ("import threading\na = threading.Lock()\nget_ipython().run_cell_magic('gangline', '--send a', '1')", None),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(kernel: Kernel, cell: str, message: str | None) -> None:
    html, text = kernel.run(cell)
    expected = message or "UsageError: --send: a is a _thread.lock, which stays in this process; make it in the cell\n"
    assert text.startswith(expected)
    assert len(text.splitlines()) == 1
    assert html == ""
    assert children(kernel.manager) == []


def test_ipython_in_a_terminal_prints_lines(tmp_path: Path) -> None:
    typed = "%load_ext gangline\n%%gangline -n 2\nimport os\nprint('this is', os.environ['RANK'])\n\n\nexit()\n"
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--no-confirm-exit"],
        input=typed,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "TERM": "dumb"},
        timeout=100,
        check=False,
    )
    assert "rank 0│ this is 0\n" in done.stdout
    assert "rank 1│ this is 1\n" in done.stdout
    assert re.search(r"pytorchjob/cell-\w+ Succeeded 00:\d\d\n", done.stdout)
    assert "Traceback" not in done.stdout + done.stderr
