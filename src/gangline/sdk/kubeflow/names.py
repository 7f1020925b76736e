"""The names of `kubeflow.training`: the client, the constants and the models.

    from gangline.sdk.kubeflow import KubeflowOrgV1ReplicaSpec, TrainingClient, constants

Models have attributes and their names in JSON. They validate nothing: the server does, with better messages. Pod templates
are those of the Kubernetes client (`kubernetes.client.V1PodTemplateSpec`), or dictionaries.
"""

from typing import Any, ClassVar

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.sdk.client import TrainingClient
from gangline.sdk.kubeflow import constants

__all__ = ["TrainingClient", "constants"]

_JOB_FIELDS = "api_version kind metadata spec status"
_ELASTIC_FIELDS = "max_replicas max_restarts metrics min_replicas"
_MODEL_FIELDS = {
    "ElasticPolicy": f"{_ELASTIC_FIELDS} n_proc_per_node rdzv_backend rdzv_conf rdzv_host rdzv_id rdzv_port standalone",
    "JAXJobSpec": "jax_replica_specs run_policy",
    "JobCondition": "last_transition_time last_update_time message reason status type",
    "JobStatus": "completion_time conditions last_reconcile_time replica_statuses start_time",
    "MPIJobSpec": "clean_pod_policy main_container mpi_replica_specs run_policy slots_per_worker",
    "PaddleElasticPolicy": _ELASTIC_FIELDS,
    "PaddleJobSpec": "elastic_policy paddle_replica_specs run_policy",
    "PyTorchJobSpec": "elastic_policy nproc_per_node pytorch_replica_specs run_policy",
    "RDZVConf": "key value",
    "ReplicaSpec": "replicas restart_policy template",
    "ReplicaStatus": "active failed label_selector selector succeeded",
    "RunPolicy": "active_deadline_seconds backoff_limit clean_pod_policy managed_by scheduling_policy suspend "
    "ttl_seconds_after_finished",
    "SchedulingPolicy": "min_available min_resources priority_class queue schedule_timeout_seconds",
    "TFJobSpec": "enable_dynamic_worker run_policy success_policy tf_replica_specs",
    "XGBoostJobSpec": "run_policy xgb_replica_specs",
    **{kind.kind: _JOB_FIELDS for kind in TRAINING_KINDS},
    **{f"{kind.kind}List": "api_version items kind metadata" for kind in TRAINING_KINDS},
}
"""The attributes of each model, by its name without `KubeflowOrgV1`."""


class KubeflowModel:
    """A model: attributes that are None unless given."""

    attribute_map: ClassVar[dict[str, str]] = {}
    """The JSON name of each attribute."""

    def __init__(self, **attributes: Any) -> None:
        for name in attributes.keys() - self.attribute_map.keys():
            raise TypeError(f"{type(self).__name__} has no {name}; it has {', '.join(sorted(self.attribute_map))}")
        for name in self.attribute_map:
            setattr(self, name, attributes.get(name))

    def to_dict(self) -> dict[str, Any]:
        """The values by attribute name, as in generated models."""
        return {name: _as_dict(getattr(self, name)) for name in self.attribute_map}

    def __repr__(self) -> str:
        pairs = (f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({', '.join(pairs)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


def _as_dict(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_dict(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_dict(item) for name, item in value.items()}
    return value.to_dict() if hasattr(value, "to_dict") else value


def _wire_name(attribute: str) -> str:
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def _model_class(name: str, attributes: str) -> type[KubeflowModel]:
    names = {attribute: _wire_name(attribute) for attribute in attributes.split()}
    return type(name, (KubeflowModel,), {"attribute_map": names, "__module__": __name__})


_MODELS = {
    f"KubeflowOrgV1{name}": _model_class(f"KubeflowOrgV1{name}", fields) for name, fields in _MODEL_FIELDS.items()
}
__all__ += list(_MODELS)


def __getattr__(name: str) -> Any:
    if name in _MODELS:
        return _MODELS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
