"""A job as the SDK returns it: typed fields, the full JSON of the server, and an HTML view for notebooks."""

from collections.abc import Mapping
from typing import Any

import yaml

from gangline.api.codec.codec import Document, decode_document
from gangline.api.kubeflow.kinds import TRAINING_KINDS, find_job_api
from gangline.api.kubeflow.training import ConditionType, JobKind, JobStatus, TrainingJob
from gangline.api.meta import JSON, ObjectMeta

_KIND_BY_NAME = {kind.kind: kind for kind in TRAINING_KINDS}


def job_kind_named(kind: str) -> JobKind:
    """The `JobKind` with this name (`PyTorchJob`). Raises `ValueError`."""
    if kind not in _KIND_BY_NAME:
        raise ValueError(f"job_kind: is {kind!r}; write one of {', '.join(_KIND_BY_NAME)}")
    return _KIND_BY_NAME[kind]


def job_kind_of(body: JSON) -> JobKind:
    """The `JobKind` of an object, by its version, too. Raises `ValueError`."""
    return find_job_api(body.get("apiVersion"), body.get("kind")) or job_kind_named(str(body.get("kind")))


def type_meta(kind: JobKind) -> JSON:
    """`apiVersion` and `kind`, which the items of lists lack."""
    return {"apiVersion": kind.model.API_VERSION, "kind": kind.kind}


class Job:
    """`job.metadata.name`, `job.spec.pytorch_replica_specs["Worker"].replicas`, `job.status.conditions`.

    The attributes are typed; `to_dict()` and `to_yaml()` return every field that the server sent. A notebook shows the
    job as HTML.
    """

    def __init__(self, body: JSON) -> None:
        self._body = body
        self._typed: TrainingJob = decode_document(Document(body, {}), job_kind_of(body).model)

    @classmethod
    def from_yaml(cls, text: str) -> "Job":
        """The job in a YAML document. Raises `ValueError` if the document is not a job."""
        body = yaml.safe_load(text)
        if not isinstance(body, dict) or "kind" not in body:
            raise ValueError("the text holds no job: apiVersion, kind, metadata and spec are needed")
        return cls(body)

    @property
    def api_version(self) -> str:
        return self._typed.API_VERSION

    @property
    def kind(self) -> str:
        return self._typed.KIND

    @property
    def metadata(self) -> ObjectMeta:
        return self._typed.metadata

    @property
    def spec(self) -> Any:
        return self._typed.spec  # type: ignore[attr-defined]

    @property
    def status(self) -> JobStatus:
        return self._typed.status

    @property
    def facts(self) -> JobKind:
        return job_kind_named(self.kind)

    @property
    def state(self) -> str:
        """Failed or Succeeded once the job has ended, else the newest condition that is True; Pending if there is none."""
        for final in (ConditionType.FAILED, ConditionType.SUCCEEDED):
            if self.status.holds(final):
                return final.value
        current = [condition.type for condition in self.status.conditions if condition.status == "True"]
        return current[-1] if current else "Pending"

    @property
    def replicas(self) -> Mapping[str, int]:
        """The requested number of replicas by replica type."""
        specs: Mapping[str, Any] = self._body["spec"].get(self.facts.replicas) or {}
        return {kind: entry.get("replicas", 1) for kind, entry in specs.items()}

    def to_dict(self) -> JSON:
        return self._body

    def to_yaml(self) -> str:
        text: str = yaml.safe_dump(self._body, sort_keys=False, allow_unicode=True)
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other._body == self._body

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        namespace = f"{self.metadata.namespace}/" if self.metadata.namespace else ""
        return f"<{self.kind} {namespace}{self.metadata.name}: {self.state}>"

    def _repr_html_(self) -> str:
        # Imported here: only notebooks need it, and `html` takes a millisecond to import.
        from gangline.sdk.job_html import job_html

        return job_html(self._typed, self.state, self.replicas)
