"""Write docs/reference: fields of the kinds, labels and annotations, the Python API. A test finds drift."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from gangline.api.kubeflow.kinds import JOB_APIS
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.schema.crds.gang_crds import gang_crd
from gangline.schema.crds.job_crds import crd_schema

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = ("gangline", "gangline.operator", "gangline.testing")
OURS = (".gangline.dev/", "training.kubeflow.org/", "scheduling.k8s.io/")
NOTE = "<!-- Written by hack/reference.py: make reference. Do not edit. -->\n"


def pages() -> dict[str, str]:
    """Name of each page, and its text."""
    return {
        "fields.md": NOTE + "\n".join(fields()) + "\n",
        "labels.md": NOTE + "\n".join(labels()) + "\n",
        "python.md": NOTE + "\n".join(python()) + "\n",
    }


# Fields


def fields() -> Iterator[str]:
    yield "# Fields\n"
    yield "Every field of every kind, as `kubectl explain` has them after `gangline crds --described`."
    yield "A pod template is Kubernetes' own and is left out.\n"
    for kind in JOB_APIS:
        yield f"## {kind.scheme.replace('.', ' ')}\n"
        yield f"`{kind.model.API_VERSION}`, resource `{kind.plural}`; replica types {', '.join(kind.types)};"
        yield f"the container that trains is `{kind.container}`.\n"
        yield from _table(crd_schema(kind, described=True)["properties"])
    for resource in (PODGROUPS, QUEUES):
        body = gang_crd(resource, described=True)
        yield f"## {resource.kind}\n"
        short = ", ".join(f"`{name}`" for name in body["spec"]["names"].get("shortNames", ()))
        yield f"`{resource.api_version}`, resource `{resource.plural}`, short {short}.\n"
        yield from _table(body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"])


def _table(properties: dict[str, Any]) -> Iterator[str]:
    yield "| field | type | what |"
    yield "| --- | --- | --- |"
    for part in ("spec", "status"):
        for path, found in _walk(part, properties.get(part) or {}):
            yield f"| `{path}` | {_type(found)} | {_what(found)} |"
    yield ""


def _walk(path: str, found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, inner in (found.get("properties") or {}).items():
        below = f"{path}.{name}"
        yield below, inner
        if name in ("template", "metrics", "ledger", "labelSelector"):
            continue
        if "properties" in inner:
            yield from _walk(below, inner)
        elif "properties" in (inner.get("additionalProperties") or {}):
            yield from _walk(f"{below}.*", inner["additionalProperties"])
        elif "properties" in (inner.get("items") or {}):
            yield from _walk(f"{below}[]", inner["items"])


def _type(found: dict[str, Any]) -> str:
    if found.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = str(found.get("type", "any"))
    if kind == "array":
        return f"list of {_type(found.get('items') or {})}"
    return "map" if kind == "object" and "additionalProperties" in found else kind


def _what(found: dict[str, Any]) -> str:
    parts = [" ".join(str(found.get("description", "")).split())]
    if "enum" in found:
        parts.append("One of " + ", ".join(f"`{value}`" for value in found["enum"] if value) + ".")
    if "default" in found and found["default"] not in ({}, ""):
        parts.append(f"Default `{found['default']}`.")
    bounds = [
        f"at least {found['minimum']}" if "minimum" in found else "",
        f"at most {found['maximum']}" if "maximum" in found else "",
    ]
    if any(bounds):
        parts.append(", ".join(bound for bound in bounds if bound).capitalize() + ".")
    return " ".join(part for part in parts if part).replace("|", "\\|")


# Labels


def labels() -> Iterator[str]:
    yield "# Labels, annotations, gates\n"
    yield "| key | what |"
    yield "| --- | --- |"
    for key, what in sorted(keys().items()):
        yield f"| `{key}` | {what} |"


def keys() -> dict[str, str]:
    """Every key of ours and what it means, from the constants and the texts below them."""
    found: dict[str, str] = {}
    source = ROOT / "src" / "gangline"
    for file in sorted(source.rglob("*.py")):
        if file.is_relative_to(source / "cli"):
            continue  # has some of them a second time, because it must start fast
        text = file.read_text()
        if not any(start in text for start in OURS):
            continue
        body = ast.parse(text).body
        for each, after in zip(body, [*body[1:], None], strict=True):
            key = _constant(each)
            if any(start in key for start in OURS) and not found.get(key):
                found[key] = " ".join(_text(after).split())
    return found


def _constant(each: ast.stmt) -> str:
    if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
        return each.value.value if "/" in each.value.value else ""
    return ""


def _text(each: ast.stmt | None) -> str:
    if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
        return each.value.value
    return ""


# Python


def python() -> Iterator[str]:
    yield "# The Python API\n"
    yield "The names below are public: see [versioning](../versioning.md). Everything else may change."
    for package in PACKAGES:
        yield f"\n## {package}"
        module = import_module(package)
        for name in module.__all__:
            yield from _entry(name, getattr(module, name))


def _entry(name: str, found: Any) -> Iterator[str]:
    yield f"\n### {name}\n"
    if inspect.isclass(found) or inspect.isfunction(found):
        yield f"```text\n{_signature(name, found)}\n```\n"
    text = _first(found)
    if text:
        yield text
    if inspect.isclass(found) and not issubclass(found, Exception):
        methods = [
            f"- `{_short(method, inner)}`: {_first(inner) or '…'}"
            for method, inner in _members(found).items()
            if inspect.isfunction(inner) and not method.startswith("_") and _first(inner)
        ]
        if methods:
            yield "\n" + "\n".join(methods)


def _members(found: type) -> dict[str, Any]:
    """Its own, and those of its parts: classes of the same package, in files of their own."""
    package = found.__module__.rpartition(".")[0]
    parts = [part for part in found.__mro__ if part is found or part.__module__.rpartition(".")[0] == package]
    members: dict[str, Any] = {}
    for name, inner in (each for part in parts for each in vars(part).items()):
        members.setdefault(name, inner)
    return members


def _first(found: Any) -> str:
    """The first paragraph of what it says about itself."""
    text = inspect.getdoc(found) if (inspect.isclass(found) or inspect.isfunction(found)) else ""
    return " ".join((text or "").split("\n\n")[0].split())


def _signature(name: str, found: Any) -> str:
    try:
        written = str(inspect.signature(found))
    except (TypeError, ValueError):
        return name
    return "\n".join(textwrap.wrap(f"{name}{_clean(written)}", 100, subsequent_indent="    "))


def _short(name: str, found: Any) -> str:
    parameters = [str(each.name) for each in inspect.signature(found).parameters.values() if each.name != "self"]
    return f"{name}({', '.join(parameters)})"


def _clean(written: str) -> str:
    for start in (
        "gangline.api.kubeflow.training.",
        "gangline.api.meta.",
        "gangline.jobs.framework.",
        "collections.abc.",
        "typing.",
    ):
        written = written.replace(start, "")
    return re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"\1()", written)


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    for page, text in pages().items():
        (REFERENCE / page).write_text(text)
