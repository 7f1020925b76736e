"""The public calls of Kubeflow's TrainingClient, as JSON: by name, their parameters in order, each with its default."""

import inspect
import json
from typing import Any

from kubeflow.training import TrainingClient  # type: ignore[import-not-found]


def parameters(call: Any) -> list[tuple[str, str]]:
    found = list(inspect.signature(call).parameters.values())
    return [(each.name, "" if each.default is each.empty else repr(each.default)) for each in found]


calls = {name: parameters(call) for name, call in vars(TrainingClient).items() if callable(call)}
print(json.dumps(calls))
