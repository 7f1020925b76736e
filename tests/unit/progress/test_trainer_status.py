"""What Kubeflow Trainer's clients post, as progress."""

import json

import pytest

from gangline.progress.line import Progress
from gangline.progress.trainer_status import BadReport, decode_trainer_status, progress_of


def decoded(before: Progress | None = None, **status: object) -> Progress:
    return progress_of(decode_trainer_status(json.dumps({"trainerStatus": status}).encode()), before)


def metrics(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


def test_the_reports_of_transformers_are_one_training_in_steps() -> None:
    # As transformers 5 sends them: the first, one in between, and the last, which names no steps.
    first = decoded(
        None, progressPercentage=0, lastUpdatedTime="2026-11-18T04:00:00+00:00", metrics=metrics(total_steps="30")
    )
    assert first == Progress(0, 30)
    between = decoded(
        first,
        progressPercentage=33,
        estimatedRemainingSeconds=12,
        metrics=metrics(loss="0.75", learning_rate="5e-05", current_step="10", total_steps="30", current_epoch="0.33"),
    )
    numbers = {"loss": 0.75, "learning_rate": 5e-05, "current_epoch": 0.33}
    assert between == Progress(10, 30, numbers, 12)
    last = decoded(between, progressPercentage=100, estimatedRemainingSeconds=0, metrics=metrics(train_loss="0.5"))
    assert last == Progress(30, 30, {"train_loss": 0.5}, 0)


def test_without_steps_the_percentage_is_the_step() -> None:
    assert decoded(None, progressPercentage=45) == Progress(45, 100)
    assert decoded(Progress(45, 100), progressPercentage=46) == Progress(46, 100)
    # Not the last step before the end.
    assert decoded(Progress(0, 7), progressPercentage=99) == Progress(6, 7)


def test_metrics_alone_leave_the_step_where_it_was() -> None:
    assert decoded(Progress(3, 9), metrics=metrics(loss="1")) == Progress(3, 9, {"loss": 1})
    assert decoded(None, metrics=metrics(loss="1")) == Progress(0, None, {"loss": 1})
    assert decoded(None) == Progress(0)


def test_values_that_are_no_numbers_are_skipped() -> None:
    values = metrics(a="nan", b="inf", c="-Infinity", d="text", e="", f="1e400", g="7")
    assert decoded(None, progressPercentage=1, metrics=values).metrics == {"g": 7}
    odd = [{"name": "a", "value": None}, {"name": "b", "value": True}, {"name": "c", "value": 2.5}, {"name": "d"}]
    assert decoded(None, progressPercentage=1, metrics=odd).metrics == {"c": 2.5}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"null", 'the body has no object "trainerStatus"'),
        (b'{"trainerStatus": []}', 'the body has no object "trainerStatus"'),
        (b'{"trainerStatus": {"progressPercentage": -1}}', "trainerStatus.progressPercentage: is -1"),
        (b'{"trainerStatus": {"progressPercentage": NaN}}', "trainerStatus.progressPercentage: is not a number"),
        (b'{"trainerStatus": {"progressPercentage": true}}', "trainerStatus.progressPercentage: is not a number"),
        (b'{"trainerStatus": {"estimatedRemainingSeconds": -2}}', "trainerStatus.estimatedRemainingSeconds: is -2"),
        (b'{"trainerStatus": {"metrics": [3]}}', "trainerStatus.metrics: has an item without a name"),
        (b'{"trainerStatus": {"metrics": [{"value": "1"}]}}', "trainerStatus.metrics: has an item without a name"),
    ],
)
def test_what_is_no_report_is_refused_with_what_to_send(body: bytes, message: str) -> None:
    with pytest.raises(BadReport) as refused:
        decode_trainer_status(body)
    assert str(refused.value).startswith(message)
    assert "; send" in str(refused.value)
