"""How log lines are printed."""

import pytest

from gangline.cli.logs.print import LogOptions, LogPrinter
from gangline.summary.log_lines import TimedLine

REPORT = '{"progress": {"step": 240, "total": 400, "loss": 0.1134}}'


def test_a_progress_line_is_printed_as_run_prints_it_and_others_stay(capsys: pytest.CaptureFixture[str]) -> None:
    write = LogPrinter(LogOptions())
    for text in (REPORT, '{"event": "progress"}', "plain", f"  {REPORT}"):
        write(TimedLine("", "worker-0", text))
    assert capsys.readouterr().out.splitlines() == [
        "worker-0| step 240/400  60 %  loss 0.113",
        'worker-0| {"event": "progress"}',
        "worker-0| plain",
        "worker-0| step 240/400  60 %  loss 0.113",
    ]


def test_raw_keeps_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    LogPrinter(LogOptions(raw=True))(TimedLine("", "worker-0", REPORT))
    assert capsys.readouterr().out == f"worker-0| {REPORT}\n"
