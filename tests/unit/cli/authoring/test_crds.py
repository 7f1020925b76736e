"""`gangline crds`."""

import json

import pytest

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.cli.main import run
from gangline.schema.crds.gang_crds import gang_crds
from gangline.schema.crds.job_crds import crds
from support.yaml_files import load_all_yaml


def test_all_definitions_are_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds"]) == 0
    printed = capsys.readouterr().out
    assert list(load_all_yaml(printed)) == [*crds(), *gang_crds()]
    assert "&id" not in printed


def test_described_definitions_are_printed_as_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--described", "--kind", "JAXJob"]) == 0
    (printed,) = load_all_yaml(capsys.readouterr().out)
    assert printed == crds(described=True)[-1]


def test_several_kinds_are_printed_as_a_json_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "-o", "json", "--kind", "tfjob", "--kind", "MPIJob"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["kind"] == "List"
    assert [item["spec"]["names"]["kind"] for item in printed["items"]] == ["TFJob", "MPIJob"]


def test_one_kind_is_printed_as_its_own_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "-o", "json", "--kind", "TFJob"]) == 0
    assert json.loads(capsys.readouterr().out) == crds()[0]


def test_groups_and_queues_are_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--kind", "podgroup", "--kind", "Queue"]) == 0
    assert tuple(load_all_yaml(capsys.readouterr().out)) == gang_crds()


def test_unknown_kind_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["crds", "--kind", "Job"]) == 1
    error = capsys.readouterr().err
    assert all(kind.kind.lower() in error for kind in TRAINING_KINDS)
