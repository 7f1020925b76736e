"""What an ask comes to in amounts, and how to ask for less of it."""

from collections.abc import Iterable, Mapping

import msgspec

from gangline.scheduler.quota.fair_share import Amounts
from gangline.scheduler.types.cycle import Ask, Need


def amounts_of(needs: Iterable[Need]) -> dict[str, int]:
    """What all these members need together, by resource."""
    total: dict[str, int] = {}
    for need in needs:
        for name, amount in need.shape.requests:
            total[name] = total.get(name, 0) + amount * need.count
    return total


def add(total: dict[str, int], amounts: Amounts, times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times


def lacking(needed: Amounts, room: Amounts) -> str | None:
    """The first resource, by name, of which there is less than needed."""
    return next((name for name in sorted(needed) if needed[name] > room.get(name, 0)), None)


def members(ask: Ask) -> int:
    return sum(need.count for need in ask.needs)


def resized(ask: Ask, counts: Iterable[int]) -> Ask:
    """The same ask for fewer members. Needs stay where they are, also when nothing of one is left."""
    needs = tuple(Need(need.role, need.shape, count) for need, count in zip(ask.needs, counts, strict=True))
    return msgspec.structs.replace(ask, needs=needs)


def core(ask: Ask) -> Ask:
    """The ask without members it can do without: what each role needs, then the others in their order."""
    if ask.least >= members(ask):
        return ask
    counts = [0] * len(ask.needs)
    missing = ask.least
    for role, least in sorted(ask.roles.items()):
        missing -= _fill(ask, counts, least, role)
    _fill(ask, counts, missing)
    return resized(ask, counts)


def within(ask: Ask, room: Mapping[str, int]) -> Ask | None:
    """As many of its members as these amounts allow; None: not even those it needs at least.

    `room` need not name every resource: what it does not name is without limit.
    """
    if not room or _fits(ask, room):
        return ask
    smallest = core(ask)
    if not _fits(smallest, room):
        return None
    counts = [need.count for need in smallest.needs]
    left = {name: amount - amounts_of(smallest.needs).get(name, 0) for name, amount in room.items()}
    for number, need in enumerate(ask.needs):
        more = min(need.count - counts[number], _times(need.shape.amounts, left))
        counts[number] += more
        left = {name: amount - more * need.shape.amounts.get(name, 0) for name, amount in left.items()}
    return resized(ask, counts)


def _fits(ask: Ask, room: Mapping[str, int]) -> bool:
    needed = amounts_of(ask.needs)
    return all(needed.get(name, 0) <= amount for name, amount in room.items())


def _times(amounts: Amounts, room: Mapping[str, int]) -> int:
    """How often these amounts go into the room. A number nobody reaches if the room does not limit them."""
    return min(
        (max(0, room[name]) // amount for name, amount in amounts.items() if amount and name in room),
        default=1 << 60,
    )


def _fill(ask: Ask, counts: list[int], wanted: int, role: str | None = None) -> int:
    """Raise counts until so many more are asked for, of one role or of any; how many there were."""
    added = 0
    for number, need in enumerate(ask.needs):
        if role is None or need.role == role:
            more = min(max(0, wanted - added), need.count - counts[number])
            counts[number] += more
            added += more
    return added
