from gangline.frameworks.memo import LastResult
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from support.builders.teams import env_pairs, env_text, make_framework_job, member_pod_edits


def test_the_same_objects_are_asked_about_once() -> None:
    asked: list[str] = []
    last: LastResult[int] = LastResult()
    first, second = object(), object()

    def answer() -> int:
        asked.append("")
        return len(asked)

    assert [last.result_for(answer, first, second) for _ in range(3)] == [1, 1, 1]
    assert last.result_for(answer, second, first) == 2
    assert last.result_for(answer, first) == 3
    assert last.result_for(answer, first, second) == 4


def test_equal_objects_are_not_the_same() -> None:
    last: LastResult[str] = LastResult()
    assert last.result_for(lambda: "one", [1]) == "one"
    assert last.result_for(lambda: "two", [1]) == "two"


def test_one_job_is_not_told_of_another() -> None:
    tensorflow = TensorFlow()
    for name in ("one", "two"):
        assert (
            f"{name}-worker-1.ml"
            in env_pairs(member_pod_edits(tensorflow, make_framework_job(tensorflow, {"Worker": 2}, name), "Worker"))[
                0
            ][1]
        )
    xgboost = XGBoost()
    for name in ("one", "two"):
        job = make_framework_job(xgboost, {"Master": 1, "Worker": 1}, name)
        assert env_text(member_pod_edits(xgboost, job, "Worker")).endswith(f"WORKER_ADDRS={name}-worker-0")
