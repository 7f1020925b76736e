"""Real torch in functions and notebook cells: what is typed without a file trains as a team, and fails with its own error."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from support.frameworks import FrameworkEnvironments

MODEL = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


def fit(steps=30, columns=4):
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    net = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for _ in range(steps):
        x = torch.randn(64, columns)
        optimizer.zero_grad()
        ((net(x) - x.sum(1, keepdim=True)) ** 2).mean().backward()
        optimizer.step()
    dist.barrier()
    return net.module
"""

REPL = f"""{MODEL}
import gangline

with gangline.train(fit, replicas=2, local=True) as run:
    nets = run.results(timeout=200)
    print(type(nets[0]) is Net, torch.equal(nets[0].layer.weight, nets[1].layer.weight))
    print(torch.allclose(nets[0].layer.weight, torch.ones(1, 4), atol=0.1))
    try:
        gangline.train(fit, replicas=2, parameters={{"columns": 5, "steps": 1}}, client=run._client).wait(timeout=200)
    except gangline.JobFailed as failed:
        print(failed.error_type, "shapes cannot be multiplied" in failed.error_message, failed.rank in (0, 1))
"""


@pytest.fixture
def torch_python(frameworks: FrameworkEnvironments, monkeypatch: pytest.MonkeyPatch) -> str:
    """The Python that has torch, with gangline and its packages from the one that runs the tests."""
    source = Path(__file__).parents[2] / "src"
    packages = [str(source), sysconfig.get_paths()["purelib"], os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, packages)))
    return str(frameworks.environment("torch") / "bin" / "python")


def test_a_function_without_a_file_trains_a_model_that_comes_back(torch_python: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [torch_python, "-"], input=REPL, capture_output=True, text=True, cwd=tmp_path, timeout=250, check=False
    )
    assert done.stdout == "True True\nTrue\nRuntimeError True True\n", done.stderr


@pytest.mark.filterwarnings("ignore")  # of the Jupyter packages, about themselves
def test_a_notebook_cell_trains_a_model_that_comes_back(
    torch_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "data" / "kernels" / "torch"
    place.mkdir(parents=True)
    command = [torch_python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "torch", "language": "python"}))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    cells = [
        "%load_ext gangline",
        MODEL,
        "%%gangline --nproc 2 --send fit --get net\nnet = fit(steps=2)",
        "type(net) is Net",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])  # type: ignore[no-untyped-call]
    resources = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(notebook, timeout=250, kernel_name="torch", resources=resources).execute()
    assert done.cells[-1].outputs[0]["data"]["text/plain"] == "True"
    html = done.cells[2].outputs[0]["data"]["text/html"]
    assert html.count("succeeded</td>") == 2
