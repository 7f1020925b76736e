"""What people hand in becomes JSON: our jobs, plain dictionaries, models of the Kubernetes and Kubeflow clients."""

import functools
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.sdk.job import Job

_SCALARS = frozenset({str, int, float, bool})


def job_body(given: Any) -> JSON:
    """The JSON of a job. Raises `ValueError` for what is none."""
    body = plain_json(given)
    if not isinstance(body, dict):
        raise ValueError(f"a job is a Job, a dict or a model of the Kubeflow SDK; this is {type(given).__name__}")
    return body


def plain_json(given: Any) -> Any:
    """As JSON has it. Models of generated clients know the names of the wire; what is None in them is left out."""
    if given is None or type(given) in _SCALARS:
        return given
    if isinstance(given, Job):
        return given.to_dict()
    if isinstance(given, msgspec.Struct):
        return to_json(given)
    if hasattr(type(given), "attribute_map"):
        return _model_json(given)
    if isinstance(given, Mapping):
        return {str(name): plain_json(value) for name, value in given.items()}
    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return [plain_json(value) for value in given]
    return given


def _model_json(given: Any) -> JSON:
    model: type = type(given)
    stored, made = vars(given), {}
    for attribute, private, wire in _model_fields(model):
        value = stored[private] if private in stored else getattr(given, attribute)
        if value is not None:
            made[wire] = plain_json(value)
    return made


@functools.cache
def _model_fields(model: Any) -> tuple[tuple[str, str, str], ...]:
    """Of each field: its property, where that keeps it (asking the property is a call), its name on the wire."""
    return tuple((attribute, f"_{attribute}", wire) for attribute, wire in model.attribute_map.items())


def resource_requirements(given: Any) -> JSON | None:
    """Requests and limits: from `{"cpu": 2, "gpu": 1}`, which is both, or as Kubernetes has them."""
    if given is None:
        return None
    written = plain_json(given)
    if not isinstance(written, dict):
        raise ValueError(f"resources: is {given!r}; write a dict such as {{'cpu': 2, 'memory': '4Gi', 'gpu': 1}}")
    if {"requests", "limits"} & written.keys():
        return written
    named = {name.lower(): str(value) for name, value in written.items()}
    if "gpu" in named:
        named["nvidia.com/gpu"] = named.pop("gpu")
    return {"requests": named, "limits": dict(named)}


def env_entries(given: Any) -> list[JSON]:
    """Variables: from a dict, or as Kubernetes has them."""
    written = plain_json(given or {})
    if isinstance(written, dict):
        return [{"name": name, "value": str(value)} for name, value in written.items()]
    return list(written)
