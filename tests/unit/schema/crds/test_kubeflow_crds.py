"""Our definitions compared with those of the Kubeflow training operator 1.9: no field of its jobs is lost."""

from collections.abc import Iterator
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.schema.crds.job_crds import crd
from support.requirements import skip_or_fail
from support.servers.real import cache_dir
from support.yaml_files import load_yaml

V1 = cache_dir().parents[1] / "training-operator-1.9.0" / "crds"  # as hack/peer.sh has it
every_kind = pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)


def v1_crd(kind: JobKind) -> JSON:
    file = V1 / f"kubeflow.org_{kind.plural}.yaml"
    if not file.is_file():
        skip_or_fail("definitions of the training operator 1.9 not found: run hack/peer.sh")
    result: JSON = load_yaml(file.read_text())
    return result


def walk(part: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    yield path, part
    for name, inner in (part.get("properties") or {}).items():
        yield from walk(inner, f"{path}.{name}")
    for name, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(part.get(name), dict):
            yield from walk(part[name], f"{path}{mark}")


def fields(definition: JSON) -> dict[str, JSON]:
    return dict(walk(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))


@every_kind
def test_names_scope_columns_and_scale_are_theirs(kind: JobKind) -> None:
    our_crd, their_crd = crd(kind)["spec"], v1_crd(kind)["spec"]
    assert our_crd["names"].pop("categories") == ["trainingjobs"]  # ours: by it custom kinds are found, too
    assert (our_crd["names"], our_crd["scope"], our_crd["group"]) == (
        their_crd["names"],
        their_crd["scope"],
        their_crd["group"],
    )
    ours, (v1,) = our_crd["versions"][0], their_crd["versions"]
    assert ours["subresources"] == v1["subresources"]
    assert ours["additionalPrinterColumns"][:2] == v1["additionalPrinterColumns"]


def said(part: JSON) -> tuple[Any, ...]:
    # Not the map type: their generator calls some references atomic that are not atomic in a pod.
    names = ("type", "format", "x-kubernetes-int-or-string", "x-kubernetes-list-type", "x-kubernetes-list-map-keys")
    return tuple(part.get(name) for name in names)


@every_kind
def test_every_field_of_theirs_is_in_ours_with_its_type(kind: JobKind) -> None:
    our_crd, their_crd = fields(crd(kind)), fields(v1_crd(kind))
    different = {
        path: (said(part), said(our_crd[path]) if path in our_crd else "missing")
        for path, part in their_crd.items()
        if path not in our_crd or said(our_crd[path]) != said(part)
    }
    assert different == {}


@every_kind
def test_nothing_more_is_required_but_what_their_webhook_asks_for(kind: JobKind) -> None:
    our_crd, their_crd = fields(crd(kind)), fields(v1_crd(kind))
    replica = f".spec.{kind.replicas}{{}}"
    more = {
        path: sorted(set(part.get("required", ())) - set(their_crd[path].get("required", ())))
        for path, part in our_crd.items()
        if path in their_crd
    }
    assert {path: names for path, names in more.items() if names} == {
        replica: ["template"],
        f"{replica}.template": ["spec"],
    }
