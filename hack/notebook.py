"""Runs examples/notebooks/train.ipynb again and saves its outputs:

python hack/notebook.py
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[1] / "examples" / "notebooks" / "train.ipynb"


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with fresh outputs, run in `folder` by this Python, whatever other kernels the machine has."""
    place = folder / "data" / "kernels" / "python3"
    place.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (place / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    os.environ.update(JUPYTER_DATA_DIR=str(folder / "data"), IPYTHONDIR=str(folder / "ipython"))
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources, record_timing=False)
    return client.execute()


def main() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        done = executed(notebook, Path(folder))
    done.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(done, NOTEBOOK)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
