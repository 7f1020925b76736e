from gangline.frameworks.memo import Last
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from support.builders.teams import env, job_of, wired, words


def test_the_same_objects_are_asked_about_once() -> None:
    asked: list[str] = []
    last: Last[int] = Last()
    first, second = object(), object()

    def answer() -> int:
        asked.append("")
        return len(asked)

    assert [last.of(answer, first, second) for _ in range(3)] == [1, 1, 1]
    assert last.of(answer, second, first) == 2
    assert last.of(answer, first) == 3
    assert last.of(answer, first, second) == 4


def test_equal_objects_are_not_the_same() -> None:
    last: Last[str] = Last()
    assert last.of(lambda: "one", [1]) == "one"
    assert last.of(lambda: "two", [1]) == "two"


def test_one_job_is_not_told_of_another() -> None:
    tensorflow = TensorFlow()
    for name in ("one", "two"):
        assert (
            f"{name}-worker-1.ml"
            in env(wired(tensorflow, job_of(tensorflow, {"Worker": 2}, name), "Worker"))[0][1]
        )
    xgboost = XGBoost()
    for name in ("one", "two"):
        job = job_of(xgboost, {"Master": 1, "Worker": 1}, name)
        assert words(wired(xgboost, job, "Worker")).endswith(f"WORKER_ADDRS={name}-worker-0")
