"""How patient the watch over jobs is."""

import msgspec


class WatchSettings(msgspec.Struct, frozen=True):
    """How patient the watch is. All times are in seconds."""

    # A job without signs of life for less than this is not looked into.
    floor: float = 60.0
    # It is, after so many times the usual gap.
    factor: float = 3.0
    # How often a job is looked at, and the seconds between two samples of its stacks.
    period: float = 10.0
    sample_distance: float = 5.0
    # Stacks of a job that turned out to move are read again after this, then after twice the time, and so on.
    first_calm: float = 20.0
    longest_calm: float = 120.0
    # For so long nobody may move, whatever is known of the job.
    confirm: float = 30.0
    # What a team is given that does something slow by its name, or sleeps although it makes steps.
    patience: float = 600.0
    # What a team is given that only sleeps, or only computes in one call; also in multiples of the longest gap.
    long_patience: float = 1800.0
    long_factor: float = 10.0
    # Without stacks: what an idle team is given, and one of which only steps or log lines are known.
    idle_limit: float = 300.0
    blind_limit: float = 3600.0


def watch_settings(floor: float, period: float = WatchSettings().period) -> WatchSettings:
    """The settings for a floor: one that is shorter than usual makes all of the watch quicker."""
    usual = WatchSettings()
    share = min(1.0, floor / usual.floor)
    return msgspec.structs.replace(
        usual,
        floor=floor,
        period=max(0.5, min(period, floor / 6)),
        sample_distance=max(0.5, usual.sample_distance * share),
        confirm=max(3.0, usual.confirm * share),
        first_calm=max(2.0, usual.first_calm * share),
    )
