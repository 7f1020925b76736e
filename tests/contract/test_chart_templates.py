"""The real Helm makes of the chart what gangline.install makes of the same values."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.install.objects import install_crds, install_objects
from gangline.install.value_fields import ValueField, merged_values, value_fields
from gangline.install.values import Release
from support.cluster.helm import CHART, Helm, by_identity, documents

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

SECOND = {
    "extraLabels": {"team": "ml"},
    "podLabels": {"team": "", "x": "y: z"},
    "image": {"registry": "r.example:5000", "digest": "sha256:" + "a" * 64, "pullSecrets": ["one", "two"]},
    "replicaCount": 3,
    "scheduler": {
        "enabled": True,
        "resources": {"limits": {"cpu": "1"}},
        "serviceAccount": {"create": False, "name": "mine"},
    },
    "networkPolicy": {"enabled": True, "metricsFrom": [{"namespaceSelector": {}}]},
    "metrics": {
        "serviceMonitor": {"enabled": True, "interval": "30s"},
        "prometheusRule": {"enabled": True},
        "secure": {"enabled": True, "certSecret": "metrics-tls"},
    },
    "mpiV2beta1": True,
    "mpiLauncherServiceAccount": "launcher",
    "gangSchedulerName": "mine",
    "grafanaDashboard": {"enabled": True, "annotations": {"folder": "ML"}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "1"}}],
}
THIRD = {
    "watchNamespaces": ["team-a", "team-b"],
    "crds": {"install": False},
    "namespace": {"create": True},
    "leaderElection": {"enabled": False},
    "replicaCount": 1,
    "metrics": {"enabled": False},
    "kinds": ["TFJob"],
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def expected(values: JSON, release: Release) -> dict[str, JSON]:
    converted = merged_values(values)
    made = [*install_crds(converted, release), *install_objects(converted, release)]
    named = by_identity(json.loads(msgspec.json.encode(made)))
    assert len(named) == len(made)
    return named


@pytest.mark.parametrize("values", [{}, SECOND, THIRD], ids=["default", "second", "third"])
@pytest.mark.parametrize("name", ["gangline", "my-gangline", "other"])
def test_chart_and_objects_are_the_same(helm: Helm, name: str, values: JSON) -> None:
    release = Release(name=name, namespace="ml", service="Helm")
    assert by_identity(helm.template(values, name, "ml")) == expected(values, release)


def test_lint_has_no_complaint(helm: Helm) -> None:
    for values in ({}, SECOND, THIRD):
        printed = helm("lint", "--strict", CHART, values=values)
        assert "WARNING" not in printed
        assert "ERROR" not in printed


# Texts that YAML or a template could take for something else.
TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "true",
            "no",
            "null",
            "1",
            "1e3",
            "0o7",
            "{{ .Values }}",
            "a: b",
            "- a",
            "# a",
            "'",
            '"',
            "\\n",
            "é",
            "&a",
            "*a",
            "%s",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12),
)
KEYS = st.sampled_from(
    [
        "team",
        "app.kubernetes.io/name",
        "app.kubernetes.io/component",
        "control-plane",
        "a.b/c",
        "prometheus.io/scrape",
        "yes",
        "1",
    ]
)
NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
TEXT_MAPS = st.dictionaries(KEYS, TEXTS, max_size=3)
ANY = st.recursive(
    st.one_of(st.booleans(), st.integers(-(2**31), 2**31), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(KEYS, inner, max_size=2)),
    max_leaves=4,
)
OBJECTS = st.dictionaries(KEYS, ANY, max_size=3)
EXTRA_OBJECTS = st.lists(
    st.builds(
        lambda name, data: {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"extra-{name}"},
            "data": data,
        },
        NAMES,
        TEXT_MAPS,
    ),
    max_size=2,
    unique_by=lambda one: str(one["metadata"]["name"]),
)
BY_PATH: dict[str, st.SearchStrategy[Any]] = {
    "nameOverride": st.one_of(st.just(""), NAMES),
    "fullnameOverride": st.one_of(st.just(""), NAMES),
    "extraObjects": EXTRA_OBJECTS,
    "namespace.podSecurity": st.sampled_from(["restricted", "baseline"]),
    "logLevel": st.sampled_from(["debug", "error"]),
    "image.repository": TEXTS.filter(bool),
    "image.digest": st.sampled_from(["", "sha256:" + "0" * 64]),
    "image.pullPolicy": st.sampled_from(["Always", "Never"]),
    "podDisruptionBudget.maxUnavailable": st.one_of(st.integers(0, 3), st.sampled_from(["50%", "1"])),
    "metrics.serviceMonitor.interval": st.sampled_from(["", "30s", "1m30s"]),
    "metrics.podMonitor.interval": st.sampled_from(["", "30s"]),
    "serviceAccount.name": st.one_of(st.just(""), NAMES),
    "mpiLauncherServiceAccount": st.one_of(st.just(""), NAMES),
    "metrics.secure.certSecret": st.one_of(st.just(""), NAMES),
    "progress.certSecret": st.one_of(st.just(""), NAMES),
    "notifications.secret": st.one_of(st.just(""), NAMES),
    "scheduler.serviceAccount.name": st.one_of(st.just(""), NAMES),
    "leaderElection.leaseName": st.one_of(st.just(""), NAMES),
    "kinds": st.lists(st.sampled_from(["TFJob", "MPIJob"]), max_size=2),
    "watchNamespaces": st.lists(NAMES, max_size=2, unique=True),
}
TEXT_LISTS = ("image.pullSecrets", "extraArgs", "scheduler.extraArgs", "dashboard.extraArgs", "dashboard.hosts")
FREE_MAPS = ("affinity", "resources", "podSecurityContext", "securityContext")


def strategy(field: ValueField) -> st.SearchStrategy[Any]:
    """Some values of a field."""
    if field.path in BY_PATH:
        return BY_PATH[field.path]
    if field.path in TEXT_LISTS:
        return st.lists(TEXTS, max_size=2)
    if field.type == "map":
        return OBJECTS if field.path.rpartition(".")[2] in FREE_MAPS else TEXT_MAPS
    plain: dict[str, st.SearchStrategy[Any]] = {
        "string": TEXTS,
        "integer": st.integers(0, 3),
        "boolean": st.booleans(),
        "list": st.lists(OBJECTS, max_size=2),
    }
    return plain[field.type]


@st.composite
def random_values(draw: st.DrawFn) -> JSON:
    """A few values that differ from the defaults, as a values.yaml has them."""
    fields = [field for field in value_fields().values() if field.type != "block"]
    values: JSON = {}
    for field in draw(st.lists(st.sampled_from(fields), max_size=12, unique_by=lambda field: field.path)):
        *blocks, name = field.path.split(".")
        inner = values
        for block in blocks:
            inner = inner.setdefault(block, {})
        inner[name] = draw(strategy(field))
    return values


@settings(
    max_examples=60,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(values=random_values(), name=NAMES.filter(lambda name: len(name) <= 53))
def test_random_values_make_the_same_objects_in_both(helm: Helm, values: JSON, name: str) -> None:
    release = Release(name=name, namespace="ml", service="Helm")
    values.setdefault("crds", {})["install"] = False
    assert outcome(lambda: helm.template(values, name, "ml")) == outcome(
        lambda: list(expected(values, release).values())
    )


def outcome(make: Callable[[], list[JSON]]) -> JSON | str:
    """Objects, or the message that says why there are none."""
    try:
        return by_identity(make())
    except InputError as error:
        return str(error)


def test_the_test_pod_can_be_pulled_and_placed_as_the_operator_is(helm: Helm) -> None:
    values = {
        "image": {"pullSecrets": ["registry"]},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "pool", "operator": "Exists"}],
    }
    printed = helm("template", "gangline", CHART, "--show-only", "templates/tests/metrics.yaml", values=values)
    spec = documents(printed)[0]["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert spec["nodeSelector"] == values["nodeSelector"]
    assert spec["tolerations"] == values["tolerations"]


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"watchNamespaces": ["team-a", "team-a"]}, "/watchNamespaces"),
        ({"watchNamespaces": [""]}, "/watchNamespaces/0"),
        ({"kinds": ["TFJobs"]}, "/kinds/0"),
        ({"leaderElection": {"leaseName": "My Lease"}}, "/leaderElection/leaseName"),
    ],
)
def test_values_with_which_the_operator_could_not_start_are_refused(helm: Helm, values: JSON, path: str) -> None:
    done = helm.run("template", "gangline", CHART, values=values)
    assert done.returncode != 0
    assert f"at '{path}'" in done.stderr
