"""Converts jobs, dictionaries and models of the Kubernetes and Kubeflow clients to JSON."""

import functools
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec

from gangline.api.accelerators import with_resource_names
from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.sdk.job import Job

_SCALARS = frozenset({str, int, float, bool})


def job_body(value: Any) -> JSON:
    """The JSON of a job. Raises `ValueError` if the value is not a job."""
    body = plain_json(value)
    if not isinstance(body, dict):
        raise ValueError(f"a job is a Job, a dict or a model of the Kubeflow SDK; this is {type(value).__name__}")
    return body


def plain_json(value: Any) -> Any:
    """A value as JSON. Models of generated clients have the names of JSON fields; their fields that are None are left out."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, Job):
        return value.to_dict()
    if isinstance(value, msgspec.Struct):
        return to_json(value)
    if hasattr(type(value), "attribute_map"):
        return _model_json(value)
    if isinstance(value, Mapping):
        return {str(name): plain_json(item) for name, item in value.items()}
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_json(item) for item in value]
    return value


def _model_json(source: Any) -> JSON:
    model: type = type(source)
    attributes, body = vars(source), {}
    for name, private_name, field in _model_fields(model):
        value = attributes[private_name] if private_name in attributes else getattr(source, name)
        if value is not None:
            body[field] = plain_json(value)
    return body


@functools.cache
def _model_fields(model: Any) -> tuple[tuple[str, str, str], ...]:
    """For each field: its property, the attribute behind it (reading that is faster), and its name in JSON."""
    return tuple((name, f"_{name}", field) for name, field in model.attribute_map.items())


def resource_requirements(value: Any) -> JSON | None:
    """Requests and limits, from `{"cpu": 2, "gpu": 1}` for both, or in the form of Kubernetes. Raises `ValueError`."""
    if value is None:
        return None
    resources = plain_json(value)
    if not isinstance(resources, dict):
        raise ValueError(f"resources: is {value!r}; write a dict such as {{'cpu': 2, 'memory': '4Gi', 'gpu': 1}}")
    if {"requests", "limits"} & resources.keys():
        return {
            name: with_resource_names(value) if name in ("requests", "limits") and isinstance(value, dict) else value
            for name, value in resources.items()
        }
    amounts = with_resource_names({name.lower(): str(value) for name, value in resources.items()})
    return {"requests": amounts, "limits": dict(amounts)}


def env_entries(value: Any) -> list[JSON]:
    """Environment variables, from a dict, or in the form of Kubernetes."""
    variables = plain_json(value or {})
    if isinstance(variables, dict):
        return [{"name": name, "value": str(value)} for name, value in variables.items()]
    return list(variables)


def volume_claim_spec(access_modes: Sequence[str], size: str, storage_class: str | None) -> JSON:
    """The spec of a PersistentVolumeClaim."""
    spec: JSON = {"accessModes": list(access_modes), "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class} if storage_class else spec
