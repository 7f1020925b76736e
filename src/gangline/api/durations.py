"""Durations as Kubernetes prints them, with two or three significant digits: `45s`, `5m10s`, `3h`, `12d`."""

from datetime import datetime, timedelta

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def human_duration(duration: timedelta) -> str:
    """A duration for people. `<invalid>` if it is negative by more than a second, which clock skew does not explain."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{max(seconds, 0)}s"
    if seconds < 10 * _MINUTE:
        return _two_units(seconds // _MINUTE, "m", seconds % _MINUTE, "s")
    if seconds < 3 * _HOUR:
        return f"{seconds // _MINUTE}m"
    if seconds < 8 * _HOUR:
        return _two_units(seconds // _HOUR, "h", seconds // _MINUTE % 60, "m")
    if seconds < 48 * _HOUR:
        return f"{seconds // _HOUR}h"
    return _days_text(seconds // _DAY, seconds // _HOUR % 24)


def human_age(stamp: str | None, now: datetime) -> str:
    """How long ago a timestamp was; `<unknown>` without a timestamp, `<invalid>` if it cannot be parsed."""
    if not stamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return "<invalid>"
    return human_duration(now - moment) if moment.tzinfo is not None else "<invalid>"


def _days_text(days: int, hours: int) -> str:
    if days < 8:
        return _two_units(days, "d", hours, "h")
    if days < 2 * 365:
        return f"{days}d"
    return _two_units(days // 365, "y", days % 365 if days < 8 * 365 else 0, "d")


def _two_units(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"
