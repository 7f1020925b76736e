"""`gangline stacks`: what is printed, and which ranks replicas have."""

import msgspec
import pytest

from gangline.cli.jobs.stacks import notes, replica_ranks, report_lines
from gangline.stacks.model import ProcessStack, RankStack
from gangline.stacks.pyspy import NOT_ALLOWED, NOT_INSTALLED, NOT_INSTALLED_THERE
from gangline.stacks.report import stacks_report
from gangline.summary.objects import JOB_KINDS, ServerJob
from support.builders.stacks import all_reduce, own_stack, process, rank


def text(*ranks: RankStack, everything: bool = False) -> str:
    report = stacks_report("PyTorchJob", "default", "bert", ranks, tuple(notes(ranks)))
    return "\n".join(report_lines(report, everything=everything, width=80))


def test_control_characters_of_a_program_do_not_reach_the_terminal() -> None:
    evil = process(own_stack(code="print('\x1b[2J')"), command="python \x1b]0;owned\x07")
    shown = text(rank(0, evil), everything=True)
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "print(" in shown


def test_all_adds_every_thread() -> None:
    assert "thread MainThread" not in text(rank(0, frames=all_reduce()))
    assert "thread MainThread" in text(rank(0, frames=all_reduce()), everything=True)


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (NOT_INSTALLED, "To see the frames of Python programs: pip install 'gangline[stacks]'"),
        (NOT_INSTALLED_THERE, "or pass --debug-image"),
        (NOT_ALLOWED, "sudo"),
    ],
)
def test_what_would_show_more_is_said_once(error: str, note: str) -> None:
    unread: ProcessStack = msgspec.structs.replace(process(source="proc"), error=error)
    lines = text(rank(0, unread), rank(1, unread)).splitlines()
    assert lines[-2] == ""
    assert note in lines[-1]
    assert sum(note in line for line in lines) == 1


def test_replicas_have_the_ranks_of_their_framework() -> None:
    def job(**spec: object) -> ServerJob:
        kind = next(one for one in JOB_KINDS if one.kind == "PyTorchJob")
        replicas = {"Master": {}, "Worker": {"replicas": 2}}
        return ServerJob(kind, {"kind": kind.kind, "metadata": {}, "spec": {"pytorchReplicaSpecs": replicas, **spec}})

    names = ("master-0", "worker-1")
    assert replica_ranks(job(), names) == {"master-0": 0, "worker-1": 2}
    assert replica_ranks(job(nprocPerNode="4"), names) == {"master-0": 0, "worker-1": 8}
    assert replica_ranks(job(elasticPolicy={"minReplicas": 1}), names) == {"master-0": None, "worker-1": None}
