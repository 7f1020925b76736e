"""The plain YAML of kubeconfigs is read without PyYAML; all other YAML is left to PyYAML."""

from pathlib import Path

import pytest
import yaml

from gangline.kube.config.access import PlaneAccess
from gangline.kube.config.plain_yaml import NotPlain, parse_plain_yaml

OF_KUBECTL = """\
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: LS0tLS1CRUdJTi==
    extensions:
    - extension:
        provider: minikube.sigs.k8s.io
        version: "1.34"
      name: cluster_info
    server: https://kube.example:6443/base
  name: kind-kind
contexts:
- context: {cluster: none}
"""


def test_the_kubeconfig_of_kubectl_is_plain() -> None:
    text = OF_KUBECTL.replace(
        "- context: {cluster: none}\n", "- context:\n    cluster: c\n    user: 'u v'\n  name: a/b\n"
    )
    text += 'current-context: ""\nkind: Config\npreferences: {}\nusers: null\n'
    assert parse_plain_yaml(text.encode()) == yaml.safe_load(text)


def test_the_kubeconfig_of_a_plane_is_plain() -> None:
    config = PlaneAccess("https://127.0.0.1:6443", "a-token", Path("/a/ca.crt")).kubeconfig()
    assert parse_plain_yaml(yaml.safe_dump(config, sort_keys=False).encode()) == config


def test_lists_may_be_indented_or_not() -> None:
    assert parse_plain_yaml(b"a:\n- b\n- c\nd:\n  - e: f\n    g: h\n") == {"a": ["b", "c"], "d": [{"e": "f", "g": "h"}]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        OF_KUBECTL,
        "a: 1",
        "a: 0o17",
        "a: 2026-01-02",
        "a: yes",
        "a: Null",
        "yes: a",
        "a: ~",
        "a: .inf",
        "a: b # comment",
        "# comment\na: b",
        "a: b c",
        "a: b:",
        "a:b",
        "a: b\na: c",
        'a: "\\x41"',
        'a: "b',
        "a: 'it''s'",
        "a: |\n  b",
        "a: &b c",
        "a: *b",
        "a: !!str b",
        "a: b\n  c",
        "a:\n    b: c\n  d: e",
        "a:\n  b: c\n   d: e",
        "- a\nb: c",
        "- - a",
        "-   a: b",
        "-\n  a: b",
        "a: b\n---\nc: d",
        "a:\tb",
        "\ta: b",
        "a: b\r\nc: d",
        "a: é",
        "a: {b: c}",
        "a: [b]",
        "".join(f"{' ' * depth}a:\n" for depth in range(1000)),
    ],
    ids=lambda text: repr(text[-20:]),
)
def test_other_yaml_is_left_to_pyyaml(text: str) -> None:
    with pytest.raises(NotPlain):
        parse_plain_yaml(text.encode())
