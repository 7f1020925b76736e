"""What pods get so that their programs can report progress, and that they get nothing where nobody asked for it."""

from copy import deepcopy
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import REPORT_PROGRESS_ANNOTATION
from gangline.api.meta import JSON, Key
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.plan.actions import PODS, Create
from gangline.jobs.pods.progress_reporting import ProgressEndpoint, progress_audience, progress_path
from gangline.jobs.site import Site
from gangline.testing.builders import make_job
from support.builders.observed_jobs import job_plan, plan_actions

URL = "http://gangline-progress.gangline.svc:8082"
ENDPOINT = ProgressEndpoint(URL)
EVERY_JOB = ProgressEndpoint(URL, every_job=True)
FOLDER = "/var/run/secrets/gangline/progress"


def planned_pods(job: Any, endpoint: ProgressEndpoint | None, framework: Any = None) -> list[JSON]:
    plan = job_plan(framework or TensorFlow(), job, site=Site(progress=endpoint))
    return [action.body for action in plan_actions(plan) if isinstance(action, Create) and action.resource == PODS]


def with_wish(job: Any, wish: str) -> Any:
    metadata = msgspec.structs.replace(job.metadata, annotations={REPORT_PROGRESS_ANNOTATION: wish})
    return msgspec.structs.replace(job, metadata=metadata)


def without_additions(pod: JSON) -> JSON:
    """The pod without what is added for progress."""
    pod = deepcopy(pod)
    container = pod["spec"]["containers"][0]
    container["env"] = [variable for variable in container["env"] if "KUBEFLOW_TRAINER" not in variable["name"]]
    container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] != "gangline-progress"]
    pod["spec"]["volumes"] = [volume for volume in pod["spec"]["volumes"] if volume["name"] != "gangline-progress"]
    for part, key in ((container, "volumeMounts"), (pod["spec"], "volumes"), (container, "env")):
        if not part[key]:
            del part[key]
    return pod


def job_with(**container: Any) -> Any:
    """A TFJob of one worker whose container has these fields."""
    job = make_job(TFJOB, "bert", worker=1)
    worker = job.spec.tf_replica_specs["Worker"]
    template = deepcopy(worker.template)
    volumes = container.pop("volumes", None)
    template["spec"]["containers"][0] |= container
    template["spec"] |= {} if volumes is None else {"volumes": volumes}
    specs = {"Worker": msgspec.structs.replace(worker, template=template)}
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, tf_replica_specs=specs))


def test_pods_get_url_token_and_nothing_else() -> None:
    job = make_job(TFJOB, "bert", worker=2)
    plain, told = planned_pods(job, None), planned_pods(job, EVERY_JOB)
    assert [without_additions(pod) for pod in told] == plain
    for pod in told:
        container = pod["spec"]["containers"][0]
        env = {variable["name"]: variable["value"] for variable in container["env"] if "TRAINER" in variable["name"]}
        namespace = job.metadata.namespace
        assert env == {
            "KUBEFLOW_TRAINER_SERVER_URL": (
                f"{URL}/apis/training.gangline.dev/v1/namespaces/{namespace}/tfjobs/bert/status"
            ),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": f"{FOLDER}/token",
        }
        assert container["volumeMounts"] == [{"name": "gangline-progress", "mountPath": FOLDER, "readOnly": True}]
        token = {
            "audience": f"tfjobs.bert.{namespace}.progress.training.gangline.dev",
            "expirationSeconds": 3600,
            "path": "token",
        }
        assert pod["spec"]["volumes"] == [
            {"name": "gangline-progress", "projected": {"sources": [{"serviceAccountToken": token}]}}
        ]


def test_an_authority_arrives_by_an_annotation_of_the_pod() -> None:
    endpoint = ProgressEndpoint("https://operator:8082/", "-----BEGIN CERTIFICATE-----\n", every_job=True)
    (pod,) = planned_pods(make_job(TFJOB, "bert", worker=1), endpoint)
    assert pod["metadata"]["annotations"]["training.gangline.dev/progress-ca"] == "-----BEGIN CERTIFICATE-----\n"
    field = {"fieldPath": "metadata.annotations['training.gangline.dev/progress-ca']"}
    sources = pod["spec"]["volumes"][0]["projected"]["sources"]
    assert sources[1:] == [{"downwardAPI": {"items": [{"path": "ca.crt", "fieldRef": field}]}}]
    env = {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0]["env"]}
    assert env["KUBEFLOW_TRAINER_SERVER_CA_CERT"] == f"{FOLDER}/ca.crt"
    assert env["KUBEFLOW_TRAINER_SERVER_URL"].startswith("https://operator:8082/apis/")


@pytest.mark.parametrize(
    ("endpoint", "wish", "reports"),
    [
        (None, "true", False),
        (ENDPOINT, None, False),
        (ENDPOINT, "false", False),
        (ENDPOINT, "yes", False),
        (ENDPOINT, "true", True),
        (EVERY_JOB, None, True),
        (EVERY_JOB, "true", True),
        (EVERY_JOB, "False", False),
    ],
)
def test_who_reports(endpoint: ProgressEndpoint | None, wish: str | None, reports: bool) -> None:
    job = make_job(TFJOB, "bert", worker=1)
    job = job if wish is None else with_wish(job, wish)
    assert (planned_pods(job, endpoint) != planned_pods(job, None)) is reports


def test_every_kind_of_replica_reports_from_its_training_container() -> None:
    for framework, job in (
        (PyTorch(""), make_job(PYTORCHJOB, "bert", master=1, worker=2)),
        (Mpi(), make_job(MPIJOB, "bert", launcher=1, worker=2)),
    ):
        pods = planned_pods(job, EVERY_JOB, framework)
        assert pods
        assert all("KUBEFLOW_TRAINER_SERVER_URL" in str(pod["spec"]["containers"][0]["env"]) for pod in pods)


@pytest.mark.parametrize(
    "own",
    [
        {"env": [{"name": "KUBEFLOW_TRAINER_SERVER_URL", "value": "http://mine"}]},
        {"env": [{"name": "KUBEFLOW_TRAINER_SERVER_TOKEN", "value": "/mine"}]},
        {"volumes": [{"name": "gangline-progress", "emptyDir": {}}]},
        {"volumeMounts": [{"name": "mine", "mountPath": f"{FOLDER}/"}], "volumes": [{"name": "mine", "emptyDir": {}}]},
    ],
)
def test_what_the_user_wrote_wins(own: dict[str, Any]) -> None:
    job = job_with(**own)
    assert planned_pods(job, EVERY_JOB) == planned_pods(job, None)


def test_the_template_is_not_changed() -> None:
    job = job_with(env=[{"name": "A", "value": "1"}])
    before = deepcopy(job.spec.tf_replica_specs["Worker"].template)
    planned_pods(job, EVERY_JOB)
    assert job.spec.tf_replica_specs["Worker"].template == before


def test_paths_and_audiences_of_different_jobs_differ() -> None:
    names = [
        ("tfjobs", Key("a", "b")),
        ("tfjobs", Key("a", "b.a")),
        ("tfjobs", Key("b", "a")),
        ("mpijobs", Key("a", "b")),
    ]
    assert len({progress_path(*name) for name in names}) == len(names)
    assert len({progress_audience(*name) for name in names}) == len(names)
