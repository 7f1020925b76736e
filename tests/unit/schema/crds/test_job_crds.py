"""The definitions of our job kinds: small, valid, complete, and the same as in the manifests."""

import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from gangline.api.kubeflow.kinds import JOB_APIS, MPIJOB, TRAINING_KINDS
from gangline.api.kubeflow.training import JobKind, JobStatus, RestartLedger
from gangline.api.meta import JSON
from gangline.apiserver.kinds.crd.validation import crd_problems
from gangline.schema.crds.descriptions import FIELD_DESCRIPTIONS
from gangline.schema.crds.job_crds import crd, crd_schema, crds

ROOT = Path(__file__).parents[4]
every_kind = pytest.mark.parametrize("kind", TRAINING_KINDS, ids=lambda kind: kind.kind)


def walk(part: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    """Every schema in a schema, with its path as a person would write it."""
    yield path, part
    for name, inner in (part.get("properties") or {}).items():
        yield from walk(inner, f"{path}.{name}")
    for name, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(part.get(name), dict):
            yield from walk(part[name], f"{path}{mark}")


def pod(kind: JobKind, *, described: bool = False) -> JSON:
    replicas = crd_schema(kind, described=described)["properties"]["spec"]["properties"][kind.replicas]
    result: JSON = replicas["additionalProperties"]["properties"]["template"]["properties"]["spec"]
    return result


@every_kind
def test_definition_is_small_enough_for_plain_apply(kind: JobKind) -> None:
    # kubectl keeps it in an annotation, and all annotations together have at most 256 KiB.
    assert len(msgspec.json.encode(crd(kind))) < 100_000 * len(crd(kind)["spec"]["versions"])
    assert len(msgspec.json.encode(crd(kind))) < 200_000


@every_kind
@pytest.mark.parametrize("described", [False, True], ids=["plain", "described"])
def test_server_finds_nothing_wrong(kind: JobKind, described: bool) -> None:
    definition = crd(kind, described=described)
    definition["status"] = {"storedVersions": ["v1"]}
    assert crd_problems({**definition, "spec": {**definition["spec"], "conversion": {"strategy": "None"}}}) == []


@every_kind
def test_descriptions_are_all_that_described_adds(kind: JobKind) -> None:
    def bare(part: Any) -> Any:
        if isinstance(part, list):
            return [bare(inner) for inner in part]
        if not isinstance(part, dict):
            return part
        # A field may be called description; its value is then a schema.
        return {
            name: bare(inner) for name, inner in part.items() if name != "description" or not isinstance(inner, str)
        }

    assert bare(crd(kind, described=True)) == crd(kind)


@every_kind
def test_names_and_columns_are_those_of_v1(kind: JobKind) -> None:
    definition = crd(kind)
    assert definition["metadata"]["name"] == f"{kind.plural}.kubeflow.org"
    names = definition["spec"]["names"]
    assert (names["singular"], names["listKind"]) == (kind.kind.lower(), f"{kind.kind}List")
    assert names.keys() == {"kind", "listKind", "plural", "singular", "categories"}
    version, *others = definition["spec"]["versions"]
    assert [one["name"] for one in others] == (["v2beta1"] if kind is MPIJOB else [])
    columns = {column["name"]: column["jsonPath"] for column in version["additionalPrinterColumns"]}
    expected = ["Age", "State"] if kind is MPIJOB else ["State", "Age"]
    assert [*columns][:2] == expected
    assert columns["State"] == ".status.conditions[-1:].type"
    assert {column.get("priority", 0) for column in version["additionalPrinterColumns"][2:]} == {1}


@every_kind
def test_only_scalable_kinds_can_be_scaled(kind: JobKind) -> None:
    subresources = crd(kind)["spec"]["versions"][0]["subresources"]
    assert ("scale" in subresources) == kind.scalable
    if kind.scalable:
        assert subresources["scale"] == {
            "specReplicasPath": f".spec.{kind.replicas}.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        }


@every_kind
def test_every_field_of_the_structs_is_in_the_schema(kind: JobKind) -> None:
    result = crd_schema(kind)["properties"]
    spec = inspect.type_info(kind.model.__annotations__["spec"])
    assert isinstance(spec, inspect.StructType)
    assert result["spec"]["properties"].keys() == {field.encode_name for field in spec.fields}
    assert result["status"]["properties"].keys() == {field.encode_name for field in msgspec.structs.fields(JobStatus)}


@every_kind
def test_only_the_operators_own_notes_and_recovery_are_free_of_a_schema(kind: JobKind) -> None:
    free = [path for path, part in walk(crd_schema(kind)) if part.get("x-kubernetes-preserve-unknown-fields")]
    assert free == [".spec.runPolicy.recovery", ".status.ledger"]


@pytest.mark.parametrize(
    ("path", "keys"),
    [
        (".containers", ["name"]),
        (".initContainers", ["name"]),
        (".containers[].env", ["name"]),
        (".containers[].ports", ["containerPort", "protocol"]),
        (".containers[].volumeMounts", ["mountPath"]),
        (".volumes", ["name"]),
        (".imagePullSecrets", ["name"]),
        (".topologySpreadConstraints", ["topologyKey", "whenUnsatisfiable"]),
    ],
)
def test_lists_of_a_pod_are_merged_as_in_a_pod(path: str, keys: list[str]) -> None:
    result = dict(walk(pod(MPIJOB)))[path]
    assert result["x-kubernetes-list-type"] == "map"
    assert result["x-kubernetes-list-map-keys"] == keys


def test_pod_has_no_defaults_but_those_of_list_keys() -> None:
    result = {path: part["default"] for path, part in walk(pod(MPIJOB)) if "default" in part}
    assert {path.rpartition(".")[2] for path in result} == {"protocol", "name"}
    assert result[".containers[].ports[].protocol"] == "TCP"
    assert result[".imagePullSecrets[].name"] == ""


def test_amounts_and_ports_of_a_pod_are_text_or_number() -> None:
    result = dict(walk(pod(MPIJOB)))
    for path in (".containers[].resources.limits{}", ".containers[].livenessProbe.httpGet.port"):
        assert result[path]["x-kubernetes-int-or-string"]
    assert "pattern" in result[".containers[].resources.limits{}"]


def test_template_keeps_the_metadata_that_v1_keeps() -> None:
    replicas = crd_schema(MPIJOB)["properties"]["spec"]["properties"]["mpiReplicaSpecs"]
    template = replicas["additionalProperties"]["properties"]["template"]["properties"]
    assert template["metadata"]["properties"].keys() == {"annotations", "finalizers", "labels", "name", "namespace"}


@every_kind
def test_every_field_of_ours_is_described(kind: JobKind) -> None:
    result = crd_schema(kind, described=True)["properties"]
    template = f".{kind.replicas}{{}}.template"
    silent = [
        path
        for part in (result["spec"], result["status"])
        for path, inner in walk(part)
        if "description" not in inner and path and not path.startswith(f"{template}.")
    ]
    # The values of maps and the elements of lists are described with what holds them.
    assert [path for path in silent if not path.endswith(("{}", "[]")) and ".metrics" not in path] == []


def test_words_are_about_fields_that_exist() -> None:
    for model, name in FIELD_DESCRIPTIONS:
        fields = inspect.type_info(model)
        assert isinstance(fields, inspect.StructType)
        assert name in {field.encode_name for field in fields.fields}
    assert all(model is not RestartLedger for model, _ in FIELD_DESCRIPTIONS)


def test_definitions_share_nothing_that_a_caller_could_spoil() -> None:
    before = msgspec.json.encode(crds())
    for definition in crds():
        for _, part in walk(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]):
            part["description"] = "spoiled"
    assert msgspec.json.encode(crds()) == before


def test_manifests_are_what_the_code_says() -> None:
    written = runpy.run_path(str(ROOT / "hack" / "crds.py"))
    files = {path.name: path.read_text() for path in (ROOT / "manifests" / "crds").iterdir()}
    assert files == written["files"](), "run hack/crds.py"


def test_manifests_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in (ROOT / "manifests" / "crds").glob("kubeflow.org_*")}
    assert len(sizes) == len(TRAINING_KINDS)
    assert sizes.pop("kubeflow.org_mpijobs.yaml") < 200_000  # it has two versions
    assert max(sizes.values()) < 100_000


@pytest.mark.parametrize("kind", JOB_APIS, ids=lambda kind: kind.scheme)
def test_every_rule_is_in_the_documentation(kind: JobKind) -> None:
    page = (ROOT / "docs" / "crds.md").read_text()
    *most, last = kind.types
    listed = f"{', '.join(most)} and {last}" if most else f"{last} only"
    for _, part in walk(crd_schema(kind)):
        for rule in part.get("x-kubernetes-validations", ()):
            message = rule["message"].replace("unknown replica type:", 'unknown replica type "Helper":')
            for name, printed in (
                (kind.replicas, "`<map>`"),
                (kind.kind, "`<Kind>`"),
                (listed, "`<types>`"),
                (f'"{kind.container}"', '"`<container>`"'),
                ("`<Kind>` needs a Launcher", "`<Kind>` needs a Master"),
                ("`<map>`.Launcher", "`<map>`.Master"),
                ("Master must", "Chief must") if kind.kind == "TFJob" else ("", ""),
            ):
                message = message.replace(name, printed) if name else message
            assert message in page
