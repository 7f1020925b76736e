"""How long a training still takes."""

from gangline.progress.eta import StepReport, estimated_remaining


def test_the_pace_since_the_report_before_goes_on() -> None:
    # 10 steps in 5 seconds, 80 are left.
    assert estimated_remaining(StepReport(10, 100.0), 20, 100, 105.0) == 40.0


def test_an_earlier_estimate_counts_half() -> None:
    # By the pace 40 seconds; 60 were left 5 seconds ago.
    assert estimated_remaining(StepReport(10, 100.0, 60.0), 20, 100, 105.0) == (40.0 + 55.0) / 2


def test_at_the_end_nothing_is_left() -> None:
    assert estimated_remaining(StepReport(10, 100.0), 100, 100, 105.0) == 0.0
    assert estimated_remaining(StepReport(10, 100.0), 101, 100, 105.0) == 0.0


def test_what_cannot_be_known_is_not_guessed() -> None:
    assert estimated_remaining(None, 20, 100, 105.0) is None
    assert estimated_remaining(StepReport(10, 100.0), 20, None, 105.0) is None
    # A restart.
    assert estimated_remaining(StepReport(10, 100.0, 60.0), 3, 100, 105.0) is None
    # Too close together, or a clock that went back.
    assert estimated_remaining(StepReport(10, 100.0), 20, 100, 100.5) is None
    assert estimated_remaining(StepReport(10, 100.0), 20, 100, 90.0) is None
    # Centuries.
    assert estimated_remaining(StepReport(10, 100.0), 10.001, 1e9, 10_000.0) is None


def test_while_no_step_is_done_the_earlier_estimate_runs_down() -> None:
    assert estimated_remaining(StepReport(10, 100.0, 60.0), 10, 100, 130.0) == 30.0
    assert estimated_remaining(StepReport(10, 100.0, 60.0), 10, 100, 200.0) == 0.0
