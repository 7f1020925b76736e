"""Timelines of watched jobs: what is kept, and when they are built again."""

from gangline.timeline.build import team_timeline
from gangline.timeline.live import VERSIONS_PER_SECOND, LiveTimeline
from support.builders.team_tapes import START, TeamTape


def tape_of_one() -> TeamTape:
    tape = TeamTape(workers=1)
    tape.write_job(0.0)
    tape.create(1.0, 0, "pod-0", node="node-a")
    tape.run(2.0, 0)
    return tape


def test_reports_of_progress_are_not_kept() -> None:
    tape, live = tape_of_one(), LiveTimeline()
    for version in tape.versions:
        live.add(*version)
    kept = len(live.versions)
    for step in range(100):
        tape.report(3.0 + step, 0, f'{{"progress": {{"step": {step}}}}}')
        tape.write_job(3.0 + step, progress={"step": step})
        for version in tape.versions[-2:]:
            live.add(*version)
    assert len(live.versions) == kept


def test_of_a_repeated_event_the_last_version_is_kept() -> None:
    tape, live = tape_of_one(), LiveTimeline()
    for count in range(50):
        tape.add_event(3.0, "gangline-scheduler", "FailedScheduling", "no room")
        at, path, body = tape.versions.pop()
        assert body is not None
        live.add(at + count, path, {**body, "series": {"count": count}})
    assert [body["series"]["count"] for _, _, body in live.versions if body is not None] == [49]


def test_the_end_moves_until_the_job_has_finished() -> None:
    tape, live = tape_of_one(), LiveTimeline()
    for version in tape.versions:
        live.add(*version)
    assert [live.timeline(START + now).end - START for now in (5, 9)] == [5, 9]
    tape.set_condition(10.0, "Succeeded")
    live.add(*tape.versions[-1])
    assert [live.timeline(START + now).end - START for now in (12, 99)] == [10, 10]


def test_a_very_large_timeline_is_not_built_at_every_change() -> None:
    live = LiveTimeline()
    tape = tape_of_one()
    for version in tape.versions:
        live.add(*version)
    for number in range(VERSIONS_PER_SECOND):
        live.add(START + 3.0, f"//pods/default/bert-other-{number}", {"metadata": {"uid": f"uid-{number}"}})
    before = live.timeline(START + 4.0).rows
    tape.end(4.1, 0, 0)
    live.add(*tape.versions[-1])
    assert live.timeline(START + 4.5).rows == before
    assert live.timeline(START + 4.5, fresh=True).rows != before
    assert live.timeline(START + 6.0) == team_timeline(live.versions, START + 6.0)
