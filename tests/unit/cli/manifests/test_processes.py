"""How `--nproc` is read."""

import pytest

from gangline.base.errors import InputError
from gangline.cli.manifests.processes import Machine, ProcessCount, process_count, this_machine

LAPTOP, WORKSTATION = Machine(cores=8), Machine(cores=8, gpus=("amd", "amd"))


@pytest.mark.parametrize(
    ("text", "machine", "most", "least"),
    [
        ("4", LAPTOP, 4, 4),
        ("2:4", LAPTOP, 4, 2),
        ("3:3", LAPTOP, 3, 3),
        ("cpu", WORKSTATION, 8, 8),
        ("gpu", WORKSTATION, 2, 2),
        ("auto", WORKSTATION, 2, 2),
        ("auto", LAPTOP, 8, 8),
    ],
)
def test_a_number_a_range_or_what_the_machine_has(text: str, machine: Machine, most: int, least: int) -> None:
    count = process_count(text, machine)
    assert count == ProcessCount(most, least)
    assert count.is_elastic == (most > least)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "--nproc 0: expected 1 or more"),
        ("0:2", "--nproc 0:2: expected 1 or more"),
        ("4:2", "--nproc 4:2: a range begins with the smaller number; write: --nproc 2:4"),
        ("many", "--nproc many: expected a number, a range such as 2:4, or auto, cpu or gpu"),
        ("1.5", "--nproc 1.5: expected a number"),
        ("gpu", "--nproc gpu: no GPU was detected on this machine; write --nproc cpu, or a number"),
    ],
)
def test_other_words_are_an_error_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        process_count(text, LAPTOP)
    assert str(raised.value).startswith(message)


def test_this_machine_has_a_core() -> None:
    assert this_machine().cores >= 1
