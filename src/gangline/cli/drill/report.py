"""The outcome of a drill as one line of text and as JSON. Pure."""

from collections.abc import Iterator, Mapping

from gangline.cli.drill.timeline import LASTING_FAULTS, DrillOutcome
from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED, UNFINISHED
from gangline.summary.job_rows import end_text

FAULT_TEXT = {
    "kill": "killed",
    "oom": "out of memory",
    "port": "killed, its port taken",
    "disk": "out of disk",
    "node-lost": "lost with its node",
    "slow": "slowed down",
    "hang": "stood still",
    "slow-network": "on a slow network",
    "bad-node": "failed by its node",
    "evict": "evicted",
    "exit": "ended",
}
VERDICT_TEXT = {SUCCEEDED: "training survived", FAILED: "training did not survive", CANCELLED: "outcome unknown"}
JSON_VERDICTS = {SUCCEEDED: "survived", FAILED: "failed", CANCELLED: "deleted", UNFINISHED: "unfinished"}


def summary(outcome: DrillOutcome) -> str:
    """The outcome in one line: fault, restarts, state of the job, verdict."""
    fault, victims = FAULT_TEXT[outcome.fault.fault], outcome.fault.victims
    if len(victims) == 1:
        subject = victims[0]
    else:
        subject, fault = f"{len(victims)} replicas", fault.replace("its", "their")
    cause = _cause_text(outcome)
    parts = [f"{subject} {fault}{f' ({cause})' if cause else ''}", *_consequences(outcome)]
    parts.append("job deleted" if outcome.deleted else f"job {outcome.state}")
    parts.append(VERDICT_TEXT.get(outcome.exit_code, f"not clear after {outcome.seconds:.0f} s"))
    return " · ".join(parts)


def _cause_text(outcome: DrillOutcome) -> str:
    """How the first victim's processes ended; else what the job's status says of it."""
    fault = outcome.fault
    if fault.fault in LASTING_FAULTS:
        return f"for {fault.duration:g} s"
    ends = [outcome.ends[victim] for victim in fault.victims if victim in outcome.ends]
    if ends:
        return ", then ".join(ends[0][:3])
    failure = outcome.first_failure
    return end_text(failure) if failure and failure.get("replica") in fault.victims else ""


def _consequences(outcome: DrillOutcome) -> Iterator[str]:
    victims, restarted_after = outcome.fault.victims, outcome.restarted_after
    if outcome.fault.fault not in LASTING_FAULTS:
        times = [restarted_after[victim] for victim in victims if victim in restarted_after]
        yield f"restarted after {max(times):.1f} s" if len(times) == len(victims) else "not restarted"
    others = [replica for replica in restarted_after if replica not in victims]
    if others:
        yield f"{len(others)} others restarted too" if len(others) > 1 else f"{others[0]} restarted too"
    if outcome.resumed:
        yield outcome.resumed


def json_report(outcome: DrillOutcome) -> Mapping[str, object]:
    """The outcome for programs. The fields are a public format."""
    return {
        "job": outcome.job,
        "fault": outcome.fault.fault,
        "replicas": list(outcome.fault.victims),
        "verdict": JSON_VERDICTS[outcome.exit_code],
        "state": outcome.state,
        "ends": outcome.ends,
        "restartedAfter": {replica: round(seconds, 2) for replica, seconds in outcome.restarted_after.items()},
        "seconds": round(outcome.seconds, 2),
        "message": summary(outcome),
    }
