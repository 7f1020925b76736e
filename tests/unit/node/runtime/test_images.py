"""Images that are replaced by environments of this machine."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.node.runtime.images import ImageMappings, LocalCommand, image_matches, image_need, parse_image_map


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


def problem(folder: Path, *command: str, names_command: bool = True, name: str = "x:1") -> str:
    image = ImageMappings().resolve(name)
    need = image_need(LocalCommand(command, image, folder, {}, names_command=names_command))
    return need.message() if need is not None else ""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_that_only_the_image_has_is_named_with_the_flag_to_add(folder: Path) -> None:
    message = problem(folder, "python", "-u", "/opt/no/train.py")
    assert message.startswith('image "x:1": /opt/no/train.py exists only in the image (pods run as processes')
    assert "; put train.py into this folder and add --image-map /opt/no=.; or run the image with" in message
    assert "/opt/no/bin exists only in the image" in problem(folder, "/opt/no/bin")
    assert "\n" not in message


def test_a_file_that_is_nearby_needs_only_the_flag(folder: Path) -> None:
    (folder / "my code").mkdir()
    (folder / "my code" / "train.py").touch()
    message = problem(folder, "python", "/opt/no/train.py")
    assert "; add --image-map '/opt/no=my code'; or" in message


def test_a_script_behind_a_launcher_is_looked_for_too(folder: Path) -> None:
    words = ("env", "-np", "2", "python", "scripts/bench.py")
    assert "scripts/bench.py is not in the folder of the job (" in problem(folder, *words)
    assert f"; put scripts/bench.py into {folder}, or write the folder that has it into workingDir; or run" in problem(
        folder, *words
    )
    assert "add --image-map /no/work=." in problem(Path("/no/work"), *words)


def test_a_command_of_the_image_is_not_known(folder: Path) -> None:
    name = "docker.io/someone/xgboost-dist-iris:1.1"
    for command in ((), ("--job_type=Train",)):
        message = problem(folder, *command, names_command=False, name=name)
        assert message.startswith(f'image "{name}": the pod names no command, and the image\'s own is not known')
        assert f"; put your script, such as train.py, into {folder} and add --image-map" in message
        assert "--image-map 'docker.io/someone/xgboost-dist-iris=python train.py';" in message
    (folder / "main.py").touch()
    assert "known (pods run as processes of this machine); add --image-map 'docker.io/someone/" in problem(
        folder, names_command=False, name=name
    )
    assert "iris=python main.py'" in problem(folder, names_command=False, name=name)


def test_a_program_and_a_script_that_are_missing_are_two_steps_of_one_message(folder: Path) -> None:
    message = problem(folder, "no-mpirun", "-np", "2", "python", "/examples/train.py")
    assert "/examples/train.py exists only in the image" in message
    assert "; install no-mpirun and put train.py into this folder and add --image-map /examples=.; or" in message
    message = problem(folder, "no-mpirun", "-np", "2", "true")
    assert 'image "x:1": exec: "no-mpirun": executable file not found in $PATH (pods run' in message


def test_a_module_that_is_not_installed_here(folder: Path) -> None:
    message = problem(folder, "python", "-m", "no_such_paddle.launch", "run_check")
    assert f"module no_such_paddle is not installed in {sys.prefix} (pods run as processes" in message
    assert f"; install it: {sys.executable} -m pip install no_such_paddle" in message
    (folder / "no_such_paddle").mkdir()
    assert not problem(folder, "python", "-m", "no_such_paddle.launch")


def test_a_job_without_an_image_is_not_told_of_images(folder: Path) -> None:
    message = problem(folder, "python", "train.py", name="local")
    assert message == f'image "local": train.py is not in {folder}; correct the command, or put it there'
    assert 'image "local": train.py is not in /no; correct' in problem(folder, "python", "/no/train.py", name="local")
    assert not problem(folder, "no-such-program", name="local")


def test_a_command_that_this_machine_has_is_no_problem(folder: Path) -> None:
    (folder / "train.py").touch()
    assert not problem(folder, "python", "train.py")
    assert not problem(folder, "python", "-c", "print(1)")
    assert not problem(folder, "sh", "-u", "train.py")
    assert not problem(folder, "/bin/sh", "-c", "cp /tmp/x.py /tmp/y.py && python /opt/no/train.py")
    assert not problem(folder, "/bin/bash", "-ec", "cd src\npython other.py")
    assert not problem(folder, "python", "-m", "json.tool")
    assert not problem(folder, "python", "-m", "train")


def test_a_shell_that_runs_one_plain_command_hides_no_script(folder: Path) -> None:
    assert "add --image-map /opt/no=." in problem(folder, "sh", "-c", "python -u /opt/no/train.py --lr 0.1")


def test_a_mapping_on_the_command_line(folder: Path) -> None:
    (folder / "src").mkdir()
    inline = parse_image_map(["/opt/app=src", "someone/iris=python -u 'my main.py'"])
    images = ImageMappings(inline=inline)
    assert images.resolve("a/b").folders == {"/opt/app": folder / "src"}
    assert images.resolve("a/b").command == ()
    assert images.resolve("docker.io/someone/iris:1").command == ("python", "-u", "my main.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/opt/app", "write /FOLDER/OF/IMAGE=FOLDER or IMAGE='COMMAND'"),
        ("/opt/app=", "write /FOLDER/OF/IMAGE=FOLDER or IMAGE='COMMAND'"),
        ("/opt/app=nowhere", "nowhere does not exist; name a folder of this machine"),
        ("iris='", "No closing quotation; write IMAGE='COMMAND'"),
    ],
)
def test_a_wrong_mapping_on_the_command_line_is_one_line(folder: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_image_map([text])


def program_of(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """The `python` that a process of an image starts, if the folder is the PATH of the shell and has one, too."""
    program = folder / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return shutil.which("python", path=ImageMappings().resolve(name).search_path(str(folder)))


@pytest.mark.parametrize("variable", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_a_command_uses_the_python_of_an_active_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert program_of(tmp_path, "local", monkeypatch) == str(tmp_path / "python")


def test_a_gangline_that_was_started_by_its_path_uses_the_python_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    beside = Path(sys.executable).parent / "python"
    assert program_of(tmp_path, "local", monkeypatch) == str(beside)
    # An image that nothing maps is gangline's own environment.
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert program_of(tmp_path, "none", monkeypatch) == str(beside)


def test_a_gangline_on_path_uses_the_python_of_the_shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gangline").symlink_to(Path(sys.executable).parent / "gangline")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "gangline")])
    assert program_of(tmp_path, "local", monkeypatch) == str(tmp_path / "python")
    # What the shell does not have is taken from beside gangline.
    (tmp_path / "python").unlink()
    beside = Path(sys.executable).parent / "python"
    assert shutil.which("python", path=ImageMappings().resolve("local").search_path(str(tmp_path))) == str(beside)
