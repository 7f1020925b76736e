"""Stories and histories of jobs for hypothesis, which must be installed: `pip install hypothesis`.

@given(stories())
def test_any_story(story):
    assert_converges(Relay(), JOB, story=story)
"""

from collections.abc import Sequence

from hypothesis import strategies as st

from gangline.testing.converge import Step
from gangline.testing.faults import Fault
from gangline.testing.happenings import (
    EDITS,
    POD_MOVES,
    STEADY_EDITS,
    STORY_FAULTS,
    WAIT_SECONDS,
    AllStart,
    Collects,
    Crashes,
    Delivers,
    Happening,
    History,
    Kubelets,
    Looks,
    Passes,
    Relists,
    Troubles,
    Users,
    Waits,
)

INDEX_STRATEGY = st.integers(0, 5)
KUBELET_STRATEGY: st.SearchStrategy[Happening] = st.one_of(
    st.just(AllStart()), st.builds(Kubelets, st.sampled_from(POD_MOVES), INDEX_STRATEGY)
)
LOOK_STRATEGY: st.SearchStrategy[Happening] = st.just(Looks())
WAIT_STRATEGY: st.SearchStrategy[Happening] = st.builds(Waits, st.sampled_from(WAIT_SECONDS))
FAULT_KIND_STRATEGY = st.sampled_from(STORY_FAULTS)
# Not `builds`, which would also draw a method and a path.
FAULT_STRATEGY = st.tuples(st.integers(0, 5), FAULT_KIND_STRATEGY).map(lambda drawn: Fault(*drawn))


def stories(edits: Sequence[str] = STEADY_EDITS) -> st.SearchStrategy[list[Step]]:
    """Stories for `assert_converges`: one happening at a time, with faults while the operator reacts to it."""
    users = st.builds(Users, st.sampled_from(list(edits)), INDEX_STRATEGY) if edits else WAIT_STRATEGY
    steps = st.builds(
        Step,
        st.one_of(KUBELET_STRATEGY, KUBELET_STRATEGY, users, WAIT_STRATEGY),
        st.lists(FAULT_STRATEGY, max_size=2).map(tuple),
        st.lists(st.integers(0, 5), max_size=6).map(tuple),
    )
    return st.lists(steps, min_size=8, max_size=20)


def histories(edits: Sequence[str] = ("resume", *EDITS)) -> st.SearchStrategy[History]:
    """Histories for `assert_survives`: any happenings in any order."""
    users = st.builds(Users, st.sampled_from(list(edits)), INDEX_STRATEGY) if edits else WAIT_STRATEGY
    anything = st.one_of(
        LOOK_STRATEGY,
        LOOK_STRATEGY,
        LOOK_STRATEGY,
        KUBELET_STRATEGY,
        KUBELET_STRATEGY,
        KUBELET_STRATEGY,
        users,
        st.builds(Delivers, INDEX_STRATEGY, st.sampled_from([1, 2, None])),
        st.builds(Relists, INDEX_STRATEGY),
        st.just(Passes()),
        st.just(Crashes()),
        st.builds(Troubles, st.integers(0, 6), FAULT_KIND_STRATEGY),
        st.builds(Troubles, st.integers(0, 6), st.just(422)),
        WAIT_STRATEGY,
        st.just(Collects()),
    )
    # Most jobs run before anything else happens to them.
    beginnings: st.SearchStrategy[History] = st.sampled_from([[], *3 * [[Looks(), AllStart(), Looks()]]])
    return st.builds(
        lambda beginning, rest: [*beginning, *rest], beginnings, st.lists(anything, min_size=15, max_size=40)
    )
