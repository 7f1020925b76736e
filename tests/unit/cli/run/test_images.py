"""What a job needs of its images, before anything is started."""

from pathlib import Path

import pytest

from gangline.api.kubeflow.kinds import MPIJOB, MPIJOB_V2, TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.run.images import check_images, runs_images
from gangline.cli.run.request import RunJob
from gangline.node.settings import NodeSettings

IMAGE_ONLY = ["python", "/opt/no/train.py"]


def job(container: JSON, kind: JobKind = TFJOB, replica: str = "Worker", **pod: object) -> RunJob:
    template = {"spec": {"containers": [{"name": "c", "image": "i", **container}], **pod}}
    body = {"metadata": {"name": "j"}, "spec": {kind.replicas: {replica: {"replicas": 1, "template": template}}}}
    return RunJob(kind, body, Path.cwd())


@pytest.fixture(autouse=True)
def no_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr("gangline.node.runtime.auto.ENGINES", ("no-podman",))


@pytest.mark.parametrize("runtime", ["auto", "process"])
def test_a_file_that_only_the_image_has_is_an_error(runtime: str) -> None:
    with pytest.raises(InputError, match=r"/opt/no/train\.py exists only in the image"):
        check_images([job({"command": IMAGE_ONLY, "resources": {"limits": {"cpu": 1}}})], NodeSettings(runtime=runtime))


def test_an_engine_that_works_runs_the_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "no-podman"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    check_images([job({"command": IMAGE_ONLY})], NodeSettings(runtime="auto"))
    program.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    with pytest.raises(InputError, match=r"podman or docker \(no-podman: no daemon\)"):
        check_images([job({"command": IMAGE_ONLY})], NodeSettings(runtime="auto"))


@pytest.mark.parametrize(
    "accepted",
    [
        job({"command": ["python", "-c", "1"]}),
        job({"command": IMAGE_ONLY, "volumeMounts": [{"name": "v", "mountPath": "/opt/no/"}]}),
        job({"command": ["python", "$(WHERE)/train.py"]}),
        job({"command": IMAGE_ONLY}, initContainers=[{"name": "i"}]),
        job({"command": "python train.py"}),
        job({}, MPIJOB),
        job({"command": ["/usr/sbin/sshd", "-De"]}, MPIJOB_V2),
        job({"command": IMAGE_ONLY})._replace(from_command=True),
    ],
)
def test_what_is_not_known_yet_is_left_to_the_node(accepted: RunJob) -> None:
    check_images([accepted], NodeSettings(runtime="auto"))


def test_the_launcher_of_an_mpijob_needs_a_command() -> None:
    with pytest.raises(InputError, match="the pod names no command"):
        check_images([job({}, MPIJOB, "Launcher")], NodeSettings(runtime="auto"))


def test_images_that_always_run_need_nothing_here() -> None:
    check_images([job({"command": IMAGE_ONLY})], NodeSettings(runtime="podman"))


@pytest.mark.parametrize(
    ("command", "runtime", "expected"),
    [
        (IMAGE_ONLY, "auto", True),
        (["python", "-c", "1"], "auto", False),
        (["python", "-c", "1"], "podman", True),
        (IMAGE_ONLY, "process", False),
    ],
)
def test_which_jobs_run_from_images(command: list[str], runtime: str, expected: bool) -> None:
    assert runs_images(job({"command": command}), NodeSettings(runtime=runtime)) is expected
