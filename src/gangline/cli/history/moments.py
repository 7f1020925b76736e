"""Moments as people write them: `14:02`, `yesterday 14:02`, `-15m`, `2026-11-18T14:02:03Z`. Pure."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta

from gangline.base.errors import InputError
from gangline.cli.flags.durations import parse_duration

FORMS = "14:02, yesterday 14:02, -15m, 2026-11-18T14:02:03Z"
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def split_moment(words: Sequence[str]) -> tuple[str, list[str]]:
    """The words of a moment at the beginning of a command line, and the rest."""
    count = 1
    if len(words) > 1 and (words[0] in ("yesterday", "today") or _DATE.fullmatch(words[0])):
        count = 2 if _CLOCK.fullmatch(words[1]) else 1
    return " ".join(words[:count]), list(words[count:])


def parse_moment(text: str, now: datetime) -> datetime:
    """The moment that a text stands for; a time without a zone is one of this machine. Raises `InputError`."""
    try:
        moment = _parse(" ".join(text.split()), now.astimezone())
        moment = moment.astimezone(UTC) if moment is not None else None
    except (OverflowError, ValueError):
        raise InputError(f"{text}: is no time that a clock can show; write one of {FORMS}") from None
    if moment is None:
        raise InputError(f"{text}: is no time; write one of {FORMS}")
    if moment > now:
        hint = "; write yesterday " + text if _CLOCK.fullmatch(text) else ""
        raise InputError(f"{text}: is in the future{hint}")
    return moment


def _parse(text: str, now: datetime) -> datetime | None:
    if text == "now":
        return now
    if text.startswith("-"):
        try:
            return now - parse_duration(text[1:])
        except InputError:
            return None
    day, _, rest = text.partition(" ")
    if day in ("yesterday", "today"):
        clock = _clock(rest)
        date = now.date() - timedelta(days=day == "yesterday")
        return datetime.combine(date, clock).astimezone() if clock is not None else None
    if (clock := _clock(text)) is not None:
        return datetime.combine(now.date(), clock).astimezone()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.astimezone()


def _clock(text: str) -> time | None:
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = int(match[1]), int(match[2]), float(match[3] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:
        return None
    return time(hours, minutes, int(seconds), min(999_999, round(seconds % 1 * 1_000_000)))


def moment_text(moment: datetime, now: datetime) -> str:
    """A moment for people, on this machine's clock: without the date if it is today."""
    local = moment.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == now.astimezone().date() else "%Y-%m-%d %H:%M:%S")
