"""What `gangline stacks` found: the sentence, the groups, and everything behind them. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from gangline.stacks.activities import ActivityKind
from gangline.stacks.groups import StackGroup, odd_groups, stack_groups
from gangline.stacks.model import Frame, RankStack
from gangline.stacks.sentence import stacks_sentence


class GroupReport(msgspec.Struct, frozen=True):
    """One group of ranks, for programs."""

    # `worker-1 (rank 2)`, and the replicas of these ranks.
    ranks: tuple[str, ...]
    replicas: tuple[str, ...]
    doing: str
    kind: ActivityKind
    # The user's own line, as `train.py:88`.
    location: str
    # Whether the others wait for this group.
    odd: bool
    frames: tuple[Frame, ...]
    error: str = ""


class StacksReport(msgspec.Struct, frozen=True):
    """The answer. Its fields are a public interface."""

    kind: str
    namespace: str
    name: str
    sentence: str
    groups: tuple[GroupReport, ...]
    # Every replica with its processes and threads.
    replicas: tuple[RankStack, ...]
    # What would show more.
    notes: tuple[str, ...] = ()


def with_ranks(stacks: Sequence[RankStack], ranks: Mapping[str, int | None]) -> tuple[RankStack, ...]:
    """The stacks with the first rank of each replica, by its name."""
    return tuple(msgspec.structs.replace(one, rank=ranks.get(one.replica, one.rank)) for one in stacks)


def group_reports(groups: Sequence[StackGroup]) -> tuple[GroupReport, ...]:
    odd = odd_groups(groups)
    return tuple(
        GroupReport(
            group.ranks,
            group.replicas,
            group.verb,
            group.activity.kind,
            group.location,
            group in odd,
            group.frames,
            group.error,
        )
        for group in groups
    )


def stacks_report(
    kind: str, namespace: str, name: str, stacks: Sequence[RankStack], notes: Sequence[str] = ()
) -> StacksReport:
    groups = stack_groups(stacks)
    return StacksReport(
        kind, namespace, name, stacks_sentence(groups), group_reports(groups), tuple(stacks), tuple(notes)
    )
