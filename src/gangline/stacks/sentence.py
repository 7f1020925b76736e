"""Groups of ranks in one sentence. Pure."""

from collections.abc import Sequence

from gangline.stacks.groups import StackGroup, odd_groups

MAX_NAMES = 3
"""The most ranks that are named; more are counted."""
MAX_CLAUSES = 4


def stacks_sentence(groups: Sequence[StackGroup]) -> str:
    """`3 of 4 ranks wait in all_reduce (train.py:88); worker-1 (rank 2) reads data (data.py:31)`.

    The ranks that hold the others up come last. Launchers and parameter servers, which do other work, are left out,
    unless they are stopped, or there is nobody else. Empty without groups.
    """
    groups = [group for group in groups if group.is_compared or group.activity.kind == "stopped"] or groups
    odd = odd_groups(groups)
    total = sum(len(group.places) for group in groups)
    ordered = [*(group for group in groups if group not in odd), *odd]
    clauses = [group_clause(group, total, noun(groups), named=group in odd) for group in ordered]
    if len(clauses) > MAX_CLAUSES:
        # The last ones are the odd ones, which matter most.
        kept = [*clauses[:1], *clauses[1 - MAX_CLAUSES :]]
        clauses = [*kept[:1], f"{len(clauses) - MAX_CLAUSES} more groups", *kept[1:]]
    return "; ".join(clauses)


def noun(groups: Sequence[StackGroup]) -> str:
    """What the members of a team are called: ranks if the framework counts them, else replicas."""
    return "ranks" if all(one.rank is not None for group in groups for one in group.places) else "replicas"


def group_clause(group: StackGroup, total: int, what: str, *, named: bool) -> str:
    """`3 of 4 ranks wait in all_reduce (train.py:88)`."""
    count = len(group.places)
    if count == total and count > 1:
        who = f"both {what}" if count == 2 else f"all {count} {what}"
    elif count == 1 or (named and count <= MAX_NAMES):
        who = name_list(group.ranks)
    else:
        who = f"{count} of {total} {what}"
    return f"{who} {group.verb}{where(group)}"


def where(group: StackGroup) -> str:
    """` (train.py:88)`; empty if no frame is the user's own."""
    return f" ({group.location})" if group.location else ""


def name_list(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
