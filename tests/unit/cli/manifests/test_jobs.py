"""The jobs of a file, and the errors for files without any."""

import io
from pathlib import Path

import pytest

from gangline.base.errors import InputError
from gangline.cli.manifests.jobs import read_documents, read_jobs_and_others

JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: small
spec:
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - name: tensorflow
              image: none
"""


def test_a_job_is_read_with_its_kind_and_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    ((facts, document),) = read_documents(file, ["metadata.name=other"])
    assert facts.kind == "TFJob"
    assert document.body["metadata"]["name"] == "other"
    assert document.line(("metadata", "name")) == 4


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "replicas: 2",
            "replicas: three",
            'job.yaml:8: spec.tfReplicaSpecs.Worker.replicas: expected int, got "three"\n       write:   replicas: 3',
        ),
        (
            "kind: TFJob",
            "kind: TfJob",
            (
                'job.yaml:2: kind: is "TfJob"; write one of TFJob, PyTorchJob, XGBoostJob, MPIJob, PaddleJob, JAXJob\n'
                "       write:   kind: TFJob"
            ),
        ),
        (
            "kubeflow.org/v1",
            "kubeflow.org/v1beta1",
            (
                'job.yaml:1: apiVersion: is "kubeflow.org/v1beta1", but a TFJob is of kubeflow.org/v1\n'
                "       write:   apiVersion: kubeflow.org/v1"
            ),
        ),
        (
            "kubeflow.org/v1\nkind: TFJob",
            "kubeflow.org/v2\nkind: MPIJob",
            (
                'job.yaml:1: apiVersion: is "kubeflow.org/v2", but a MPIJob is of kubeflow.org/v1 or kubeflow.org/v2beta1\n'
                "       write:   apiVersion: kubeflow.org/v1"
            ),
        ),
        (
            "apiVersion: kubeflow.org/v1\n",
            "",
            "job.yaml:1: apiVersion: required field is missing\n       write:   apiVersion: kubeflow.org/v1",
        ),
        (
            "metadata:\n  name: small\n",
            "",
            "job.yaml:1: metadata.name: required field is missing\n       write:   name: my-job",
        ),
        (
            "apiVersion: kubeflow.org/v1\nkind: TFJob",
            "apiVersion: apps/v1\nkind: Deployment",
            ('job.yaml:2: kind: is "Deployment"; a run takes TFJob, PyTorchJob, XGBoostJob, MPIJob, PaddleJob, JAXJob'),
        ),
        (
            "tfReplicaSpecs:",
            "pytorchReplicaSpecs:",
            ("job.yaml:6: spec.pytorchReplicaSpecs: unknown field\n       write:   tfReplicaSpecs: …"),
        ),
    ],
)
def test_a_mistake_is_an_error_with_its_line_and_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(JOB.replace(before, after, 1))
    with pytest.raises(InputError) as error:
        read_documents(Path("job.yaml"))
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("job.yaml", None, "job.yaml: No such file or directory"),
        (
            "python",
            None,
            "python: No such file or directory; to run a script: gangline run --nproc 4 -- python train.py",
        ),
        (
            "train.py",
            "if True: pass",
            "train.py: is not a job manifest; to run a script: gangline run --nproc 4 -- python train.py",
        ),
        (
            "train.py",
            "print('hi')",
            "train.py: is not a job manifest; to run a script: gangline run --nproc 4 -- python train.py",
        ),
        ("job.yaml", b"\xff\x00\x01", "job.yaml: is not text"),
        ("job.yaml", "", "job.yaml: holds no object; give a file with a job"),
        ("job.yaml", "# nothing", "job.yaml: holds no object; give a file with a job"),
    ],
)
def test_a_file_without_a_job_is_an_error_with_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        read_documents(Path(name))
    assert str(error.value) == message


def test_for_a_missing_file_one_with_a_similar_name_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tfjob.yaml").touch()
    for name, message in (
        ("tfjobs.yaml", "tfjobs.yaml: No such file or directory; did you mean tfjob.yaml?"),
        ("other.yaml", "other.yaml: No such file or directory"),
        ("none/tfjob.yaml", "none/tfjob.yaml: No such file or directory; there is no folder none"),
    ):
        with pytest.raises(InputError) as error:
            read_documents(Path(name))
        assert str(error.value) == message


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder; name a file in it"):
        read_documents(tmp_path)


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(JOB))
    ((_, document),) = read_documents(Path("-"))
    assert (document.file, document.body["metadata"]["name"]) == ("stdin", "small")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(InputError, match="stdin: holds no object"):
        read_documents(Path("-"))


CLAIM = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n---\n"


def test_other_objects_of_a_file_are_returned_without_overrides(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(CLAIM + JOB)
    ((_, job),), others = read_jobs_and_others(file, ["metadata.name=other"])
    assert job.body["metadata"]["name"] == "other"
    assert [item.body["metadata"]["name"] for item in others] == ["data"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (CLAIM, 'kind: is "PersistentVolumeClaim"; a run takes TFJob'),
        (CLAIM + JOB.replace("TFJob", "TfJob"), "write:   kind: TFJob"),
        (CLAIM.replace("kind: PersistentVolumeClaim\n", "") + JOB, "kind: required field is missing"),
    ],
)
def test_a_file_needs_a_job_and_a_misspelled_job_is_no_other_object(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_jobs_and_others(file)
