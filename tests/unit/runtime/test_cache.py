import pytest

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.runtime.cache import Cache, key_of
from gangline.testing.builders import make_pod


def pod(name: str, node: str = "", **labels: str) -> Pod:
    return make_pod(name, namespace="n", labels=labels, node=node)


def by_node(found: Pod) -> tuple[str, ...]:
    return (found.spec.node_name,) if found.spec.node_name else ()


def by_label(found: Pod) -> list[tuple[str, str]]:
    return list(found.metadata.labels.items())


def names(found: tuple[Pod, ...]) -> list[str]:
    return [one.metadata.name for one in found]


def test_key_of_struct_and_json_are_the_same() -> None:
    assert key_of(pod("a")) == key_of({"metadata": {"name": "a", "namespace": "n"}}) == Key("n", "a")
    assert key_of({"metadata": {"name": "node"}}) == Key("", "node")


def test_put_gives_what_it_replaces() -> None:
    cache: Cache[Pod] = Cache()
    first, second = pod("a", "x"), pod("a", "y")
    assert cache.put(first) is None
    assert cache.put(second) is first
    assert cache.get(Key("n", "a")) is second
    assert len(cache) == 1


def test_drop_gives_what_was_there_and_may_be_repeated() -> None:
    cache: Cache[Pod] = Cache({"node": by_node})
    found = pod("a", "x")
    cache.put(found)
    assert cache.drop(Key("n", "a")) is found
    assert cache.drop(Key("n", "a")) is None
    assert Key("n", "a") not in cache
    assert cache.by_index("node", "x") == ()


def test_object_is_found_under_every_value_of_an_index() -> None:
    cache = Cache({"node": by_node, "label": by_label})
    cache.put(pod("a", "x", team="red", tier="1"))
    cache.put(pod("b", "x", team="red"))
    assert names(cache.by_index("node", "x")) == ["a", "b"]
    assert names(cache.by_index("label", ("team", "red"))) == ["a", "b"]
    assert names(cache.by_index("label", ("tier", "1"))) == ["a"]
    assert cache.by_index("label", ("tier", "2")) == ()


def test_update_moves_between_values() -> None:
    cache = Cache({"label": by_label})
    cache.put(pod("a", team="red", tier="1"))
    cache.put(pod("a", team="blue", tier="1"))
    assert cache.by_index("label", ("team", "red")) == ()
    assert names(cache.by_index("label", ("team", "blue"))) == ["a"]
    assert names(cache.by_index("label", ("tier", "1"))) == ["a"]
    cache.put(pod("a"))
    assert cache.by_index("label", ("tier", "1")) == ()


def test_update_keeps_its_place() -> None:
    cache = Cache({"node": by_node})
    for name in "abc":
        cache.put(pod(name, "x"))
    cache.put(pod("a", "x", changed="yes"))
    assert names(cache.by_index("node", "x")) == ["a", "b", "c"]
    assert names(tuple(cache)) == ["a", "b", "c"]


def test_value_given_twice_counts_once() -> None:
    cache: Cache[Pod] = Cache({"twice": lambda found: ("v", "v")})
    cache.put(pod("a"))
    assert names(cache.by_index("twice", "v")) == ["a"]
    cache.drop(Key("n", "a"))
    assert cache.by_index("twice", "v") == ()


def test_index_that_raises_leaves_the_cache_as_it_was() -> None:
    def picky(found: Pod) -> tuple[str, ...]:
        return (found.metadata.labels["team"],)

    cache = Cache({"node": by_node, "team": picky})
    good = pod("a", "x", team="red")
    cache.put(good)
    with pytest.raises(KeyError):
        cache.put(pod("a", "y"))
    assert cache.get(Key("n", "a")) is good
    assert cache.by_index("node", "x") == cache.by_index("team", "red") == (good,)
    assert cache.by_index("node", "y") == ()


def test_unknown_index_is_a_bug() -> None:
    with pytest.raises(KeyError):
        Cache[Pod]().by_index("nod", "x")


def test_cache_may_change_while_it_is_read() -> None:
    cache: Cache[Pod] = Cache()
    for name in "abc":
        cache.put(pod(name))
    for found in cache:
        cache.drop(found.metadata.key)
    assert len(cache) == 0
    assert cache.keys() == ()
