"""What docs/node.md says is so."""

import re
from pathlib import Path

from gangline.node.runtime.images import Images
from gangline.node.runtime.mpi import AGENTS

PAGE = Path(__file__).parents[3] / "docs" / "node.md"


def test_the_mapping_on_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "images.yaml").write_text(text)
    images = Images.load(tmp_path / "images.yaml")
    assert images.of("example.org/kubeflow/tf-mnist:1.0").known
    assert not images.of("example.org/other/tf-mnist:1.0").known
    found = images.of("kubeflow/tf-mnist:1.0")
    assert found.folders == {"/var/tf_mnist": tmp_path / "src"}
    assert found.path[0] == str(tmp_path / "bin")


def test_the_variables_on_the_page_are_those_that_count() -> None:
    text = PAGE.read_text()
    assert [name for name in AGENTS if name not in text] == []
