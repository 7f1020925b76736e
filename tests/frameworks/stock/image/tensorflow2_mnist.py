"""Stands for the program in the image: the mean of everyone's gradient, with MPI."""

import numpy as np
from mpi4py import MPI

world = MPI.COMM_WORLD
truth = np.random.default_rng(7).normal(size=64)
random = np.random.default_rng(100 + world.rank)
weights, gradient = np.zeros(64), np.empty(64)
for _ in range(300):
    images = random.normal(size=(128, 64))
    world.Allreduce(images.T @ (images @ (weights - truth)) / 128, gradient)
    weights -= 0.3 * gradient / world.size
error = float(np.abs(weights - truth).max())
print(f"trained: rank {world.rank} of {world.size}, largest error {error:.4f}", flush=True)
raise SystemExit(error > 0.01)
