"""The notebook of the examples, executed without a browser: every cell runs, and a job shows itself as HTML."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebooks" / "train.ipynb"


@pytest.mark.filterwarnings("ignore")  # of the Jupyter packages, about themselves
def test_the_notebook_runs_and_shows_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(_kernels(tmp_path)))
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    done = NotebookClient(notebook, timeout=120, kernel_name="ours", resources={"metadata": {"path": str(tmp_path)}})
    found = done.execute()
    outputs = {cell.source: cell.outputs for cell in found.cells if cell.cell_type == "code"}
    assert outputs["run.result()"][0]["data"]["text/plain"] == "[1.0, -2.0, 3.0, 0.5]"
    html = outputs["run.job"][0]["data"]["text/html"]
    assert "Succeeded" in html
    assert "<svg" in html
    waited = next(found for source, found in outputs.items() if "run.wait" in source)
    shown = [each["data"]["text/html"] for each in waited if "text/html" in each.get("data", {})]
    assert shown
    assert all("gangline-job" in each for each in shown)


def _kernels(folder: Path) -> Path:
    """A kernel of this very Python, whatever the machine has besides."""
    place = folder / "data" / "kernels" / "ours"
    place.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (place / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "ours", "language": "python"}}')
    return folder / "data"
