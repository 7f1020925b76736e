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
    MOVES,
    SECONDS,
    STEADY,
    WRONG,
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

PICKS = st.integers(0, 5)
KUBELETS: st.SearchStrategy[Happening] = st.one_of(
    st.just(AllStart()), st.builds(Kubelets, st.sampled_from(MOVES), PICKS)
)
LOOKS: st.SearchStrategy[Happening] = st.just(Looks())
WAITS: st.SearchStrategy[Happening] = st.builds(Waits, st.sampled_from(SECONDS))
WRONGS = st.sampled_from(WRONG)
# Not `builds`, which would make up a method and a path too.
FAULTS = st.tuples(st.integers(0, 5), WRONGS).map(lambda drawn: Fault(*drawn))


def stories(edits: Sequence[str] = STEADY) -> st.SearchStrategy[list[Step]]:
    """For `assert_converges`: one thing at a time, and what goes wrong while the operator sees to it."""
    users = st.builds(Users, st.sampled_from(list(edits)), PICKS) if edits else WAITS
    steps = st.builds(
        Step,
        st.one_of(KUBELETS, KUBELETS, users, WAITS),
        st.lists(FAULTS, max_size=2).map(tuple),
        st.lists(st.integers(0, 5), max_size=6).map(tuple),
    )
    return st.lists(steps, min_size=8, max_size=20)


def histories(edits: Sequence[str] = ("resume", *EDITS)) -> st.SearchStrategy[History]:
    """For `assert_survives`: anything, in any order."""
    users = st.builds(Users, st.sampled_from(list(edits)), PICKS) if edits else WAITS
    anything = st.one_of(
        LOOKS,
        LOOKS,
        LOOKS,
        KUBELETS,
        KUBELETS,
        KUBELETS,
        users,
        st.builds(Delivers, PICKS, st.sampled_from([1, 2, None])),
        st.builds(Relists, PICKS),
        st.just(Passes()),
        st.just(Crashes()),
        st.builds(Troubles, st.integers(0, 6), WRONGS),
        st.builds(Troubles, st.integers(0, 6), st.just(422)),
        WAITS,
        st.just(Collects()),
    )
    # Most jobs are running before anything else happens to them.
    begins: st.SearchStrategy[History] = st.sampled_from([[], *3 * [[Looks(), AllStart(), Looks()]]])
    return st.builds(
        lambda first, goes_on: [*first, *goes_on], begins, st.lists(anything, min_size=15, max_size=40)
    )
