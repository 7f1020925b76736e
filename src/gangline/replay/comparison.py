"""Whether a replay went as the recording did: the replica that failed first, and the rule of `why`. Pure."""

from gangline.replay.bundle import FaultCause, RecordedFault, RecordedVerdict

CAUSE_TEXT = {
    FaultCause.OOM: "out of memory",
    FaultCause.EVICTED: "evicted",
    FaultCause.NODE_LOST: "its node lost",
    FaultCause.REJECTED: "rejected by its node",
    FaultCause.HANG: "stands still",
}


def fault_text(fault: RecordedFault) -> str:
    """A fault in a few words: `worker-1: exit 3 at step 12, 8.1 s after its start`."""
    if fault.cause is FaultCause.EXIT:
        what = f"exit {fault.exit_code}"
    elif fault.cause is FaultCause.SIGNAL:
        what = f"signal {fault.signal}"
    else:
        what = CAUSE_TEXT[fault.cause]
    step = f" at step {fault.step:g}" if fault.step is not None else ""
    after = (
        f"{',' if step else ''} {fault.after_seconds:.1f} s after its start" if fault.after_seconds is not None else ""
    )
    return f"{fault.replica}: {what}{step}{after}"


def verdict_text(verdict: RecordedVerdict) -> str:
    """A verdict in a few words."""
    rank = f" (rank {verdict.rank})" if verdict.rank is not None else ""
    first = f"{verdict.first_replica}{rank} first" if verdict.first_replica else "no replica failed"
    return f"{first}, why: {verdict.rule or 'nothing wrong'}, job {verdict.state or 'unknown'}"


def is_same(recorded: RecordedVerdict, replayed: RecordedVerdict) -> bool:
    """Whether the same replica failed first, for the same rule."""
    return (recorded.first_replica, recorded.rule) == (replayed.first_replica, replayed.rule)


def comparison_lines(recorded: RecordedVerdict, replayed: RecordedVerdict) -> tuple[str, str]:
    """The recorded and the replayed verdict, and whether they agree."""
    differences = []
    if recorded.first_replica != replayed.first_replica:
        differences.append("another replica failed first")
    if recorded.rule != replayed.rule:
        differences.append("why has another rule")
    end = "the same" if not differences else f"not the same: {' and '.join(differences)}"
    return f"recorded: {verdict_text(recorded)}", f"replayed: {verdict_text(replayed)} · {end}"
