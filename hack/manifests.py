"""Writes charts/gangline and manifests from gangline.install: `python hack/manifests.py`.

tests/unit/install/test_manifests.py fails when they differ. Files that are written by hand are left alone: the chart's
NOTES.txt and .helmignore, and manifests/crds, which hack/crds.py writes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangline import __version__
from gangline.api.meta import JSON
from gangline.cli.authoring.crds import as_yaml
from gangline.install.chart_objects import CHART_TESTS
from gangline.install.evaluate import Evaluation, monitoring_file
from gangline.install.monitoring_objects import MONITORING_FILES
from gangline.install.nodes import Node, When
from gangline.install.objects import OBJECT_FILES, REQUIREMENTS, crd_nodes
from gangline.install.template_text import definitions_text, documents_text, named_nodes, plain_text, requirements_text
from gangline.install.value_fields import ValueField, merged_values, value_fields
from gangline.install.values import InstallValues, Release

ROOT = Path(__file__).parent.parent
CHART, MANIFESTS = Path("charts") / "gangline", Path("manifests")
BY_HAND = frozenset({CHART / "templates" / "NOTES.txt", CHART / ".helmignore"})
"""Files in the folders written here that are nobody's output."""
HEADER = "# Made by hack/manifests.py from gangline.install: do not edit.\n"
TEMPLATE_HEADER = "{{- /* Made by hack/manifests.py from gangline.install: do not edit. */ -}}\n"
_WIDTH = 110


def files() -> dict[Path, str]:
    """The text of every file, by its path from the root of the repository."""
    return {
        **{CHART / name: text for name, text in chart_files().items()},
        **{MANIFESTS / name: text for name, text in kustomize_files().items()},
    }


def chart_files() -> dict[str, str]:
    """The files of the chart."""
    crds = crd_nodes()
    named = named_nodes([*OBJECT_FILES.values(), CHART_TESTS, *(_crd_head(node) for node in crds.values())])
    return {
        "Chart.yaml": chart_yaml(),
        "README.md": chart_readme(),
        "values.yaml": HEADER + values_yaml(),
        "values.schema.json": json.dumps(values_schema(), indent=2) + "\n",
        "templates/_helpers.tpl": TEMPLATE_HEADER + definitions_text(named.values()),
        "templates/requirements.yaml": TEMPLATE_HEADER + requirements_text(REQUIREMENTS),
        **{f"templates/{name}.yaml": TEMPLATE_HEADER + documents_text(nodes) for name, nodes in OBJECT_FILES.items()},
        **{f"templates/crds/{name}.yaml": TEMPLATE_HEADER + crd_template(node) for name, node in crds.items()},
        **{f"files/{name}": monitoring_file(name) for name in MONITORING_FILES},
        "templates/tests/metrics.yaml": TEMPLATE_HEADER + documents_text(CHART_TESTS),
    }


def chart_yaml() -> str:
    chart = {
        "apiVersion": "v2",
        "name": "gangline",
        "description": "Operator for distributed training jobs of kubeflow.org/v1, with an optional gang scheduler",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.30.0-0",
        "keywords": ["kubeflow", "training", "tfjob", "pytorchjob", "mpijob", "gang scheduling"],
        "annotations": {"artifacthub.io/license": "Apache-2.0", "artifacthub.io/operator": "true"},
    }
    return HEADER + yaml.safe_dump(chart, sort_keys=False, width=_WIDTH)


def crd_template(node: Node) -> str:
    """A CRD: its head depends on values, its spec is as compact as in manifests/crds."""
    assert isinstance(node, When)
    assert isinstance(node.node, Mapping)
    spec = as_yaml([{"spec": node.node["spec"]}])
    assert "{{" not in spec, "Helm would take this for a template"
    head = documents_text([_crd_head(node)])
    assert head.endswith("{{- end }}\n")
    return head.removesuffix("{{- end }}\n") + spec + "{{- end }}\n"


def _crd_head(node: Node) -> When:
    assert isinstance(node, When)
    assert isinstance(node.node, Mapping)
    return When(node.condition, {key: inner for key, inner in node.node.items() if key != "spec"})


def values_yaml() -> str:
    """All values with their defaults, and what each means above it."""
    return "\n".join(_value_lines(value_fields().values())) + "\n"


