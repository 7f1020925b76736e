"""Values from flags, as Helm reads them."""

from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.cli.install.flag_values import (
    ValueFlags,
    given_values,
    image_values,
    merged,
    missing_values,
    scope_namespaces,
    secret_problem,
    settled,
    split_assignments,
    values_text,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("logLevel=debug", {"logLevel": "debug"}),
        ("image.tag=0.1.0", {"image": {"tag": "0.1.0"}}),
        ("replicaCount=3,scheduler.enabled=true", {"replicaCount": 3, "scheduler": {"enabled": True}}),
        ("watchNamespaces={a,b}", {"watchNamespaces": ["a", "b"]}),
        ('nodeSelector={"disk": "ssd"}', {"nodeSelector": {"disk": "ssd"}}),
        ("tolerations[0].key=gpu", {"tolerations": [{"key": "gpu"}]}),
        (
            "tolerations[0].key=gpu,tolerations[0].operator=Exists",
            {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        ),
        ("nodeSelector.kubernetes\\.io/os=linux", {"nodeSelector": {"kubernetes.io/os": "linux"}}),
        (
            "extraArgs={--metrics-bind-address=:9090,--qps=5}",
            {"extraArgs": ["--metrics-bind-address=:9090", "--qps=5"]},
        ),
        ("podAnnotations.note=a\\,b", {"podAnnotations": {"note": "a,b"}}),
        # As in Helm, a number with leading zeros is text.
        ("image.tag=007", {"image": {"tag": "007"}}),
    ],
)
def test_assignments_are_those_of_helm(text: str, values: Any) -> None:
    assert given_values(ValueFlags(assignments=[text])) == values


def test_null_brings_the_default_back() -> None:
    flags = ValueFlags(
        files=[("values.yaml", {"logLevel": "debug", "image": {"tag": "1"}})], assignments=["logLevel=null"]
    )
    assert settled(given_values(flags)) == {"image": {"tag": "1"}}


def test_null_in_a_mapping_is_kept_because_it_removes_what_the_default_has() -> None:
    flags = ValueFlags(assignments=["podSecurityContext.runAsUser=null,resources.limits.memory=null"])
    values = {"podSecurityContext": {"runAsUser": None}, "resources": {"limits": {"memory": None}}}
    assert settled(given_values(flags)) == values
    assert settled(merged(values, {"podSecurityContext": None})) == {"resources": {"limits": {"memory": None}}}


def test_values_that_are_missing() -> None:
    carried = {"rbac": {"mpiJobs": True}, "kinds": ["TFJob"], "gangSchedulerName": "volcano"}
    given = {"rbac": {"userRoles": False}, "gangSchedulerName": ""}
    assert missing_values(carried, given) == {"rbac": {"mpiJobs": True}, "kinds": ["TFJob"]}
    assert missing_values(carried, {"rbac": {"mpiJobs": False}, "kinds": []}) == {"gangSchedulerName": "volcano"}


def test_later_flags_win_and_mappings_are_merged() -> None:
    files = [("a.yaml", {"image": {"registry": "one", "tag": "1"}}), ("b.yaml", {"image": {"tag": "2"}})]
    flags = ValueFlags(files=files, image="two.example/gangline:3", assignments=["image.tag=v4"])
    assert given_values(flags)["image"] == {
        "registry": "two.example",
        "repository": "gangline",
        "tag": "v4",
        "digest": "",
    }


def test_short_flags_are_values_too() -> None:
    values = given_values(ValueFlags(scope="namespace=a,b,a", components="scheduler"))
    assert values == {"watchNamespaces": ["a", "b"], "scheduler": {"enabled": True}}
    assert given_values(ValueFlags(scope="cluster")) == {"watchNamespaces": []}


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("gangline", ("", "gangline", "", "")),
        ("team/gangline:1", ("", "team/gangline", "1", "")),
        ("localhost/gangline:1", ("localhost", "gangline", "1", "")),
        ("r.example:5000/a/b:1@sha256:" + "0" * 64, ("r.example:5000", "a/b", "1", "sha256:" + "0" * 64)),
    ],
)
def test_the_parts_of_an_image(reference: str, image: tuple[str, ...]) -> None:
    assert tuple(image_values(reference).values()) == image


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (ValueFlags(scope="team-a"), "write --scope cluster, or --scope namespace=team-a,team-b"),
        (ValueFlags(scope="namespace="), "is no scope"),
        (ValueFlags(components="scheduler,dashbord"), 'no component "dashbord"'),
        (ValueFlags(assignments=["debug"]), "write NAME=VALUE"),
        (ValueFlags(files=[("values.yaml", ["a"])]), "values.yaml: expected a mapping"),  # type: ignore[list-item]
        (ValueFlags(image="a b"), "is no image"),
    ],
)
def test_mistakes_are_named_with_what_to_write(flags: ValueFlags, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        given_values(flags)


def test_scopes() -> None:
    assert scope_namespaces("cluster") == ()
    assert scope_namespaces("namespace= a , b") == ("a", "b")


def test_a_comma_in_brackets_does_not_divide() -> None:
    assert split_assignments("a=[1,2],b={x,y},c=1") == ["a=[1,2]", "b={x,y}", "c=1"]


def test_merging_changes_neither_side() -> None:
    base, over = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merged(base, over) == {"a": {"b": 1, "c": 2}}
    assert (base, over) == ({"a": {"b": 1}}, {"a": {"c": 2}})


def test_secrets_are_not_recorded() -> None:
    assert "extraObjects[0]: is a Secret" in secret_problem({"extraObjects": [{"kind": "Secret"}]})
    assert "API_TOKEN looks like a secret" in secret_problem({"extraEnv": [{"name": "API_TOKEN", "value": "x"}]})
    scheduler = {"scheduler": {"extraEnv": [{"name": "db_password", "value": "x"}]}}
    assert secret_problem(scheduler).startswith("scheduler.extraEnv[0]")
    reference = {"name": "API_TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
    assert secret_problem({"extraEnv": [reference, {"name": "LEVEL", "value": "1"}]}) == ""


def test_values_in_one_line() -> None:
    assert (
        values_text({"scheduler": {"enabled": True}, "logLevel": "debug"}) == 'scheduler.enabled=true, logLevel="debug"'
    )
    assert values_text({}) == "none"
