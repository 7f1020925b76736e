"""The public face of Kubeflow's SDK, as JSON: calls and attributes of its TrainingClient, constants, models."""

import inspect
import json
from typing import Any

import kubeflow.training  # type: ignore[import-not-found]
from kubeflow.training import TrainingClient, constants
from kubernetes.client import Configuration  # type: ignore[import-not-found]


def parameters(call: Any) -> list[tuple[str, str]]:
    """In order, each with the text of its default, empty for none."""
    found = list(inspect.signature(call).parameters.values())
    return [(each.name, "" if each.default is each.empty else repr(each.default)) for each in found]


def told(value: Any) -> Any:
    """As JSON has it; a set in order."""
    return sorted(value) if isinstance(value, set) else value


def is_plain(value: Any) -> bool:
    return isinstance(value, str | int | list | tuple | set | dict)


models = {name: found for name, found in vars(kubeflow.training).items() if name.startswith("KubeflowOrg")}
face = {
    "calls": {name: parameters(call) for name, call in vars(TrainingClient).items() if callable(call)},
    "attributes": sorted(vars(TrainingClient(client_configuration=Configuration()))),
    "constants": {name: told(value) for name, value in vars(constants).items() if name.isupper() and is_plain(value)},
    "models": {name: found.attribute_map for name, found in models.items()},
}
print(json.dumps(face))
