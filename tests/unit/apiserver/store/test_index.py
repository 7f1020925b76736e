"""The sorted set of keys against a plain sorted list."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.apiserver.store.index import SortedKeys, prefix_range_end, sorted_keys_under

texts = st.text(alphabet="ab/\U0010ffff", max_size=4)


@given(
    start=st.sets(texts),
    steps=st.lists(texts, max_size=60),
    prefix=texts,
    after=texts,
    limit=st.integers(0, 5),
)
def test_agrees_with_a_sorted_list(start: set[str], steps: list[str], prefix: str, after: str, limit: int) -> None:
    keys, model = SortedKeys(start, chunk=2), set(start)
    for key in steps:  # a key is added, and removed when it comes again
        (keys.remove if key in model else keys.add)(key)
        model ^= {key}
    under = sorted(key for key in model if key.startswith(prefix))
    expected = [key for key in under if not after or key > after]
    page = expected[:limit] if limit else expected
    assert keys.keys_under(prefix, after, limit) == (page, len(expected) - len(page))
    assert keys.count(prefix) == len(under)
    assert keys.has(prefix) == bool(under)
    assert sorted_keys_under(sorted(model), prefix, after) == expected


def test_end_of_a_prefix_range_follows_everything_in_it() -> None:
    assert prefix_range_end("/pods/") == "/pods0"
    assert prefix_range_end("a\U0010ffff") == "b"
    assert prefix_range_end("") is None


def test_many_keys_in_any_order_stay_sorted() -> None:
    keys = SortedKeys()
    names = [f"{number * 7919 % 10_007:05d}" for number in range(10_007)]
    for name in names:
        keys.add(name)
    assert keys.keys_under("")[0] == sorted(names)
    for name in names[::2]:
        keys.remove(name)
    assert keys.keys_under("")[0] == sorted(names[1::2])
