"""What a pod gets so that its program can report progress to the operator: three variables and a token. Pure.

The variables are those of Kubeflow Trainer, which `transformers` and others read by themselves. The token is for this one
purpose and this one job: its audience names both, so it is worth nothing to anybody else.
"""

import msgspec

from gangline.api.kubeflow.training import (
    PROGRESS_AUDIENCE,
    PROGRESS_CA_ANNOTATION,
    REPORT_PROGRESS_ANNOTATION,
    JobKind,
    TrainingJob,
)
from gangline.api.meta import JSON, Key

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
CA_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable
FOLDER = "/var/run/secrets/gangline/progress"
TOKEN_FILE, CA_FILE = "token", "ca.crt"
VOLUME = "gangline-progress"
TOKEN_SECONDS = 3600
"""How long a token is valid. The kubelet renews it before, and clients read the file again."""


class ProgressEndpoint(msgspec.Struct, frozen=True):
    """Where the operator receives progress."""

    # As pods reach it, without a path: http://gangline-operator-progress.gangline.svc:8082
    url: str
    # The certificate authority of an https URL, in PEM; empty: one that every image trusts.
    ca: str = ""
    # Whether every job reports; else only those with the annotation.
    every_job: bool = False


def progress_path(plural: str, job: Key) -> str:
    """The path to which the pods of a job report."""
    return f"/apis/training.gangline.dev/v1/namespaces/{job.namespace}/{plural}/{job.name}/status"


def progress_audience(plural: str, job: Key) -> str:
    """The audience of the tokens with which the pods of a job report. Neither plural nor namespace has a dot."""
    return f"{plural}.{job.name}.{job.namespace}.{PROGRESS_AUDIENCE}"


def reports_progress(job: TrainingJob, endpoint: ProgressEndpoint) -> bool:
    """Whether the pods of a job get what they need to report. The job's own annotation decides, if it has one."""
    wish = job.metadata.annotations.get(REPORT_PROGRESS_ANNOTATION, "").strip().lower()
    return wish == "true" or (endpoint.every_job and wish != "false")


def add_progress_reporting(pod: JSON, job: TrainingJob, job_kind: JobKind, endpoint: ProgressEndpoint) -> None:
    """Add the variables, the volume and its mount to a new pod, if its job reports. What the user wrote wins."""
    spec = pod["spec"]
    container = _training_container(spec, job_kind)
    if container is None or not reports_progress(job, endpoint) or _is_taken(spec, container):
        return
    key = Key(job.metadata.namespace, job.metadata.name)
    sources: list[JSON] = [
        {
            "serviceAccountToken": {
                "audience": progress_audience(job_kind.plural, key),
                "expirationSeconds": TOKEN_SECONDS,
                "path": TOKEN_FILE,
            }
        }
    ]
    values = {
        URL_VARIABLE: f"{endpoint.url.rstrip('/')}{progress_path(job_kind.plural, key)}",
        TOKEN_VARIABLE: f"{FOLDER}/{TOKEN_FILE}",
    }
    if endpoint.ca:
        # By an annotation of the pod: a ConfigMap in every namespace would need more rights, and to be kept up to date.
        pod["metadata"].setdefault("annotations", {})[PROGRESS_CA_ANNOTATION] = endpoint.ca
        field = {"fieldPath": f"metadata.annotations['{PROGRESS_CA_ANNOTATION}']"}
        sources.append({"downwardAPI": {"items": [{"path": CA_FILE, "fieldRef": field}]}})
        values[CA_VARIABLE] = f"{FOLDER}/{CA_FILE}"
    container["env"] = [
        *(container.get("env") or []),
        *({"name": name, "value": value} for name, value in values.items()),
    ]
    mount: JSON = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
    spec["volumes"] = [*(spec.get("volumes") or []), {"name": VOLUME, "projected": {"sources": sources}}]


def _training_container(spec: JSON, job_kind: JobKind) -> JSON | None:
    """The training container: by its usual name, else the first."""
    containers: list[JSON] = spec.get("containers") or []
    named = [container for container in containers if container.get("name") == job_kind.container]
    return next(iter(named or containers), None)


def _is_taken(spec: JSON, container: JSON) -> bool:
    """Whether the user's template says itself where to report, or uses the names that would be added."""
    names = {variable.get("name") for variable in container.get("env") or []}
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    paths = {mount.get("mountPath", "").rstrip("/") for mount in container.get("volumeMounts") or []}
    return bool(names & {URL_VARIABLE, TOKEN_VARIABLE, CA_VARIABLE}) or VOLUME in volumes or FOLDER in paths