def _value_lines(fields: Iterable[ValueField]) -> Iterator[str]:
    for field in fields:
        depth = field.path.count(".")
        pad, key = "  " * depth, field.path.rpartition(".")[2]
        if not depth:
            yield ""
        yield from (f"{pad}# {line}" for line in _wrapped(field.description, _WIDTH - 2 - len(pad)))
        if field.type == "block":
            yield f"{pad}{key}:"
        elif field.type in ("map", "list") and field.default:
            yield f"{pad}{key}:"
            text = yaml.safe_dump(_plain(field.default), sort_keys=False, width=_WIDTH)
            yield from (f"{pad}  {line}" for line in text.splitlines())
        else:
            yield f"{pad}{key}: {json.dumps(_plain(field.default))}"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def values_schema() -> JSON:
    """The JSON schema of the values. A chart around this one may add `global`, which Helm passes on."""
    schema = _inlined(msgspec.json.schema(InstallValues), {})
    schema["properties"]["global"] = {"description": "Values of a chart around this one; not used.", "type": "object"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _inlined(node: Any, definitions: JSON) -> Any:
    """A schema without references and titles: what a reader of an error sees is the path of a value."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    definitions = node.get("$defs", definitions)
    outer = {key: inner for key, inner in node.items() if key not in ("$defs", "$ref", "title", "default")}
    if "$ref" in node:
        target = definitions[node["$ref"].rpartition("/")[2]]
        return {**_inlined(target, definitions), **outer}
    if "properties" in outer:
        properties = {name: _inlined(inner, definitions) for name, inner in outer["properties"].items()}
        return {**outer, "properties": properties}
    return {key: _inlined(inner, definitions) for key, inner in outer.items()}


def chart_readme() -> str:
    """The page of the chart: how to install it, and the table of values."""
    rows = [
        f"| `{field.path}` | `{json.dumps(_plain(field.default))}` | {field.description.replace('|', chr(92) + '|')} |"
        for field in value_fields().values()
        if field.type != "block"
    ]
    return README.format(version=__version__) + "\n".join(rows) + "\n"


README = """<!-- Made by hack/manifests.py from gangline.install: do not edit. -->
# gangline

Operator for the training jobs of `kubeflow.org/v1` (TFJob, PyTorchJob, XGBoostJob, MPIJob, PaddleJob, JAXJob), with an
optional gang scheduler. [docs/helm.md](../../docs/helm.md) says how to install, upgrade and leave it.

```console
$ helm install gangline charts/gangline --namespace gangline --create-namespace
```

## Values

A value that is not here, or of the wrong type, is refused with its path (`values.schema.json`).

| value | default | meaning |
| --- | --- | --- |
"""

KUSTOMIZATION = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
COMPONENT = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component"}
RELEASE = Release(service="kustomize")
BASE_VALUES: JSON = {"namespace": {"create": True}}
COMPONENT_VALUES: Mapping[str, JSON] = {
    "scheduler": {"scheduler": {"enabled": True}},
    "dashboard": {"dashboard": {"enabled": True}},
    "monitoring": {
        "metrics": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
        "grafanaDashboard": {"enabled": True},
    },
    "network-policy": {"networkPolicy": {"enabled": True}},
    "secure-metrics": {"metrics": {"secure": {"enabled": True}}},
    "progress": {"progress": {"enabled": True}},
    "install-crds": {"crds": {"byOperator": True}},
    "mpi": {"rbac": {"mpiJobs": True}},
    "mpi-v2beta1": {"mpiV2beta1": True},
    "hang-stacks": {"hangWatch": {"stacks": True}},
    "volcano": {"gangSchedulerName": "volcano"},
    "scheduler-plugins": {"gangSchedulerName": "scheduler-plugins-scheduler"},
    "kubernetes-gangs": {"gangSchedulerName": "kubernetes"},
}
"""What each component adds to the base."""
NAMESPACED_VALUES: JSON = {"watchNamespaces": ["team-a", "team-b"]}
NAMESPACED_RELEASE = Release(namespace="team-a", service="kustomize")
"""The operator runs in one of the namespaces that it serves, for people who have no other."""
OVERLAYS: Mapping[str, tuple[str, ...]] = {
    "standalone": (),
    "scheduler": ("scheduler",),
    "mpi": ("mpi",),
    "monitoring": ("monitoring",),
    "dashboard": ("dashboard",),
    "all": ("scheduler", "dashboard", "mpi", "monitoring", "network-policy"),
}
"""The components of each overlay; all have the CRDs and the base."""


def kustomize_files() -> dict[str, str]:
    """The base, what can be added to it, and overlays that are ready to apply."""
    base = _resolved(BASE_VALUES)
    texts = {f"base/{name}.yaml": text for name, text in _object_texts(base).items()}
    texts["base/kustomization.yaml"] = _kustomization({**KUSTOMIZATION, "resources": [f"{name}.yaml" for name in base]})
    for name, values in COMPONENT_VALUES.items():
        texts |= {f"components/{name}/{file}": text for file, text in _component_files(values).items()}
    for name, components in OVERLAYS.items():
        overlay: JSON = {**KUSTOMIZATION, "resources": ["../../crds", "../../base"]}
        if components:
            overlay["components"] = [f"../../components/{component}" for component in components]
        texts[f"overlays/{name}/kustomization.yaml"] = _kustomization(overlay)
    namespaced = _resolved(NAMESPACED_VALUES, NAMESPACED_RELEASE)
    texts |= {f"overlays/namespaced/{name}.yaml": text for name, text in _object_texts(namespaced).items()}
    texts["overlays/namespaced/kustomization.yaml"] = _kustomization(
        {**KUSTOMIZATION, "resources": [f"{name}.yaml" for name in namespaced]}
    )
    return texts


def _kustomization(content: JSON) -> str:
    return HEADER + plain_text([content]).removeprefix("---\n")


def _resolved(values: JSON, release: Release = RELEASE) -> dict[str, list[Node]]:
    """The objects for some values by file, with comments; files without objects are left out."""
    evaluation = Evaluation(merged_values(values), release, notes=True)
    resolved = {name: evaluation.objects(nodes) for name, nodes in OBJECT_FILES.items()}
    return {name: [*objects] for name, objects in resolved.items() if objects}


def _object_texts(resolved: Mapping[str, list[Node]]) -> dict[str, str]:
    return {name: HEADER + plain_text(objects).removeprefix("---\n") for name, objects in resolved.items()}


def _component_files(values: JSON) -> dict[str, str]:
    """What some values add to the base and change in it."""
    base = {_identity(one): one for _, one in _objects_with_notes(BASE_VALUES)}
    added: list[Node] = []
    patches: list[JSON] = []
    for noted, plain in _objects_with_notes({**BASE_VALUES, **values}):
        before = base.pop(_identity(plain), None)
        if before is None:
            added.append(noted)
        elif before != plain:
            target = {"kind": plain["kind"], "name": plain["metadata"]["name"]}
            operations = yaml.safe_dump([*json_patch(before, plain, "")], sort_keys=False, width=_WIDTH)
            patches.append({"target": target, "patch": operations})
    assert not base, "a component cannot take something away"
    component: JSON = {**COMPONENT}
    if added:
        component["resources"] = ["objects.yaml"]
    if patches:
        component["patches"] = patches
    texts = {"kustomization.yaml": _kustomization(component)}
    return {**texts, "objects.yaml": HEADER + plain_text(added).removeprefix("---\n")} if added else texts


def _objects_with_notes(values: JSON) -> list[tuple[Node, JSON]]:
    nodes = [node for group in OBJECT_FILES.values() for node in group]
    converted = merged_values(values)
    noted = Evaluation(converted, RELEASE, notes=True).objects(nodes)
    return list(zip(noted, Evaluation(converted, RELEASE).objects(nodes), strict=True))


def _identity(one: JSON) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def json_patch(before: Any, after: Any, path: str) -> Iterator[JSON]:
    """The operations that make one value of another. Items at the end of a list are added to it, so that patches add up."""
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys((*before, *after)):
            place = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in after:
                yield {"op": "remove", "path": place}
            elif key not in before:
                yield {"op": "add", "path": place, "value": after[key]}
            else:
                yield from json_patch(before[key], after[key], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from json_patch(old, new, f"{path}/{at}")
    elif isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        yield from ({"op": "add", "path": f"{path}/-", "value": item} for item in after[len(before) :])
    else:
        yield {"op": "replace", "path": path, "value": after}


def write() -> None:
    """Write all files and remove those that are not made any more."""
    made = files()
    for path, text in made.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
    for path in existing():
        if path not in made:
            (ROOT / path).unlink()


def existing() -> set[Path]:
    """The files in our folders that should be what this script writes."""
    folders = (CHART, MANIFESTS / "base", MANIFESTS / "components", MANIFESTS / "overlays")
    found = {file.relative_to(ROOT) for folder in folders for file in (ROOT / folder).rglob("*") if file.is_file()}
    return found - BY_HAND


if __name__ == "__main__":
    write()
