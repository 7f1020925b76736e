"""The chart and the kustomize files are what the code says."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline import __version__
from gangline.base.errors import InputError
from gangline.install.evaluate import Evaluation
from gangline.install.nodes import Either, Named, Node, Note, Text, Value, When
from gangline.install.template_text import definitions_text, documents_text, plain_text
from gangline.install.value_fields import merged_values, value_fields
from gangline.install.values import DEFAULT_RELEASE, InstallValues

ROOT = Path(__file__).parents[3]
SCRIPT: dict[str, Any] = runpy.run_path(str(ROOT / "hack" / "manifests.py"))
CHART = ROOT / "charts" / "gangline"


def test_files_are_what_the_script_writes() -> None:
    made = SCRIPT["files"]()
    found = {path: (ROOT / path).read_text() for path in SCRIPT["existing"]()}
    assert found == made, "run hack/manifests.py"


def test_every_value_is_described() -> None:
    assert [field.path for field in value_fields().values() if not field.description] == []


def test_values_yaml_has_the_defaults() -> None:
    assert merged_values(yaml.safe_load((CHART / "values.yaml").read_text())) == InstallValues()


def test_schema_allows_no_other_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert "$ref" not in json.dumps(schema)
    for field in value_fields().values():
        place = schema
        for key in field.path.split("."):
            assert place["additionalProperties"] is False, field.path
            place = place["properties"][key]
        assert place["description"] == field.description


def test_versions_agree() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicas": 2}, "Object contains unknown field `replicas`"),
        ({"image": {"tag": 1}}, r"Expected `str`, got `int` - at `\$.image.tag`"),
        ({"image": {"pullPolicy": "Often"}}, r"Invalid enum value 'Often' - at `\$.image.pullPolicy`"),
        ({"replicaCount": -1}, r"Expected `int` >= 0 - at `\$.replicaCount`"),
    ],
)
def test_a_bad_value_gets_one_line_with_its_path(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        merged_values(changes)


def test_values_come_on_top_of_the_defaults() -> None:
    values = merged_values({"resources": {"limits": {"cpu": "2"}}, "podSecurityContext": {"runAsUser": None}})
    assert values.resources["limits"] == {"memory": "1Gi", "cpu": "2"}
    assert "runAsUser" not in values.pod_security_context
    assert merged_values({"resources": None}).resources == {}


def test_a_patch_adds_to_the_end_of_a_list_and_replaces_the_rest() -> None:
    before = {"a": [1, 2], "b": {"c": 1, "d~/": 2}, "e": [{"f": 1}]}
    after = {"a": [1, 2, 3], "b": {"c": 2}, "e": [{"f": 2}], "g": 1}
    operations = sorted(SCRIPT["json_patch"](before, after, ""), key=lambda one: one["path"])
    assert operations == [
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "replace", "path": "/b/c", "value": 2},
        {"op": "remove", "path": "/b/d~0~1"},
        {"op": "replace", "path": "/e/0/f", "value": 2},
        {"op": "add", "path": "/g", "value": 1},
    ]


def test_text_of_a_tree() -> None:
    name = Named("x.name", Text((Value("nameOverride"), "-x")))
    tree: Node = {
        "name": name,
        "count": When(Value("rbac.create"), Note("Why.", Value("replicaCount"))),
        "level": Either(Value("image.tag"), Value("image.tag"), "none"),
        "texts": ["true", "a: b", "line 1\nline 2\n", ""],
    }
    assert documents_text([tree]).splitlines() == [
        "---",
        'name: {{ include "x.name" . | quote }}',
        "{{- if .Values.rbac.create }}",
        "# Why.",
        "count: {{ .Values.replicaCount | int }}",
        "{{- end }}",
        'level: {{ default "none" .Values.image.tag | quote }}',
        "texts:",
        '  - "true"',
        '  - "a: b"',
        "  - |",
        "    line 1",
        "    line 2",
        '  - ""',
    ]
    assert definitions_text([name]).splitlines() == [
        '{{- define "x.name" -}}',
        '{{- printf "%s-x" .Values.nameOverride -}}',
        "{{- end -}}",
    ]
    evaluation = Evaluation(InstallValues(name_override="n"), DEFAULT_RELEASE, notes=True)
    assert yaml.safe_load(plain_text(evaluation.objects([tree]))) == {
        "name": "n-x",
        "count": 2,
        "level": "none",
        "texts": ["true", "a: b", "line 1\nline 2\n", ""],
    }


def test_text_that_helm_would_take_for_a_template_is_refused() -> None:
    with pytest.raises(TypeError, match="take this for a template"):
        documents_text([{"a": "{{ x }}"}])
    assert yaml.safe_load(plain_text([{"a": "{{ x }}"}])) == {"a": "{{ x }}"}
