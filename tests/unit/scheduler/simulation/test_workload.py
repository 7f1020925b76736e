"""Jobs for a simulation: traces, and generated jobs."""

import pytest

from gangline.base.errors import InputError
from gangline.scheduler.simulation.workload import WorkloadJob, WorkloadMix, generated_jobs, trace_jobs

CPU_AND_MEMORY = (("cpu", 8000), ("memory", 64 << 30), ("pods", 1))
CAPACITY = {"cpu": 960_000, "memory": 10 << 40, "nvidia.com/gpu": 80, "pods": 1100}


def test_a_trace_is_csv_with_names_in_the_first_line() -> None:
    lines = [
        "arrival,members,request,duration,queue,priority,name,least",
        "",
        "# a comment",
        "0,4,cpu=8 memory=64Gi,3600,research,10,bert,2",
        "12.5,1,cpu=8;memory=64Gi,60,,,,",
    ]
    assert trace_jobs(lines, "jobs.csv") == [
        WorkloadJob("bert", 0, 4, CPU_AND_MEMORY, 3600, "research", 10, 2),
        WorkloadJob("line-5", 12.5, 1, CPU_AND_MEMORY, 60, "default", 0, 1),
    ]


def test_a_trace_is_one_json_object_per_line() -> None:
    lines = ['{"arrival": 0, "members": 4, "request": {"cpu": 8, "memory": "64Gi"}, "duration": 3600, "name": "bert"}']
    assert trace_jobs(lines, "jobs.jsonl") == [WorkloadJob("bert", 0, 4, CPU_AND_MEMORY, 3600, "default", 0, 4)]


HEAD = "arrival,members,request,duration\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "t: no jobs; the first line of a CSV names its columns: arrival,members,request"),
        ("arrival,members,duration\n", "t:1: no column 'request'"),
        (HEAD + "0,1,cpu=1\n", "t:2: 3 values for 4 columns"),
        (HEAD + "soon,1,cpu=1,60\n", "t:2: arrival: 'soon' is not a number of seconds"),
        (HEAD + "-1,1,cpu=1,60\n", "t:2: arrival: '-1' is not a number of seconds"),
        (HEAD + "0,1,cpu=1,inf\n", "t:2: duration: 'inf' is not a number of seconds"),
        (HEAD + "0,0,cpu=1,60\n", "t:2: members: 0 is less than 1"),
        (HEAD + "0,many,cpu=1,60\n", "t:2: members: 'many' is not a whole number"),
        (HEAD, "t: no jobs; write one in each line after the names"),
        (HEAD + "0,1,cpu=-1,60\n", 't:2: request: cpu: "-1" is less than nothing'),
        (HEAD + "0,10000001,cpu=1,60\n", "t:2: members: 10,000,001 are more than 10,000,000"),
        (HEAD + "0,1,cpu=1,1e15\n", "t:2: duration: '1e15' is not a number of seconds"),
        (HEAD + "0,1,much,60\n", "t:2: request: 'much' is not like 'cpu=4 memory=16Gi'"),
        (HEAD + "0,1,cpu=lots,60\n", "t:2: request: "),
        (HEAD + "0,,cpu=1,60\n", "t:2: no 'members'"),
        (
            '{"arrival": 0, "members": 1, "request": {"cpu": 1}, "duration": 1, "gpus": 2}',
            "t:1: 'gpus' is unknown; known are",
        ),
        ('{"arrival": 0,', "t:1: "),
        (
            '{"arrival": 0, "members": 2, "request": {"cpu": 1}, "duration": 1, "least": 3}',
            "t:1: least: 3 of 2 members",
        ),
        (
            "arrival,members,request,duration,name\n0,1,cpu=1,60,a\n0,1,cpu=1,60,a\n",
            "t: two jobs are named 'a'; names must differ",
        ),
    ],
)
def test_a_mistake_in_a_trace_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        trace_jobs(text.splitlines(), "t")
    assert str(caught.value).startswith(problem)


def test_made_up_jobs_are_the_same_for_the_same_seed() -> None:
    assert generated_jobs(50, 7, WorkloadMix(), CAPACITY) == generated_jobs(50, 7, WorkloadMix(), CAPACITY)
    assert generated_jobs(50, 7, WorkloadMix(), CAPACITY) != generated_jobs(50, 8, WorkloadMix(), CAPACITY)


def test_made_up_jobs_are_as_the_mix_says() -> None:
    mix = WorkloadMix(sizes={2: 1, 8: 3}, queues={"a": 1, "b": 1}, priorities={0: 1, 9: 1}, request={"cpu": "1"})
    works = generated_jobs(400, 1, mix, CAPACITY)
    assert {work.members for work in works} == {2, 8}
    assert {work.queue for work in works} == {"a", "b"}
    assert {work.priority for work in works} == {0, 9}
    assert 250 < sum(work.members == 8 for work in works) < 350
    assert [work.arrival for work in works] == sorted(work.arrival for work in works)


@pytest.mark.parametrize("load", [0.5, 2.0])
def test_made_up_jobs_come_as_fast_as_the_load_says(load: float) -> None:
    works = generated_jobs(2000, 1, WorkloadMix(load=load), CAPACITY)
    gpu_seconds = sum(work.members * work.duration for work in works)
    assert gpu_seconds / (80 * works[-1].arrival) == pytest.approx(load, rel=0.15)
