"""Gradient-boosted trees with XGBoost: the master runs the tracker through which all replicas find each other.

What each replica is given is too high or too low; only all together are right. Whoever predicts the curve has learned
from all of them.
"""

import os
import socket
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker


def main() -> None:
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    tracker = None
    if rank == 0:
        tracker = RabitTracker(n_workers=world, host_ip=address, port=port, sortby="task")
        tracker.start()
    else:
        wait_for(address, port)
    with collective.CommunicatorContext(
        dmlc_communicator="rabit", dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=str(rank)
    ):
        train(rank, world)
    if tracker:
        tracker.wait_for()  # until all have left


def train(rank: int, world: int) -> None:
    inputs = np.linspace(0, 1, 500)
    data = xgboost.DMatrix(inputs[:, None], label=curve(inputs) + rank - (world - 1) / 2)
    settings = {"objective": "reg:squarederror", "max_depth": 4, "eta": 0.3, "nthread": 1, "seed": 7}
    model = xgboost.train(
        settings, data, num_boost_round=40, evals=[(data, "train")], verbose_eval=10 if rank == 0 else False
    )
    check(model, rank, world)


def curve(inputs: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(6 * inputs) + inputs)


def check(model: xgboost.Booster, rank: int, world: int) -> None:
    """The sum over all ranks must be right, the model the same on all, and right."""
    total = collective.allreduce(np.array([rank + 1.0]), collective.Op.SUM)[0]
    same = collective.broadcast(bytes(model.save_raw()), root=0) == bytes(model.save_raw())
    everywhere = np.linspace(0, 1, 200)
    error = float(np.abs(model.inplace_predict(everywhere[:, None]) - curve(everywhere)).max())
    print(f"trained: rank {rank} of {world}, largest error {error:.4f}", flush=True)
    if total != world * (world + 1) / 2:
        raise SystemExit(f"the sum over {world} ranks is {total}")
    if not same:
        raise SystemExit("this rank has another model than rank 0")
    if error > 0.1:
        raise SystemExit("the model is wrong: it has not learned from all")


def wait_for(host: str, port: int, patience: float = 300.0) -> None:
    """The master may start later than we do. XGBoost would give up soon, and at once on a name not yet known."""
    end = time.monotonic() + patience
    while True:
        try:
            socket.create_connection((host, port)).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


if __name__ == "__main__":
    main()
