"""What the drop-in test takes for the same, and that its data is whole."""

import pytest

from support.cases import kubeflow
from support.cases.kubeflow import Difference, ExpectedDifference
from support.cases.kubeflow_play import pod_status


def places(theirs: object, ours: object) -> list[str]:
    return [place.place for place in kubeflow.differences("x", theirs, ours)]


def test_every_place_that_differs_is_named() -> None:
    theirs = {"job": {"started": True, "conditions": [{"type": "Created"}]}, "objects": {"pods/a": {}}}
    ours = {"job": {"started": False, "conditions": [{"type": "Running"}]}, "objects": {}}
    assert places([theirs], [ours]) == [
        "x[0].job.conditions[0].type",
        "x[0].job.started",
        "x[0].objects.pods/a",
    ]


def test_lists_of_different_lengths_differ_as_a_whole() -> None:
    assert places({"a": [1]}, {"a": [1, 2]}) == ["x.a"]


@pytest.mark.parametrize("soft", ["message", "events", "selector"])
def test_what_is_for_people_is_not_compared(soft: str) -> None:
    assert places({soft: "one"}, {soft: "other"}) == []


def test_text_that_is_json_is_compared_as_what_it_says() -> None:
    assert places({"value": '{"a": 1, "b": [2]}'}, {"value": '{"b":[2],"a":1}'}) == []
    assert places({"value": '{"a": 1}'}, {"value": '{"a": 2}'}) == ["x.value"]
    assert places({"value": "{not json"}, {"value": "{nor this"}) == ["x.value"]


def test_order_counts_but_for_the_ports_of_services() -> None:
    ports = [{"name": "b", "port": 2}, {"name": "a", "port": 1}]
    service = {"services/one": {"spec": {"ports": ports}}}
    turned = {"services/one": {"spec": {"ports": ports[::-1]}}}
    assert places(service, turned) == []
    assert places({"pods/one": {"ports": ports}}, {"pods/one": {"ports": ports[::-1]}}) != []


def test_known_differences_are_passed_over_with_all_below_them() -> None:
    found = [Difference("a[1].job.active", 1, 2), Difference("a[2].job.active", 1, 2)]
    assert kubeflow.unexpected_differences(found, [ExpectedDifference("a[1].job", "D29: as it should be")]) == found[1:]


def test_a_shot_is_waited_for_until_it_differs_where_that_is_meant_and_nowhere_else() -> None:
    here, there = Difference("a[1].job.active", 1, 2), Difference("a[1].objects", {}, None)
    meant = [
        ExpectedDifference("a[1].job", "D29: as it should be"),
        ExpectedDifference("a[2]", "D3: of another shot"),
        ExpectedDifference("b", "D8"),
    ]
    assert kubeflow.is_settled("a[1]", [here], meant)
    assert not kubeflow.is_settled("a[1]", [], meant)
    assert not kubeflow.is_settled("a[1]", [here, there], meant)
    assert kubeflow.is_settled("a[0]", [], meant)


def test_an_evicted_pod_says_nothing_of_its_containers() -> None:
    status = pod_status({"spec": {"containers": [{"name": "a", "image": "b"}]}}, "evicted", "now")
    assert (status["phase"], status["containerStatuses"]) == ("Failed", [])


@pytest.mark.parametrize("scenario", kubeflow.load_scenarios(), ids=lambda scenario: scenario.name)
def test_every_scenario_was_recorded_step_by_step(scenario: kubeflow.Scenario) -> None:
    shots = kubeflow.load_golden(scenario.name)
    assert len(shots) == len(scenario.steps) + 1
    assert not any("refused" in shot for shot in shots)


def test_there_is_no_recording_without_a_scenario() -> None:
    recorded = {file.name.removesuffix(".json.xz") for file in (kubeflow.DATA_FOLDER / "golden").iterdir()}
    assert recorded == {scenario.name for scenario in kubeflow.load_scenarios()}
