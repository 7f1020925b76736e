"""YAML as everybody has it for a cluster, unchanged, with a mapping of at most five lines.

The files have the shape of the well-known examples of each kind. Where the real program would download a data set, a
small one stands for it (stock/image), with the same path and options.
"""

import re
import shutil
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from support.frameworks import FrameworkEnvironments, JobRunner

HERE = Path(__file__).parent
LINEAR = HERE.parents[1] / "examples" / "linear.py"


class Stock(NamedTuple):
    """A file, the group of its framework, what stands for its image, and what shows that it trained."""

    file: str
    group: str
    mapping: str
    shows: str = r"^\S+\| trained: "


FILES = [
    Stock(
        "tfjob.yaml",
        "",
        """\
        tf-mnist-with-summaries:
          paths: {/var/tf_mnist: ./image}
        """,
    ),
    Stock(
        "tfjob-entrypoint.yaml",
        "",
        """\
        tf-dist-mnist-test:
          command: [python, /opt/linear.py]
          paths: {/opt: ./image}
        """,
    ),
    Stock(
        "pytorchjob.yaml",
        "torch",
        """\
        pytorch-mnist:
          environment: ENVIRONMENT
          paths: {/opt/pytorch-mnist: ./image}
        """,
    ),
    Stock(
        "xgboostjob.yaml",
        "light",
        """\
        xgboost-dist-iris:
          environment: ENVIRONMENT
          command: [python, /opt/iris.py]
          paths: {/opt: ./image}
        """,
    ),
    Stock(
        "jax/jaxjob.yaml",
        "jax",
        """\
        jaxjob-simple:
          environment: ENVIRONMENT
        """,
    ),
    Stock(
        "mpijob.yaml",
        "mpi4",  # Open MPI 5 knows no -bind-to with one dash
        """\
        horovod:
          environment: ENVIRONMENT
          env: {OPAL_PREFIX: ENVIRONMENT, PMIX_INSTALL_PREFIX: ENVIRONMENT}
          paths: {/examples: ./image}
        """,
    ),
    Stock(
        "paddlejob.yaml",
        "paddle",
        """\
        paddlepaddle/paddle:
          environment: ENVIRONMENT
        """,
        "Distributed training completed",
    ),
]


@pytest.mark.parametrize("stock", FILES, ids=lambda stock: stock.file)
def test_a_stock_file_runs_with_a_short_mapping(
    stock: Stock, frameworks: FrameworkEnvironments, jobs: JobRunner, tmp_path: Path
) -> None:
    shutil.copytree(HERE / "stock", tmp_path, dirs_exist_ok=True)  # a launcher may write logs where it starts
    shutil.copy(LINEAR, tmp_path / "image")
    mapping = dedent(stock.mapping).replace("ENVIRONMENT", str(frameworks.environment(stock.group)))
    jobs.map_images(mapping)
    output = jobs.run(tmp_path / stock.file)
    assert re.search(stock.shows, output.text, re.MULTILINE), output.text


def test_there_is_a_stock_file_of_every_kind() -> None:
    texts = [(HERE / "stock" / stock.file).read_text() for stock in FILES]
    kinds = {re.findall(r"^kind: \"?(\w+)", text, re.MULTILINE)[0] for text in texts}
    assert kinds == {"TFJob", "PyTorchJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob"}
