"""Mistakes in files, found without a server."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from gangline.cli.authoring.check import check
from gangline.cli.main import run
from gangline.cli.manifests.lint import check_text

ROOT = Path(__file__).parents[4]
GOOD = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: linear
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 3
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: tensorflow
              image: x
"""


EXAMPLES = sorted(file for place in ("*.yaml", "frameworks/*.yaml") for file in (ROOT / "examples").glob(place))


def finding_texts(text: str) -> list[str]:
    return [str(finding) for finding in check_text(text, "job.yaml").findings]


def only(text: str) -> str:
    (result,) = finding_texts(text)
    return result


def test_a_good_job_has_no_mistakes() -> None:
    result = check_text(GOOD, "job.yaml")
    assert (result.findings, result.jobs, result.other_objects) == ((), 1, 0)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_the_examples_have_no_mistakes(file: Path) -> None:
    assert finding_texts(file.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "says"),
    [
        ("replicas: 3", "replicas: three", 8, "spec.tfReplicaSpecs.Worker.replicas", "write:   replicas: 3"),
        ("replicas: 3", 'replicas: "3"', 8, "spec.tfReplicaSpecs.Worker.replicas", "write:   replicas: 3"),
        ("replicas: 3", "replicas: -1", 8, "spec.tfReplicaSpecs.Worker.replicas", "is -1; write 1 or more"),
        ("restartPolicy: Never", "restartPolice: Never", 9, "spec.tfReplicaSpecs.Worker.restartPolice", "restartPolicy: Never"),
        ("restartPolicy: Never", "restartPolicy: Sometimes", 9, "spec.tfReplicaSpecs.Worker.restartPolicy", "ExitCode"),
        ("name: tensorflow", "name: main", 13, "spec.tfReplicaSpecs.Worker.template.spec.containers[0].name", "write:   name: tensorflow"),
        ("name: linear", "name: Linear_1", 4, "metadata.name", "DNS-1035"),
        ("kind: TFJob", "kind: TfJob", 2, "kind", "write:   kind: TFJob"),
        ("kubeflow.org/v1", "v1", 1, "apiVersion", "write:   apiVersion: kubeflow.org/v1"),
        ("    Worker:", "    Servant:", 7, "spec.tfReplicaSpecs", "Worker"),
    ],
)  # fmt: skip
def test_a_finding_has_line_path_and_what_to_write(old: str, new: str, line: int, path: str, says: str) -> None:
    result = only(GOOD.replace(old, new))
    assert result.startswith(f"job.yaml:{line}: {path}")
    assert says in result


def test_all_mistakes_are_found_at_once_each_once_and_in_order() -> None:
    text = GOOD.replace("replicas: 3", "replicas: three").replace("Never", "Ever").replace("image: x", "imag: x")
    lines = [int(result.split(":")[1]) for result in finding_texts(text)]
    assert lines == sorted(lines)
    assert {8, 9, 14} <= set(lines)
    assert len(lines) == len(set(finding_texts(text)))


def test_a_missing_name_is_a_finding() -> None:
    assert "metadata.name: required field is missing" in only(GOOD.replace("  name: linear\n", "  labels: {}\n"))


def test_missing_metadata_is_reported_as_a_missing_name_only() -> None:
    assert only(GOOD.replace("metadata:\n  name: linear\n", "")) == (
        "job.yaml:1: metadata.name: required field is missing\n  write:   name: my-job"
    )


def test_invalid_yaml_is_one_finding_with_its_line() -> None:
    assert only("a: [1\nb: 2\n").startswith("job.yaml:2: ")


def test_other_kinds_are_not_checked() -> None:
    result = check_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\n" + GOOD, "f")
    assert (result.findings, result.jobs, result.other_objects) == ((), 1, 1)


def test_the_second_document_has_lines_of_its_own() -> None:
    result = only(GOOD + "---\n" + GOOD.replace("replicas: 3", "replicas: x"))
    assert result.startswith("job.yaml:23: ")


@pytest.mark.parametrize(
    ("kind", "suggestion"),
    [("TensorFlowJob", "TFJob"), ("TorchJob", "PyTorchJob"), ("Tfjob", "TFJob"), ("MpiJob", "MPIJob")],
)
def test_a_misspelled_kind_gets_the_right_name_as_suggestion(kind: str, suggestion: str) -> None:
    assert f"  write:   kind: {suggestion}" in only(GOOD.replace("kind: TFJob", f"kind: {kind}"))


def test_the_command_exits_1_with_mistakes_and_prints_them_for_programs(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("replicas: 3", "replicas: three"))
    completed = CliRunner().invoke(check, [str(bad), "-o", "json"], standalone_mode=False)
    assert completed.return_value == 1
    (result,) = yaml.safe_load(completed.stdout)
    assert result["line"] == 8
    assert result["write"] == "replicas: 3"


def test_the_command_exits_0_without_mistakes_and_says_so_to_people(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    completed = CliRunner().invoke(check, [str(tmp_path)], standalone_mode=False)
    assert (completed.return_value, completed.stdout) == (0, "")
    assert "1 job, no mistakes" in completed.stderr


@pytest.mark.parametrize(
    "text", ["", "\n", "# a comment\n", "---\n---\n", "null\n", '{"apiVersion": "v1", "kind": "List"}']
)
def test_an_empty_file_is_a_mistake_unless_it_is_one_of_many_in_a_folder(text: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text(text)
    for argument in (empty, tmp_path):
        completed = CliRunner().invoke(check, [str(argument)], standalone_mode=False)
        assert (completed.return_value, completed.stdout) == (1, f"{empty}: holds no object; write a job into it\n")
    (tmp_path / "good.yaml").write_text(GOOD)
    assert CliRunner().invoke(check, [str(tmp_path)], standalone_mode=False).return_value == 0
    assert CliRunner().invoke(check, [str(tmp_path), str(empty)], standalone_mode=False).return_value == 1


@pytest.mark.parametrize(
    "words",
    [
        ("check",),
        ("plan",),
        ("plan", "--fit"),
        ("run",),
        ("apply", "-f"),
        ("submit",),
        ("create", "-f"),
        ("convert",),
    ],
)
def test_every_command_reports_an_empty_file_in_one_line(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing yet\n")
    assert run([*words, str(empty)]) == 1
    output = "".join(capsys.readouterr())
    assert f"{empty}: holds no object; " in output
    assert output.count("\n") == 1


def test_a_field_that_belongs_one_level_deeper_is_written_there() -> None:
    text = GOOD.replace("spec:\n", "spec:\n  cleanPodPolicy: None\n  ttlSecondsAfterFinished: 60\n", 1)
    assert [(finding.line, finding.write) for finding in check_text(text, "job.yaml").findings] == [
        (6, "runPolicy: {cleanPodPolicy: None}"),
        (7, "runPolicy: {ttlSecondsAfterFinished: 60}"),
    ]
