"""The mapping files in docs/node.md and docs/frameworks.md work as the pages say."""

import re
from pathlib import Path

from gangline.node.runtime.images import ImageMappings
from gangline.node.runtime.mpi import AGENT_VARIABLES

PAGE = Path(__file__).parents[3] / "docs" / "node.md"
FRAMEWORKS = PAGE.with_name("frameworks.md")


def test_the_mapping_on_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "images.yaml").write_text(text)
    images = ImageMappings.load(tmp_path / "images.yaml")
    assert images.resolve("example.org/kubeflow/tf-mnist:1.0").is_mapped
    assert not images.resolve("example.org/other/tf-mnist:1.0").is_mapped
    image = images.resolve("kubeflow/tf-mnist:1.0")
    assert image.folders == {"/var/tf_mnist": tmp_path / "src"}
    assert image.path_prefixes[0] == str(tmp_path / "bin")


def test_the_variables_on_the_page_are_those_that_count() -> None:
    text = PAGE.read_text()
    assert [name for name in AGENT_VARIABLES if name not in text] == []


def test_the_mapping_on_the_page_about_frameworks_is_one(tmp_path: Path) -> None:
    text = re.findall(r"```yaml\n(.*?)```", FRAMEWORKS.read_text(), re.DOTALL)[0]
    (tmp_path / "images.yaml").write_text(text)
    image = ImageMappings.load(tmp_path / "images.yaml").resolve("example.org/pytorch-mnist:1")
    assert image.folders == {"/opt/pytorch-mnist": tmp_path / "src"}
