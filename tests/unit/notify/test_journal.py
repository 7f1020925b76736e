"""What is remembered, and what follows from it after a restart."""

from datetime import datetime, timedelta
from typing import Any

from gangline.notify.plan import journal as journal_module
from gangline.notify.plan.journal import SINCE, Due, NotificationJournal
from gangline.notify.plan.routes import NotificationSettings
from gangline.notify.plan.transitions import NotifiedState
from support.builders.notified_jobs import NOW, JobHistory, settings_of, webhook_route

LONG_AGO = NOW - timedelta(days=3)


def new_journal(
    records: dict[str, str] | None = None, now: datetime = NOW, settings: NotificationSettings | None = None
) -> NotificationJournal:
    return NotificationJournal(settings or settings_of(), records or {}, now)


def states(due: list[Due]) -> list[str]:
    return [one.transition.state.value for one in due]


def settle_all(journal: NotificationJournal, due: list[Due]) -> None:
    for one in due:
        journal.settle(one)


def test_each_state_is_due_once() -> None:
    journal, history = new_journal(), JobHistory().create()
    assert states(journal.observe(history.job, history.now)) == ["created"]
    assert journal.observe(history.job, history.now) == []
    history.run().restart()
    assert states(journal.observe(history.job, history.now)) == ["restarted"]
    assert states(journal.observe(history.run().succeed().job, history.now)) == ["succeeded"]


def test_jobs_that_were_there_before_notifications_are_not_reported_but_what_happens_to_them_then_is() -> None:
    ended, running = JobHistory("old", now=LONG_AGO).create().run().succeed(), JobHistory(now=LONG_AGO).create().run()
    journal = new_journal()
    assert journal.observe(ended.job, NOW) == []
    assert journal.observe(running.job, NOW) == []
    # Within the second in which they were switched on there is no telling.
    assert list(journal.records()) == [SINCE, "uid-of-bert"]
    running.now = NOW
    assert states(journal.observe(running.restart().job, running.now)) == ["restarted"]
    assert states(journal.observe(running.run().fail().job, running.now)) == ["failed"]


def test_a_restart_inside_a_pod_of_a_job_that_runs_for_days_is_reported() -> None:
    history = JobHistory(now=LONG_AGO).create().run()
    journal = new_journal()
    journal.observe(history.job, NOW)
    counted = history.status.restarts + 1
    history.restart().run()
    # The time of the condition stays that of days ago.
    assert history.status.restarts == counted
    due = journal.observe(history.job, NOW)
    assert states(due) == ["restarted"]
    assert due[0].transition.time == NOW


def test_after_a_restart_what_was_delivered_is_not_due_again() -> None:
    journal, history = new_journal(), JobHistory().create().run()
    settle_all(journal, journal.observe(history.job, history.now))
    again = new_journal(journal.records(), history.now)
    assert again.resume({history.job.metadata.uid: history.job}) == []
    assert again.observe(history.job, history.now) == []


def test_after_a_restart_what_was_not_delivered_is_due_with_the_same_ids_also_if_the_status_went_on() -> None:
    journal, history = new_journal(), JobHistory().create().run()
    before = journal.observe(history.job, history.now)
    records = journal.records()
    history.restart().run().restart()  # the first `running` is not in the status any more
    again = new_journal(records, history.now)
    resumed = again.resume({history.job.metadata.uid: history.job})
    assert [one.transition.id for one in resumed] == [one.transition.id for one in before]
    assert states(again.observe(history.job, history.now)) == ["restarted"]


def test_after_a_restart_a_state_is_due_that_nobody_has_written_down() -> None:
    journal, history = new_journal(), JobHistory().create()
    settle_all(journal, journal.observe(history.job, history.now))
    records = journal.records()
    history.run().fail()
    again = new_journal(records, history.now)
    assert states(again.observe(history.job, history.now)) == ["failed"]


def test_a_job_that_was_deleted_meanwhile_is_reported_with_what_is_remembered() -> None:
    journal, history = new_journal(), JobHistory().create()
    journal.observe(history.job, history.now)
    again = new_journal(journal.records(), history.now)
    due = again.resume({})
    assert states(due) == ["created"]
    assert (due[0].transition.namespace, due[0].transition.name) == ("team-a", "bert")
    settle_all(again, due)
    assert list(again.records()) == [SINCE]


def test_a_deleted_job_leaves_nothing_behind() -> None:
    journal, history = new_journal(), JobHistory().create()
    due = journal.observe(history.job, history.now)
    journal.forget(history.job.metadata.uid)
    assert journal.records().keys() == {SINCE, "uid-of-bert"}
    settle_all(journal, due)
    assert list(journal.records()) == [SINCE]
    journal.observe(history.job, history.now)
    settle_all(journal, journal.observe(history.run().job, history.now))
    journal.forget_others(())
    settle_all(journal, due)
    assert list(journal.records()) == [SINCE]


