"""Stories and histories of jobs for hypothesis, which must be installed: `pip install hypothesis`.

@given(stories())
def test_any_story(story):
    assert_converges(Relay(), JOB, story=story)
"""

from collections.abc import Sequence

from hypothesis import strategies as st

from gangline.testing import happenings
from gangline.testing.converge import Step
from gangline.testing.faults import Fault

INDEX_STRATEGY = st.integers(0, 5)
KUBELET_STRATEGY: st.SearchStrategy[happenings.Happening] = st.one_of(
    st.just(happenings.AllStart()),
    st.builds(happenings.Kubelets, st.sampled_from(happenings.POD_MOVES), INDEX_STRATEGY),
)
LOOK_STRATEGY: st.SearchStrategy[happenings.Happening] = st.just(happenings.Looks())
WAIT_STRATEGY: st.SearchStrategy[happenings.Happening] = st.builds(
    happenings.Waits, st.sampled_from(happenings.WAIT_SECONDS)
)
FAULT_KIND_STRATEGY = st.sampled_from(happenings.STORY_FAULTS)
# Not `builds`, which would also draw a method and a path.
FAULT_STRATEGY = st.tuples(st.integers(0, 5), FAULT_KIND_STRATEGY).map(lambda drawn: Fault(*drawn))


def stories(edits: Sequence[str] = happenings.STEADY_EDITS) -> st.SearchStrategy[list[Step]]:
    """Stories for `assert_converges`: one happening at a time, with faults while the operator reacts to it."""
    users = st.builds(happenings.Users, st.sampled_from(list(edits)), INDEX_STRATEGY) if edits else WAIT_STRATEGY
    steps = st.builds(
        Step,
        st.one_of(KUBELET_STRATEGY, KUBELET_STRATEGY, users, WAIT_STRATEGY),
        st.lists(FAULT_STRATEGY, max_size=2).map(tuple),
        st.lists(st.integers(0, 5), max_size=6).map(tuple),
    )
    return st.lists(steps, min_size=8, max_size=20)


def histories(edits: Sequence[str] = ("resume", *happenings.EDITS)) -> st.SearchStrategy[happenings.History]:
    """Histories for `assert_survives`: any happenings in any order."""
    users = st.builds(happenings.Users, st.sampled_from(list(edits)), INDEX_STRATEGY) if edits else WAIT_STRATEGY
    anything = st.one_of(
        LOOK_STRATEGY,
        LOOK_STRATEGY,
        LOOK_STRATEGY,
        KUBELET_STRATEGY,
        KUBELET_STRATEGY,
        KUBELET_STRATEGY,
        users,
        st.builds(happenings.Delivers, INDEX_STRATEGY, st.sampled_from([1, 2, None])),
        st.builds(happenings.Relists, INDEX_STRATEGY),
        st.just(happenings.Passes()),
        st.just(happenings.Crashes()),
        st.builds(happenings.Troubles, st.integers(0, 6), FAULT_KIND_STRATEGY),
        st.builds(happenings.Troubles, st.integers(0, 6), st.just(422)),
        WAIT_STRATEGY,
        st.just(happenings.Collects()),
    )
    # Most jobs run before anything else happens to them.
    beginnings: st.SearchStrategy[happenings.History] = st.sampled_from(
        [[], *3 * [[happenings.Looks(), happenings.AllStart(), happenings.Looks()]]]
    )
    return st.builds(
        lambda beginning, rest: [*beginning, *rest], beginnings, st.lists(anything, min_size=15, max_size=40)
    )
