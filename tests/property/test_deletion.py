"""Deletions of namespaces, CRDs and owners, interleaved with everything else and with restarts, leave nothing behind."""

import pytest

from support.property.deletion_histories import play

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("seed", range(60))
def test_a_history_of_creations_and_deletions_ends_as_it_must(seed: int) -> None:
    history = play(seed)
    assert not history.problems, "\n".join([*history.log, *history.problems])


@pytest.mark.parametrize("seed", [353])
def test_a_deletion_that_a_restart_interrupted_is_finished(seed: int) -> None:
    """A pod is marked in one commit and removed in the next one; the server ended in between."""
    assert not play(seed).problems
