"""Linear regression on several processes with numpy alone: gangline run --nproc 4 -- python train_numpy.py

Each process has its own data. Rank 0 adds up the gradients of all and sends the sum back, so that all learn the same
weights. Also runs by itself, as one process: python train_numpy.py
"""

import json
import os
import time
from multiprocessing.connection import Client, Connection, Listener

import numpy as np
from numpy.typing import NDArray

STEPS, FEATURES = 200, 16
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
ADDRESS = os.environ.get("MASTER_ADDR", "localhost"), int(os.environ.get("MASTER_PORT", "29500"))


def connect() -> list[Connection]:
    """Rank 0: a connection to each of the others. The others: one to rank 0, which may start later."""
    if RANK == 0:
        with Listener(("", ADDRESS[1]), backlog=WORLD) as listener:
            return [listener.accept() for _ in range(WORLD - 1)]
    while True:
        try:
            return [Client(ADDRESS)]
        except OSError:
            time.sleep(0.1)


def all_reduce(values: NDArray[np.float64], peers: list[Connection]) -> NDArray[np.float64]:
    """The sum of the values of all processes."""
    if RANK > 0:
        peers[0].send_bytes(values.tobytes())
        return np.frombuffer(peers[0].recv_bytes())
    total = values + sum(np.frombuffer(peer.recv_bytes()) for peer in peers)
    for peer in peers:
        peer.send_bytes(total.tobytes())
    return total


print(f"rank {RANK} of {WORLD}", flush=True)
peers = connect()
truth, weights, data = np.linspace(-1, 1, FEATURES), np.zeros(FEATURES), np.random.default_rng(RANK)
for step in range(1, STEPS + 1):
    inputs = data.normal(size=(64, FEATURES))
    errors = inputs @ (weights - truth)
    weights -= 0.04 * all_reduce(inputs.T @ errors / len(inputs), peers) / WORLD
    loss = float(np.mean(errors**2))
    if step % 10 == 0:  # one line of JSON: a bar on the screen, docs/progress.md
        print(json.dumps({"progress": {"step": step, "total": STEPS, "loss": loss}}), flush=True)
print(f"trained: largest error of a weight {np.abs(weights - truth).max():.6f}", flush=True)
all_reduce(weights, peers)  # the job ends with rank 0: it waits for the others
