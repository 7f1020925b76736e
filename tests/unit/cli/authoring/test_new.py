"""`gangline new operator` and `gangline crd`."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.cli.authoring.new import first_commands
from gangline.cli.main import run
from support.yaml_files import load_all_yaml


def test_a_new_operator_passes_its_own_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["new", "operator", "Spark", "--group", "ml.example.org"]) == 0
    folder = tmp_path / "spark-operator"
    assert sorted(content.name for content in folder.iterdir()) == [
        "operator.yaml",
        "pytest.ini",
        "spark.py",
        "spark_operator.py",
        "sparkjob.yaml",
        "test_spark_operator.py",
    ]
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "."]
    completed = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert "2 passed" in completed.stdout


def test_crd_prints_the_definition_of_a_new_operators_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "operator", "SparkJob", "--group", "ml.example.org", "--into", str(tmp_path)]) == 0
    assert run(["crd", str(tmp_path / "spark_operator.py")]) == 0
    (content,) = load_all_yaml(capsys.readouterr().out)
    assert content["metadata"]["name"] == "sparkjobs.ml.example.org"
    assert content["spec"]["names"]["categories"] == ["trainingjobs"]
    spec = content["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["laps"] == {"type": "integer", "format": "int32"}
    assert spec["required"] == ["sparkReplicaSpecs"]


def test_a_new_operator_names_the_example_nowhere(tmp_path: Path) -> None:
    assert run(["new", "operator", "Spark", "--group", "ml.example.org", "--into", str(tmp_path)]) == 0
    for file in tmp_path.iterdir():
        assert "relay" not in (file.name + file.read_text()).lower()
        assert "example.com" not in file.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("new", "operator", "9lives"), 'error: "9lives": write letters and digits, beginning with a letter'),
        (("new", "operator", "X", "--group", "nodot"), 'error: --group: "nodot" is no domain'),
        (("crd", "missing.py"), "error: missing.py: no such file"),
        (("crd", "empty.py"), "error: empty.py: holds no JobKind; write one"),
        (("crd", "broken.py"), "error: broken.py: cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_mistakes_are_printed_in_one_line(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    assert run(words) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert len(printed.err.splitlines()) == 1


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert run(["new", "operator", "Spark", "--into", str(tmp_path)]) == 1
    assert "not empty" in capsys.readouterr().err
    assert [content.name for content in tmp_path.iterdir()] == ["mine"]


def test_the_settings_of_the_folder_around_it_do_not_reach_its_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.chdir(tmp_path)
    assert run(["new", "operator", "Spark"]) == 0
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    collected = subprocess.run(command, cwd=tmp_path / "spark-operator", capture_output=True, text=True)
    assert collected.returncode == 0, collected.stdout + collected.stderr


def test_the_commands_for_a_new_operator_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    python = shlex.quote(sys.executable)
    assert first_commands(Path("my operator"), has_pytest=True) == (f"next: cd 'my operator' && {python} -m pytest",)
    assert first_commands(Path("x"), has_pytest=False) == (
        f"next: {python} -m pip install pytest",
        f"      cd x && {python} -m pytest",
    )
