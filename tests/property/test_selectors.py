"""Selectors against a model that is too simple to be wrong."""

from hypothesis import given
from hypothesis import strategies as st

from gangline.api.selectable_fields import custom_selectable_fields
from gangline.api.selectors import FieldSelector, LabelSelector, Requirement, SelectorOperator

KEYS = st.sampled_from(["a", "b", "in", "notin", "example.com/c"])
VALUES = st.sampled_from(["", "x", "y", "in", "1", "20", "a-b_c.d"])
LABELS = st.dictionaries(KEYS, VALUES)
SETS = st.lists(VALUES, min_size=1, max_size=3, unique=True).map(lambda found: tuple(sorted(found)))
REQUIREMENTS = st.one_of(
    st.builds(
        Requirement,
        KEYS,
        st.sampled_from([SelectorOperator.EQUALS, SelectorOperator.DOUBLE_EQUALS, SelectorOperator.NOT_EQUALS]),
        VALUES.map(lambda value: (value,)),
    ),
    st.builds(Requirement, KEYS, st.sampled_from([SelectorOperator.IN, SelectorOperator.NOT_IN]), SETS),
    st.builds(Requirement, KEYS, st.sampled_from([SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST])),
)
SELECTORS = st.lists(REQUIREMENTS, max_size=4).map(LabelSelector)


def fulfilled(term: Requirement, labels: dict[str, str]) -> bool:
    has = term.key in labels
    listed = has and labels[term.key] in term.values
    match term.operator:
        case SelectorOperator.EXISTS:
            return has
        case SelectorOperator.DOES_NOT_EXIST:
            return not has
        case SelectorOperator.NOT_EQUALS | SelectorOperator.NOT_IN:
            return not listed
        case _:
            return listed


@given(SELECTORS)
def test_label_selector_survives_being_written_and_read(selector: LabelSelector) -> None:
    assert LabelSelector.parse(str(selector)) == selector


@given(SELECTORS, LABELS)
def test_labels_match_when_every_term_holds(selector: LabelSelector, labels: dict[str, str]) -> None:
    assert selector.matches(labels) is all(fulfilled(term, labels) for term in selector.requirements)


@given(SELECTORS, LABELS, KEYS)
def test_exact_value_is_one_that_every_match_has(selector: LabelSelector, labels: dict[str, str], key: str) -> None:
    exact = selector.exact_value(key)
    if exact is not None and selector.matches(labels):
        assert labels[key] == exact


@given(st.text(), st.text(), st.booleans())
def test_field_values_of_any_text_survive(value: str, other: str, negated: bool) -> None:
    fields = custom_selectable_fields([".spec.x"])
    escaped = value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
    selector = FieldSelector.parse(f"spec.x{'!=' if negated else '='}{escaped}", fields)
    assert str(FieldSelector.parse(str(selector), fields)) == str(selector)
    assert selector.matches({"spec": {"x": other}}) is ((other == value) is not negated)
