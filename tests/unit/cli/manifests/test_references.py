"""Objects that pods refer to, and that a run does not have."""

import pytest

from gangline.api.codec.documents import documents
from gangline.api.meta import JSON
from gangline.cli.manifests.references import CLAIM, CONFIG_MAP, SECRET, Reference, RunObjects, pod_references

SPEC: JSON = {
    "initContainers": [{"name": "a", "envFrom": [{"configMapRef": {"name": "init"}}]}],
    "containers": [
        {
            "name": "b",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "b"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "maybe", "key": "c", "optional": True}}},
            ],
        }
    ],
    "volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "w", "secret": {"secretName": "ssh", "items": [{"key": "id", "path": "id"}]}},
        {"name": "x", "configMap": {"name": "maybe", "optional": True}},
        {"name": "y", "projected": {"sources": [{"configMap": {"name": "both"}}, {"serviceAccountToken": {}}]}},
        {"name": "z", "emptyDir": {}},
    ],
}
FILE = """\
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {b: x}
data: {c: eA==}
"""


def test_a_pod_needs_every_object_that_is_not_optional() -> None:
    assert [(reference.kind, reference.name, reference.keys) for reference in pod_references(SPEC)] == [
        (CONFIG_MAP, "init", ()),
        (SECRET, "keys", ("b",)),
        (CLAIM, "data", ()),
        (SECRET, "ssh", ("id",)),
        (CONFIG_MAP, "both", ()),
    ]


def test_a_reference_knows_its_place() -> None:
    paths = {reference.name: reference.path for reference in pod_references(SPEC)}
    assert paths["keys"] == ("containers", 0, "env", 1, "valueFrom", "secretKeyRef", "name")
    assert paths["both"] == ("volumes", 3, "projected", "sources", 0, "configMap", "name")


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        (Reference((), SECRET, "keys", ("b", "c")), ""),
        (Reference((), CONFIG_MAP, "kube-root-ca.crt", ("ca.crt",)), ""),
        (Reference((), SECRET, "keys", ("d",)), 'Secret "keys" has no key "d"; it has: b, c'),
    ],
)
def test_what_is_in_the_files_of_a_run_is_there(reference: Reference, problem: str) -> None:
    assert RunObjects(documents(FILE)).problem(reference) == problem


def test_what_is_missing_is_shown_as_a_document_to_add() -> None:
    text = RunObjects(documents(FILE)).problem(Reference((), SECRET, "wandb", ("token",)))
    (sample,) = documents(text.partition("add it to the file:\n       ---\n")[2].replace("       ", ""))
    assert sample.body == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "wandb"},
        "stringData": {"token": "value"},
    }
