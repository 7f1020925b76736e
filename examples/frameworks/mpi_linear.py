"""Linear regression with MPI: every rank computes a gradient on its own data, an all-reduce makes the mean.

Start it as `mpirun python -m mpi4py mpi_linear.py`: so a rank that fails ends them all. Without `-m mpi4py` the
others would wait for it.
"""

import socket

import numpy as np
from mpi4py import MPI

FEATURES, STEPS, RATE = 16, 200, 0.05


def main() -> None:
    world = MPI.COMM_WORLD
    print(f"rank={world.rank} world={world.size} host={socket.gethostname()}", flush=True)
    truth = np.random.default_rng(7).normal(size=FEATURES)
    data = np.random.default_rng(100 + world.rank)
    weights, gradient = np.zeros(FEATURES), np.empty(FEATURES)
    for step in range(1, STEPS + 1):
        inputs = data.normal(size=(64, FEATURES))
        errors = inputs @ (weights - truth)
        world.Allreduce(2 * inputs.T @ errors / len(inputs), gradient, op=MPI.SUM)
        weights -= RATE * gradient / world.size
        if world.rank == 0 and (step == 1 or step % 50 == 0):
            print(f"step={step} of={STEPS} loss={np.mean(errors**2):.6f}", flush=True)
    check(world, weights, truth)


def check(world: MPI.Intracomm, weights: np.ndarray, truth: np.ndarray) -> None:
    """The sum over all ranks must be right, the weights equal on all, and near the truth."""
    total = world.allreduce(world.rank + 1)
    equal = all(np.array_equal(weights, other) for other in world.allgather(weights))
    distance = float(np.abs(weights - truth).max())
    print(f"trained: rank {world.rank} of {world.size}, largest error of a weight {distance:.6f}", flush=True)
    if total != world.size * (world.size + 1) / 2:
        raise SystemExit(f"the sum over {world.size} ranks is {total}")
    if not equal:
        raise SystemExit("the ranks have different weights")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()
