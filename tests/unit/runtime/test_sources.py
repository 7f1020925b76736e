from collections.abc import Iterable

import pytest

from gangline.api.core import Pod, PodSpec
from gangline.api.meta import JSON, Key, ObjectMeta, OwnerReference
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.sources import InformerSource, own_key, owner_key
from gangline.testing.clock import FakeClock
from support.servers.flaky_reader import ModelServer


def pod(name: str, *, node: str = "", owners: tuple[OwnerReference, ...] = ()) -> Pod:
    return Pod(metadata=ObjectMeta(namespace="n", name=name, owner_references=owners), spec=PodSpec(node_name=node))


def job(name: str, *, controller: bool = True) -> OwnerReference:
    return OwnerReference(api_version="kubeflow.org/v1", kind="TFJob", name=name, controller=controller)


def node(found: Pod) -> Iterable[Key]:
    return (Key("", found.spec.node_name),) if found.spec.node_name else ()


@pytest.fixture
def informer() -> Informer[Pod]:
    return Informer(ModelServer(), Pod, clock=FakeClock())


def test_what_is_there_is_added_on_attaching_and_nothing_after_detaching(informer: Informer[Pod]) -> None:
    informer.cache.put(pod("a"))
    added: list[Key] = []
    with InformerSource(informer, own_key).attach(added.append):
        assert added == [Key("n", "a")]
        informer._notify(Delta(None, pod("b")))
    informer._notify(Delta(None, pod("c")))
    assert added == [Key("n", "a"), Key("n", "b")]


def test_old_and_new_object_are_asked_and_a_key_is_added_once(informer: Informer[Pod]) -> None:
    added: list[Key] = []
    with InformerSource(informer, node).attach(added.append):
        informer._notify(Delta(pod("a", node="x"), pod("a", node="y")))
        informer._notify(Delta(pod("a", node="y"), pod("a", node="y")))
        informer._notify(Delta(pod("a", node="y"), None))
    assert added == [Key("", "x"), Key("", "y"), Key("", "y"), Key("", "y")]


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ((), []),
        ((job("j"),), [Key("n", "j")]),
        ((job("j", controller=False),), []),
        ((job("other", controller=False), job("j")), [Key("n", "j")]),
        ((OwnerReference(kind="Other", name="j", controller=True),), []),
    ],
)
def test_controlling_owner_of_the_kind_is_found(owners: tuple[OwnerReference, ...], expected: list[Key]) -> None:
    assert list(owner_key("TFJob")(pod("a", owners=owners))) == expected


def test_owner_may_be_of_one_version_only() -> None:
    found = pod("a", owners=(job("j"),))
    assert list(owner_key("TFJob", "kubeflow.org/v1")(found)) == [Key("n", "j")]
    assert list(owner_key("TFJob", "kubeflow.org/v2")(found)) == []


def test_owner_may_be_in_no_namespace() -> None:
    assert list(owner_key("TFJob", namespaced=False)(pod("a", owners=(job("j"),)))) == [Key("", "j")]


def test_owner_of_plain_json_is_found() -> None:
    reference = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "name": "j", "controller": True}
    found: JSON = {"metadata": {"namespace": "n", "name": "a", "ownerReferences": [reference]}}
    assert list(owner_key("TFJob")(found)) == [Key("n", "j")]
    assert list(owner_key("TFJob")({"metadata": {"name": "a"}})) == []