def test_what_happened_too_long_ago_is_not_sent() -> None:
    journal, history = new_journal(), JobHistory().create()
    settle_all(journal, journal.observe(history.job, history.now))
    history.run().fail()
    later = new_journal(journal.records(), NOW + timedelta(days=2))
    assert later.observe(history.job, NOW + timedelta(days=2)) == []


def test_jobs_that_ended_long_ago_are_forgotten_and_not_reported_again() -> None:
    journal, ended, running = new_journal(), JobHistory("a").create().fail(), JobHistory("b").create().run()
    for history in (ended, running):
        settle_all(journal, journal.observe(history.job, history.now))
    later = NOW + timedelta(days=2)
    journal.prune(later)
    assert journal.records().keys() == {SINCE, "uid-of-b"}
    assert journal.observe(ended.job, later) == []


def test_a_job_that_waits_is_due_when_time_has_passed_although_its_status_is_the_same() -> None:
    journal, history = new_journal(), JobHistory().create()
    journal.observe(history.job, history.now)
    assert journal.observe(history.job, NOW + timedelta(seconds=599)) == []
    assert states(journal.observe(history.job, NOW + timedelta(seconds=600))) == ["waiting"]
    assert journal.observe(history.job, NOW + timedelta(seconds=900)) == []


def test_each_route_is_settled_by_itself() -> None:
    settings = settings_of(webhook_route("a"), webhook_route("b", states=(NotifiedState.FAILED,)))
    journal, history = new_journal(settings=settings), JobHistory().create().fail()
    due = journal.observe(history.job, history.now)
    assert [(one.route, one.transition.state.value) for one in due] == [
        ("a", "created"),
        ("a", "failed"),
        ("b", "failed"),
    ]
    settle_all(journal, [one for one in due if one.route == "a"])
    again = new_journal(journal.records(), history.now, settings)
    assert [one.route for one in again.resume({"uid-of-bert": history.job})] == ["b"]


def test_a_route_that_was_removed_hears_of_nothing() -> None:
    journal, history = new_journal(settings=settings_of(webhook_route("a"))), JobHistory().create()
    journal.observe(history.job, history.now)
    again = new_journal(journal.records(), history.now, settings_of(webhook_route("b")))
    assert again.resume({"uid-of-bert": history.job}) == []
    assert "a" not in str(again.records()["uid-of-bert"]).replace("created", "")


def test_changes_are_what_differs_from_the_records() -> None:
    journal, history = new_journal(), JobHistory().create()
    assert journal.take_changes().keys() == {SINCE}
    due = journal.observe(history.job, history.now)
    first = journal.take_changes()
    assert first.keys() == {"uid-of-bert"}
    assert journal.take_changes() == {}
    journal.put_back(first)
    assert journal.take_changes() == first
    settle_all(journal, due)
    journal.forget("uid-of-bert")
    assert journal.take_changes() == {"uid-of-bert": None}


def test_records_that_somebody_edited_are_left_out() -> None:
    journal = new_journal({SINCE: "yesterday", "uid-of-bert": "{", "x": "[[1]]"})
    assert journal.since == NOW
    assert list(journal.records()) == [SINCE]


def test_the_records_never_outgrow_a_configmap_and_nothing_old_is_sent_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_module, "MAX_BYTES", 2000)
    journal = new_journal(now=NOW - timedelta(hours=1))
    histories = [JobHistory(f"job-{number}", now=NOW + timedelta(seconds=number)).create() for number in range(100)]
    for history in histories:
        settle_all(journal, journal.observe(history.job, history.now))
        journal.take_changes()
    records = journal.records()
    assert sum(len(name) + len(text) for name, text in records.items()) <= 2100
    assert "uid-of-job-99" in records
    assert "uid-of-job-0" not in records
    again = new_journal(records, histories[-1].now)
    assert [states(again.observe(history.job, histories[-1].now)) for history in histories] == [[]] * 100


def test_records_of_a_dead_receiver_never_outgrow_a_configmap(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_module, "MAX_BYTES", 2000)
    journal = new_journal(now=NOW - timedelta(hours=1))
    due = [
        one
        for number in range(100)
        for one in journal.observe(JobHistory(f"job-{number}", now=NOW + timedelta(seconds=number)).create().job, NOW)
    ]
    journal.take_changes()
    assert sum(len(name) + len(text) for name, text in journal.records().items()) <= 2100
    assert len(due) == 100
    settle_all(journal, due)  # those that are not written down, too


def test_a_due_notification_outlives_many_that_are_delivered(monkeypatch: Any) -> None:
    monkeypatch.setattr(journal_module, "MAX_BYTES", 2000)
    journal = new_journal(now=NOW - timedelta(hours=1))
    first = journal.observe(JobHistory("first").create().job, NOW)
    for number in range(100):
        history = JobHistory(f"job-{number}", now=NOW + timedelta(seconds=number)).create()
        settle_all(journal, journal.observe(history.job, history.now))
        journal.take_changes()
    again = new_journal(journal.records(), NOW + timedelta(seconds=200))
    resumed = again.resume({"uid-of-first": JobHistory("first").create().job})
    assert [one.transition.id for one in resumed] == [one.transition.id for one in first]
