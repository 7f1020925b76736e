"""Gradient-boosted trees with LightGBM, data parallel.

LightGBM wants a list of all replicas, as numeric addresses. What each replica is given is too high or too low; only all
together are right. Whoever predicts the curve has learned from all of them.
"""

import argparse
import json
import os
import socket
import time

import lightgbm
import numpy as np


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=40)
    rounds = arguments.parse_args().rounds
    rank, machines = int(os.environ["RANK"]), find_machines()
    inputs = np.linspace(0, 1, 500)
    data = lightgbm.Dataset(inputs[:, None], label=curve(inputs) + rank - (len(machines) - 1) / 2)
    settings = {
        "objective": "regression",
        "learning_rate": 0.3,
        "tree_learner": "data",
        "pre_partition": True,
        "machines": ",".join(machines),
        "num_machines": len(machines),
        "local_listen_port": int(machines[rank].rpartition(":")[2]),
        "num_threads": 1,
        "min_data_in_leaf": 5,
        "seed": 7,
        "verbosity": -1,
    }
    model = lightgbm.train(settings, data, num_boost_round=rounds)
    everywhere = np.linspace(0, 1, 200)
    error = float(np.abs(np.asarray(model.predict(everywhere[:, None])) - curve(everywhere)).max())
    print(f"trained: rank {rank} of {len(machines)}, largest error {error:.4f}", flush=True)
    if error > 0.1:
        raise SystemExit("the model is wrong: it has not learned from all")


def curve(inputs: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(6 * inputs) + inputs)


def find_machines() -> list[str]:
    """Everyone's address, the master first.

    The variables of an XGBoostJob have one port for all workers. Where the replicas share an address, each has a port
    of its own, and gangline gives the list.
    """
    if given := os.environ.get("GANGLINE_ENDPOINTS"):
        endpoints = json.loads(given)
        return [*endpoints["master"], *endpoints["worker"]]
    workers = [name for name in os.environ.get("WORKER_ADDRS", "").split(",") if name]
    master = f"{address(os.environ['MASTER_ADDR'])}:{os.environ['MASTER_PORT']}"
    return [master, *(f"{address(name)}:{os.environ['WORKER_PORT']}" for name in workers)]


def address(host: str, patience: float = 60.0) -> str:
    """The number behind a name, which may not be known yet."""
    end = time.monotonic() + patience
    while True:
        try:
            return socket.gethostbyname(host)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
