"""The objects that a job would create."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gangline.cli.plan.command import plan
from gangline.cli.plan.diff import differences

EXAMPLES = Path(__file__).parents[4] / "examples"


def planned(*arguments: str) -> Any:
    return CliRunner().invoke(plan, arguments, standalone_mode=False)


def test_a_plan_is_a_tree_of_services_and_pods() -> None:
    done = planned(str(EXAMPLES / "tfjob-numpy.yaml"))
    assert done.return_value == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "tfjob.kubeflow.org/linear in default"
    assert "├── service/linear-worker-2  tfjob-port 2222" in lines
    assert "└── pod/linear-worker-2  restart Never" in lines
    assert sum("TF_CONFIG" in line for line in lines) == 4


def test_a_plan_as_yaml_is_what_would_be_sent() -> None:
    done = planned(str(EXAMPLES / "tfjob-numpy.yaml"), "-o", "yaml", "-n", "team")
    bodies = list(yaml.safe_load_all(done.stdout))
    assert [body["kind"] for body in bodies] == ["Service"] * 4 + ["Pod"] * 4
    assert {body["metadata"]["namespace"] for body in bodies} == {"team"}


def test_a_gang_has_a_pod_group_and_pods_of_its_scheduler(tmp_path: Path) -> None:
    plain = EXAMPLES / "tfjob-numpy.yaml"
    body = yaml.safe_load(plain.read_text())
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 3, "queue": "night"}}
    asks = tmp_path / "asks.yaml"
    asks.write_text(yaml.safe_dump(body))
    assert "podgroup/" not in planned(str(plain)).stdout
    assert "├── podgroup/linear  4 pods at once or none\n" in planned(str(plain), "--gang").stdout
    assert "├── podgroup/linear  3 pods at once or none, queue night\n" in planned(str(asks)).stdout
    for words in ((str(plain), "--gang"), (str(asks),)):
        group, *others = yaml.safe_load_all(planned(*words, "-o", "yaml").stdout)
        assert (group["apiVersion"], group["kind"]) == ("scheduling.gangline.dev/v1alpha1", "PodGroup")
        assert {each["spec"]["schedulerName"] for each in others if each["kind"] == "Pod"} == {"gangline"}


@pytest.mark.parametrize(
    "file",
    sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("frameworks/*.yaml")]),
    ids=lambda file: file.name,
)
def test_every_example_can_be_planned(file: Path) -> None:
    done = planned(str(file), "-o", "name")
    assert done.return_value == 0
    assert "pod/" in done.stdout


def test_a_job_with_mistakes_is_not_planned(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text((EXAMPLES / "tfjob-numpy.yaml").read_text().replace("replicas: 3", "replicas: three"))
    done = planned(str(bad))
    assert (done.return_value, done.stdout) == (1, "")
    assert "expected int" in done.stderr


def test_fields_that_a_server_adds_are_no_difference() -> None:
    planned = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    existing = {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {"containers": [{"name": "c", "imagePullPolicy": "Always"}], "nodeName": "n"},
        "status": {},
    }
    assert list(differences(planned, existing)) == []


def test_a_difference_names_the_field_and_both_values() -> None:
    planned = {"spec": {"containers": [{"image": "b", "args": ["x"]}]}}
    existing = {"spec": {"containers": [{"image": "a"}]}}
    assert list(differences(planned, existing)) == [
        'spec.containers[0].image: "a" -> "b"',
        'spec.containers[0].args: null -> ["x"]',
    ]


def test_a_difference_in_a_list_has_the_name_of_the_item() -> None:
    planned = {"env": [{"name": "A", "value": "1"}, {"name": "WORLD_SIZE", "value": "4"}], "args": ["a"]}
    existing = {"env": [{"name": "A", "value": "1"}, {"name": "WORLD_SIZE", "value": "3"}], "args": ["b"]}
    assert list(differences(planned, existing)) == ['env[WORLD_SIZE].value: "3" -> "4"', 'args[0]: "b" -> "a"']


def test_a_field_without_effect_is_a_warning_and_no_error(tmp_path: Path) -> None:
    body = yaml.safe_load((EXAMPLES / "tfjob-numpy.yaml").read_text())
    body["spec"]["runPolicy"] = {"restartScope": "Job"}
    for replicas in body["spec"]["tfReplicaSpecs"].values():
        replicas["restartPolicy"] = "Never"
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(body))
    done = planned(str(file), "-o", "name")
    assert done.return_value == 0
    line = next(number for number, text in enumerate(file.read_text().splitlines(), 1) if "restartScope" in text)
    assert f"warning: {file}:{line}: spec.runPolicy.restartScope: has no effect on failures of every" in done.stderr
    assert "warning" not in planned(str(EXAMPLES / "tfjob-numpy.yaml")).stderr
