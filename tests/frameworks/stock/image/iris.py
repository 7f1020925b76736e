"""Stands for the program in the image: classifies made-up flowers with XGBoost; the master runs the tracker."""

import argparse
import os
from pathlib import Path

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

options = argparse.ArgumentParser()
options.add_argument("--job_type", choices=["Train"], required=True)
options.add_argument("--xgboost_parameter", required=True)
options.add_argument("--n_estimators", type=int, required=True)
options.add_argument("--learning_rate", type=float, required=True)
options.add_argument("--model_path", type=Path)
options.add_argument("--model_storage_type")
given = options.parse_args()

address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
tracker = RabitTracker(n_workers=world, host_ip=address, port=port, sortby="task") if rank == 0 else None
if tracker:
    tracker.start()
settings = dict(part.split(":", 1) for part in given.xgboost_parameter.split(","))
random = np.random.default_rng(7 + rank)
kinds = random.integers(3, size=150)
flowers = np.eye(3, 4)[kinds] * 3 + random.normal(size=(150, 4)) / 2
with collective.CommunicatorContext(
    dmlc_communicator="rabit", dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=str(rank)
):
    data = xgboost.DMatrix(flowers, label=kinds)
    model = xgboost.train({**settings, "eta": given.learning_rate, "nthread": 1}, data, given.n_estimators)
    right = np.array([(model.predict(data).argmax(axis=1) == kinds).mean()])
    accuracy = collective.allreduce(right, collective.Op.SUM)[0] / world
if tracker:
    tracker.wait_for()
print(f"trained: rank {rank} of {world}, accuracy {accuracy:.2f}", flush=True)
raise SystemExit(bool(accuracy < 0.9))
