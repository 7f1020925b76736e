"""Eleven drills whose seconds are counted by hand. In each, the count is written down line by line beside what happens."""

from datetime import timedelta

import pytest

from gangline.api.kubeflow.training import GoodputLedger
from gangline.jobs.site import Site
from support.builders.timed_teams import FAILED, TimedTeam

pytestmark = pytest.mark.asyncio


def seconds(ledger: GoodputLedger) -> dict[str, int]:
    """The seconds of a ledger, which must add up to those of its replicas, as each drill says."""
    return dict(ledger.seconds)


async def test_drill_1_a_quiet_run() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.wait(10)  # 2 replicas queue: 20 queueing
    await team.bind()
    await team.wait(5)  # 2 start: 10 starting
    await team.start()
    await team.wait(60)  # 2 work: 120 working
    await team.end()
    assert seconds(team.ledger) == {"queueing": 20, "starting": 10, "working": 120}
    assert team.ledger.replicas == {}


async def test_drill_2_replicas_wait_for_the_last_one() -> None:
    team = TimedTeam(workers=2)
    await team.settle()
    await team.bind()
    await team.wait(3)  # 3 start: 9 starting
    await team.start("master-0")
    await team.wait(4)  # the master waits: 4 idle; 2 start: 8 starting
    await team.start("worker-0")
    await team.wait(6)  # 2 wait: 12 idle; 1 starts: 6 starting
    await team.start("worker-1")
    await team.wait(20)  # 3 work: 60 working
    await team.end()
    assert seconds(team.ledger) == {"starting": 23, "working": 60, "idle": 16}


async def test_drill_3_a_worker_ends_before_the_team() -> None:
    team = TimedTeam(workers=2)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(30)  # 3 work: 90 working
    await team.end("worker-1")
    await team.wait(12)  # 2 work: 24 working; 1 has ended: 12 idle
    await team.end("master-0", "worker-0")
    assert seconds(team.ledger) == {"working": 114, "idle": 12}


async def test_drill_4_a_process_restarts_in_its_pod() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(40)  # 2 work: 80 working
    await team.crash("worker-0")
    await team.wait(10)  # back-off: 10 starting; the master works: 10 working
    await team.start("worker-0")
    await team.wait(25)  # nobody reports steps, so nothing is called recomputing: 50 working
    await team.end()
    assert seconds(team.ledger) == {"starting": 10, "working": 140}


async def test_drill_5_a_team_restarts_and_computes_its_steps_again() -> None:
    team = TimedTeam(workers=1, restart="OnFailure", scope="Job")
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(20)  # 2 work: 40 working
    await team.report("master-0", step=100)
    await team.wait(30)  # 2 work: 60 working
    await team.end("worker-0", phase=FAILED)  # the whole team restarts
    await team.wait(5)  # the worker's pod is gone at once: 5 queueing; the master's process still runs: 5 idle
    await team.remove("master-0")
    await team.wait(7)  # 2 queue: 14 queueing
    await team.bind()
    await team.wait(3)  # 2 start: 6 starting
    await team.start()
    await team.wait(8)  # nothing reported yet, so step 100 is not reached again: 16 recomputing
    await team.report("master-0", step=60)
    await team.wait(9)  # 18 recomputing
    await team.report("master-0", step=101)
    await team.wait(11)  # 22 working
    await team.end()
    assert seconds(team.ledger) == {
        "queueing": 19,
        "starting": 6,
        "working": 122,
        "recomputing": 34,
        "idle": 5,
    }


async def test_drill_6_checkpoints() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(10)  # 20 working
    await team.report("master-0", step=10, loss=0.5)
    await team.wait(10)  # 20 working
    await team.report("master-0", step=10, checkpoint="begin")
    await team.wait(6)  # 12 checkpointing
    await team.report("master-0", step=10, checkpoint="end")
    await team.wait(10)  # 20 working
    await team.end()
    assert seconds(team.ledger) == {"working": 60, "checkpointing": 12}
    # The lines about the checkpoint have no numbers, and those of the line before stay.
    assert team.world.job.status.progress.metrics == {"loss": 0.5}


