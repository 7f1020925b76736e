"""Images that are replaced by environments of this machine."""

import os
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.node.runtime.images import ImageMappings, check_command, image_matches
from gangline.node.runtime.runtime import StartFailed


@pytest.mark.parametrize(
    ("pattern", "image", "same"),
    [
        ("a/b:1", "a/b:1", True),
        ("a/b", "a/b:1", True),
        ("b", "host:5000/a/b:1", True),
        ("a/b", "a/b@sha256:00", True),
        ("*mnist*", "x/tf-mnist-summaries:latest", True),
        ("a/b:1", "a/b:2", False),
        ("b", "a/bc", False),
    ],
)
def test_images_are_matched_with_or_without_tag_and_registry(pattern: str, image: str, same: bool) -> None:
    assert image_matches(pattern, image) is same


def test_a_mapping_gives_environment_and_folders(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("a/b:\n  environment: ./env\n  path: [bin]\n  paths: {/var/code: ./src}\n")
    image = ImageMappings.load(file).resolve("a/b:latest")
    assert image.path_prefixes == (str(tmp_path / "bin"), str(tmp_path / "env" / "bin"))
    assert image.env == {"VIRTUAL_ENV": str(tmp_path / "env")}
    assert image.folders == {"/var/code": tmp_path / "src"}


def test_an_unknown_image_gets_our_interpreter_and_one_notice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    images = ImageMappings()
    assert images.resolve("x").path_prefixes == (os.path.dirname(sys.executable),)  # noqa: PTH120
    images.resolve("x")
    assert [record.getMessage() for record in caplog.records] == ["image is not pulled, processes use this machine"]


def test_a_wrong_mapping_is_one_line_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "images.yaml"
    file.write_text("a:\n  path: 3\n")
    with pytest.raises(InputError, match=r"images.yaml:2: a.path"):
        ImageMappings.load(file)
    with pytest.raises(InputError, match="No such file"):
        ImageMappings.load(tmp_path / "no.yaml")


def test_a_file_that_only_the_image_has_is_told_with_the_remedy(tmp_path: Path) -> None:
    image = ImageMappings().resolve("x")
    with pytest.raises(StartFailed, match=r"/opt/no/train\.py exists only in the image; map it"):
        check_command(("python", "-u", "/opt/no/train.py"), image, tmp_path)
    with pytest.raises(StartFailed, match="/opt/no/bin exists only in the image; map it"):
        check_command(("/opt/no/bin",), image, tmp_path)
    with pytest.raises(StartFailed, match="names no command"):
        check_command((), image, tmp_path)
    (tmp_path / "train.py").touch()
    check_command(("python", "train.py"), image, tmp_path)
    check_command(("python", "-c", "print(1)"), image, tmp_path)
