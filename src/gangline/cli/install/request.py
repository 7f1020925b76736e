"""What the commands of this family are asked for, and the objects that follow from it. Pure but for the kinds' models."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.install.cluster_objects import DEFAULT_NAMESPACE
from gangline.cli.install.flag_values import merged, secret_problem, settled
from gangline.install.objects import install_crds, install_objects
from gangline.install.value_fields import value_fields
from gangline.install.values import PATTERN_TEXTS, InstallValues, Release


class InstallRequest(NamedTuple):
    """What to install, where, and how.

    `values` are those that differ from the defaults, by the names of the chart; null: back to the default.
    """

    namespace: str
    values: JSON
    dry_run: bool = False
    wait: bool = True
    timeout: timedelta = timedelta(minutes=5)
    force: bool = False


class InstallObjects(NamedTuple):
    """The objects of an installation: the CRDs, and all others in the order in which to apply them."""

    crds: Sequence[JSON]
    objects: Sequence[JSON]

    @property
    def deployments(self) -> list[JSON]:
        return [body for body in self.objects if body["kind"] == "Deployment"]


def install_values(values: Mapping[str, Any]) -> InstallValues:
    """The values with the defaults of all others. Raises `InputError`."""
    problem = secret_problem(values)
    if problem:
        raise InputError(f"values: {problem}")
    defaults = msgspec.to_builtins(InstallValues())
    complete = _without_nulls(merged(defaults, _with_texts(settled(values))))
    try:
        converted = msgspec.convert(complete, InstallValues)
    except msgspec.ValidationError as error:
        raise InputError(f"values: {_value_error(str(error))}") from error
    _check_extra_objects(converted.extra_objects)
    return converted


def _without_nulls(values: Mapping[str, Any]) -> JSON:
    """Values without those entries of mappings that are to be absent."""
    return {
        name: _without_nulls(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }


def _with_texts(values: Mapping[str, Any], path: str = "") -> JSON:
    """Values in which numbers are texts where texts are expected, and `true` in labels: `--set image.tag=4`."""
    result = dict(values)
    for name, value in values.items():
        field = value_fields().get(f"{path}{name}")
        if field is None:
            continue
        if field.type == "string" and isinstance(value, int) and not isinstance(value, bool):
            result[name] = str(value)
        elif isinstance(value, Mapping) and field.type == "block":
            result[name] = _with_texts(value, f"{path}{name}.")
        elif isinstance(value, Mapping) and field.has_text_items:
            result[name] = {
                key: msgspec.json.encode(item).decode() if isinstance(item, bool | int) else item
                for key, item in value.items()
            }
    return result


def _check_extra_objects(bodies: Sequence[JSON]) -> None:
    for index, body in enumerate(bodies):
        metadata = body.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        texts = {"apiVersion": body.get("apiVersion"), "kind": body.get("kind"), "metadata.name": name}
        for field, text in texts.items():
            if not isinstance(text, str) or not text:
                raise InputError(f"values: extraObjects[{index}]: has no {field}; write a whole object")


def _value_error(text: str) -> str:
    """The message of msgspec with the path in front and what to write, as our other messages have it."""
    message, _, path = text.partition(" - at `")
    path = path.rstrip("`").removeprefix("$").removeprefix(".")
    if "unknown field" in message:
        return _unknown_value_error(path, message.split("`")[1])
    field = value_fields().get(path.partition("[")[0])
    wanted = next((words for pattern, words in PATTERN_TEXTS.items() if repr(pattern) in message), "")
    if field is not None and field.choices:
        wanted = f"{', '.join(field.choices[:-1])} or {field.choices[-1]}"
    hint = f"; write {wanted}" if wanted else ""
    message = "is not allowed" if wanted else f"{message[:1].lower()}{message[1:]}"
    return f"{path}: {message}{hint}" if path else message


def _unknown_value_error(path: str, name: str) -> str:
    siblings: Any = msgspec.to_builtins(InstallValues())
    for step in filter(None, path.split(".")):
        siblings = siblings.get(step, {}) if isinstance(siblings, Mapping) else {}
    similar = get_close_matches(name, list(siblings), 1)
    hint = f"; did you mean {similar[0]}?" if similar else "; charts/gangline/README.md lists all values"
    return f"{f'{path}.' if path else ''}{name}: there is no such value{hint}"


def objects_to_install(request: InstallRequest, *, creates_namespace: bool) -> InstallObjects:
    """The objects that a request stands for. Raises `InputError`."""
    values = request.values
    if creates_namespace:
        values = merged({"namespace": {"create": True}}, values)
    complete, release = install_values(values), Release(name="gangline", namespace=request.namespace)
    return InstallObjects(install_crds(complete, release), install_objects(complete, release))


def is_namespaced(values: Mapping[str, Any]) -> bool:
    """Whether only some namespaces are served, so that no right in the whole cluster is needed."""
    return bool(values.get("watchNamespaces"))


def default_namespace(values: Mapping[str, Any]) -> str:
    """The namespace of an installation for which none is given: of one that serves namespaces only, the first."""
    return str(values["watchNamespaces"][0]) if is_namespaced(values) else DEFAULT_NAMESPACE


def with_argument(bodies: Sequence[JSON], component: str, argument: str) -> list[JSON]:
    """The objects, of which the Deployment of a component has one more argument."""
    return [
        _with_argument(body, argument)
        if body["kind"] == "Deployment" and body["metadata"]["labels"].get("app.kubernetes.io/component") == component
        else body
        for body in bodies
    ]


def _with_argument(deployment: JSON, argument: str) -> JSON:
    spec = deployment["spec"]
    pod = spec["template"]["spec"]
    first, *others = pod["containers"]
    first = {**first, "args": [*(first.get("args") or ()), argument]}
    template = {**spec["template"], "spec": {**pod, "containers": [first, *others]}}
    return {**deployment, "spec": {**spec, "template": template}}