async def test_drill_7_a_stall() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(50)  # 100 working
    stalled = {"type": "Stalled", "status": "True", "reason": "NoProgress", "lastTransitionTime": team._stamp()}
    body = team.world.body
    assert body is not None
    conditions = [*body["status"]["conditions"], stalled]
    team.world.server.patch(team.world.plural, "bert", {"status": {"conditions": conditions}})
    await team.settle()
    await team.wait(15)  # 30 stalled
    conditions[-1] = {**stalled, "status": "False", "lastTransitionTime": team._stamp()}
    team.world.server.patch(team.world.plural, "bert", {"status": {"conditions": conditions}})
    await team.settle()
    await team.wait(5)  # 10 working
    await team.end()
    assert seconds(team.ledger) == {"working": 110, "stalled": 30}


async def test_drill_8_suspended_time_is_no_time_of_replicas() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(20)  # 40 working
    await team.change({"suspend": True})
    await team.wait(600)  # suspended: nothing
    await team.remove()
    await team.wait(600)  # suspended: nothing
    await team.change({"suspend": False})
    await team.wait(4)  # 8 queueing
    await team.bind()
    await team.start()
    await team.wait(10)  # 20 working
    await team.end()
    assert seconds(team.ledger) == {"queueing": 8, "working": 60}
    assert (team.ledger.until - team.ledger.since).total_seconds() == 20 + 600 + 600 + 4 + 10


async def test_drill_9_a_larger_team() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(30)  # 2 work: 60 working
    await team.scale(3)
    await team.wait(10)  # 2 work: 20 working; 2 new ones queue: 20 queueing
    await team.bind("worker-1", "worker-2")
    await team.start("worker-1", "worker-2")
    await team.wait(10)  # 4 work: 40 working
    await team.scale(2)
    await team.wait(10)  # 3 work: 30 working; the fourth is none of the job's any more
    await team.end("master-0", "worker-0", "worker-1")
    assert seconds(team.ledger) == {"queueing": 20, "working": 150}


async def test_drill_10_an_operator_that_was_away_for_an_hour() -> None:
    team = TimedTeam(workers=1)
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(10)  # 20 working
    team.world.crash()
    # Nobody looks: the dates of the containers alone say what happened.
    team._end("worker-0", 1, "Running")
    team.world.advance(timedelta(seconds=60))  # the worker waits to be restarted: 60 starting; 60 working
    team._write(
        "worker-0",
        "Running",
        {"running": {"startedAt": team._stamp()}},
        1,
        {"lastState": team._container("worker-0")["state"]},
    )
    team.world.advance(timedelta(seconds=3000))  # 2 work: 6000 working
    team._end("worker-0", 0, "Succeeded")
    team.world.advance(timedelta(seconds=540))  # 1 has ended: 540 idle; 540 working
    await team.end("master-0")
    assert seconds(team.ledger) == {"starting": 60, "working": 6620, "idle": 540}


async def test_drill_11_a_team_restarts_in_place_and_computes_its_steps_again() -> None:
    policy = {"recovery": {"inPlace": True, "rules": [{"when": {"exitCodes": [1]}, "then": "RestartJob"}]}}
    team = TimedTeam(workers=1, policy=policy, site=Site(restarts_in_place=True))
    await team.settle()
    await team.bind()
    await team.start()
    await team.wait(20)  # 2 work: 40 working
    await team.report("master-0", step=100)
    await team.wait(30)  # 2 work: 60 working
    before = [team.pod(name)["metadata"]["uid"] for name in team.names]
    await team.crash("worker-0")
    await team.wait(3)  # it is decided: the worker has failed: 3 idle; the master works: 3 working
    await team.wait(2)  # the worker is to start again: 2 starting; the master's process has no team any more: 2 idle
    await team.crash("master-0", 143)  # its node ends it
    await team.wait(4)  # 2 are to start again: 8 starting
    await team.start()
    await team.wait(8)  # nothing reported yet, so step 100 is not reached again: 16 recomputing
    await team.report("master-0", step=60)
    await team.wait(9)  # 18 recomputing
    await team.report("master-0", step=101)
    await team.wait(11)  # 22 working
    assert [team.pod(name)["metadata"]["uid"] for name in team.names] == before
    await team.end()
    assert seconds(team.ledger) == {"starting": 10, "working": 125, "recomputing": 34, "idle": 5}
    assert team.world.job.status.restarts == 1
