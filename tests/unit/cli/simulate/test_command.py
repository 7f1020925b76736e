"""`gangline simulate`: what it prints, writes and rejects."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from gangline.base.errors import InputError
from gangline.cli.simulate.command import simulate
from gangline.cli.simulate.request import larger_sizes
from gangline.scheduler.simulation.engine import NodePool, total_capacity
from gangline.scheduler.simulation.workload import WorkloadMix
from support.terminal import PtyTerminal

SMALL = ("--nodes", "4", "--jobs", "40", "--mix", "1:4,4:2,16:1", "--load", "1.5", "--duration", "10m")
TRACE = """\
arrival,members,request,duration,queue
0,8,cpu=8,600,research
60,4,cpu=8,300,product
60,1,cpu=8,300,product
"""


def simulated(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(simulate, arguments, input=stdin, standalone_mode=False)


def test_the_text_has_waiting_times_use_and_speed() -> None:
    done = simulated(*SMALL, "--queue", "a=2", "--queue", "b", "--priorities", "0:3,5:1")
    assert done.return_value == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("4 nodes, 40 jobs with ")
    assert lines[0].endswith(" of virtual time")
    assert lines[2].split() == ["SIZE", "JOBS", "WAIT", "P50", "P95", "LONGEST"]
    assert [line.split()[0] for line in lines[3:7]] == ["1", "2-4", "9-32", "all"]
    assert [line.split()[0] for line in lines[8:11]] == ["QUEUE", "a", "b"]
    for words in (
        "nvidia.com/gpu in use, %",
        "jobs that wait",
        "fragmentation: ",
        "preempted: ",
        "decisions/s",
        "a round: ",
    ):
        assert words in done.stdout


def test_the_json_has_measured_values_apart() -> None:
    first, second = (json.loads(simulated(*SMALL, "-o", "json").stdout) for _ in range(2))
    engine = first.pop("engine")
    second.pop("engine")
    assert first == second
    assert set(engine) >= {"decisionsPerSecond", "podsPerSecond", "roundP95"}
    assert first["jobs"] == 40
    assert first["scarcest"] == "nvidia.com/gpu"
    assert len(first["moments"]) == 240
    assert sum(row["jobs"] for row in first["bySize"]) == 40


def test_the_log_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    logs = [tmp_path / name for name in ("first", "again", "other")]
    for log, seed in zip(logs, ("1", "1", "2"), strict=True):
        simulated(*SMALL, "--seed", seed, "--log", str(log))
    first, again, other = (log.read_bytes() for log in logs)
    assert first == again
    assert first != other
    events = [json.loads(line) for line in first.splitlines()]
    assert {event["event"] for event in events} >= {"arrive", "wait", "start", "end"}
    assert sum(event["event"] == "arrive" for event in events) == 40


def test_jobs_come_from_a_trace_and_its_queues_need_not_be_declared(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(TRACE)
    done = simulated("--node", "8*cpu=8", "--trace", str(file), "--no-reclaim", "-o", "json")
    found = json.loads(done.stdout)
    assert [(row["of"], row["jobs"], row["p50"]) for row in found["byQueue"]] == [
        ("product", 2, 540),
        ("research", 1, 0),
    ]
    assert simulated("--node", "8*cpu=8", "--trace", "-", stdin=TRACE).return_value == 0


def test_plots_are_svg(tmp_path: Path) -> None:
    done = simulated(*SMALL, "--plots", str(tmp_path / "plots"))
    assert done.stderr.split() == [str(tmp_path / "plots" / name) for name in ("use.svg", "waiting.svg")]
    for name in ("use.svg", "waiting.svg"):
        root = ET.parse(tmp_path / "plots" / name).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--node", "cpu"), "--node cpu: is not like cpu=8,memory=64Gi"),
        (("--node", "cpu=x"), "--node cpu=x: "),
        (
            ("--node", "cpu=1", "--node", "cpu=2"),
            "--node cpu=1: with several kinds of node write how many of each: 10*cpu=1",
        ),
        (("--node", "many*cpu=1"), "--node: 'many' is not a number of nodes"),
        (("--node", "200000*cpu=1"), "--node: 200,000 nodes; 1 to 100,000 can be simulated"),
        (("--queue", "a=heavy"), "--queue a=heavy: is not like NAME=WEIGHT"),
        (("--queue", "a=1,cpu"), "--queue cpu: is not like cpu=8,memory=64Gi"),
        (("--mix", "1"), "--mix 1: is not like 1:40,8:10"),
        (("--mix", "0:1"), "--mix 0:1: a gang has 1 to 10,000,000 members"),
        (("--mix", "100000000000000000000:1"), "--mix 100000000000000000000:1: a gang has 1 to "),
        (("--mix", "1:nan"), "--mix 1:nan: shares are numbers above 0"),
        (("--mix", "1:1e308,2:1e308"), "--mix 1:1e308,2:1e308: shares are numbers above 0"),
        (("--load", "nan"), "--load nan: write a number above 0, such as 0.9"),
        (("--load", "inf"), "--load inf: write a number above 0, such as 0.9"),
        (("--request", "cpu=-1"), '--request cpu=-1: cpu: "-1" is less than nothing'),
        (("--node", "cpu=-1"), '--node cpu=-1: cpu: "-1" is less than nothing'),
        (("--node", "memory=99999Ei"), '--node memory=99999Ei: memory: "99999Ei" is too much'),
        (("--queue", "a", "--queue", "a=2"), "--queue: a name is given twice"),
        (("--duration", "-5"), "--duration: -5 s is less than nothing"),
        (("--cycle", "-1s"), "--cycle: -1 s is less than nothing"),
        (("--grace", "1000000d"), "--grace: 8.64e+10 s is too long a time"),
        (("--priorities", "1:-2"), "--priorities 1:-2: shares are numbers above 0"),
        (("--trace", "none.csv"), "none.csv: No such file or directory"),
        (("--log", "none/log"), "none/log: No such file or directory"),
    ],
)
def test_invalid_options_are_errors_of_one_line(arguments: tuple[str, ...], problem: str) -> None:
    done = simulated("--jobs", "1", *arguments)
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith(problem)


def test_jobs_that_never_started_have_no_waiting_time() -> None:
    done = simulated("--nodes", "1", "--trace", "-", stdin=TRACE.replace("0,8,cpu=8", "0,80,cpu=8"))
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line}
    assert rows["33-128"] == ["33-128", "1", "-", "-", "-", "1"]
    assert rows["all"][-1] == "1"


def test_on_a_narrow_terminal_curves_are_narrow(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gangline", "simulate", "--nodes", "1", "--jobs", "1"]
    with PtyTerminal(command, cwd=tmp_path, env={"COLUMNS": ""}, size=(24, 40)) as terminal:
        assert terminal.wait_for_exit() == 0
    curves = [line for line in terminal.screen.lines if "┤─" in line]
    assert [line.count("─") for line in curves] == [32]
    assert simulated("--nodes", "1", "--jobs", "1").stdout.count("┤" + "─" * 60) == 1


def test_if_all_jobs_start_at_once_the_last_start_is_not_mentioned() -> None:
    done = simulated("--nodes", "4", "--trace", "-", stdin=TRACE.splitlines(keepends=True)[0] + "0,1,cpu=8,60,a\n")
    assert "cpu in use, % (2% on average)" in done.stdout


def test_a_trace_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_bytes(b"\xef\xbb\xbf" + TRACE.encode())
    done = simulated("--nodes", "4", "--trace", str(tmp_path / "jobs.csv"))
    assert done.return_value == 0


PAGE = (Path(__file__).parents[4] / "docs" / "simulate.md").read_text()
MEASURED = ("decisions: ", "a round: ")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_example_of_the_page_prints_what_the_page_says() -> None:
    command, *told = blocks("console")[0].splitlines()
    done = simulated(*shlex.split(command)[3:])
    found = done.stdout.splitlines()
    assert [line for line in found if not line.startswith(MEASURED)] == [
        line for line in told if not line.startswith(MEASURED)
    ]
    assert len(found) == len(told)


def test_the_trace_of_the_page_gives_the_event_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs.csv").write_text(blocks("csv")[0])
    command = blocks("console")[1].splitlines()[0]
    assert simulated(*shlex.split(command)[3:]).return_value == 0
    assert blocks("json")[0].strip() in Path("events.jsonl").read_text().splitlines()


def test_few_jobs_on_many_nodes_are_large_so_that_some_wait() -> None:
    text = simulated("--nodes", "1000", "--jobs", "200").stdout
    assert "gangs are 16 times as large as usual" in text
    assert "\njobs that wait\n" in text
    [everybody] = [line.split() for line in text.splitlines() if line.startswith("all ")]
    assert everybody[3] != "0s", everybody
    assert "times as large" not in simulated("--nodes", "1000", "--jobs", "200", "--mix", "1:1").stdout


def test_where_nobody_waits_the_report_says_how_to_get_a_backlog() -> None:
    text = simulated("--nodes", "100", "--jobs", "5", "--mix", "1:1").stdout
    assert "no job waited: for a backlog, raise --load" in text
    assert "jobs that wait" not in text


def test_gangs_that_are_made_larger_still_fit() -> None:
    def sizes(nodes: int, jobs: int) -> tuple[int, int]:
        pool = NodePool(nodes, {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"})
        larger, factor = larger_sizes(WorkloadMix(), jobs, total_capacity([pool]))
        assert sum(larger.values()) == sum(WorkloadMix().sizes.values())
        return factor, max(larger)

    assert sizes(100, 1000) == (1, 512)
    assert sizes(1000, 200) == (16, 4000)
    # On a single node the default sizes are too large already.
    assert sizes(1, 1) == (1, 512)
