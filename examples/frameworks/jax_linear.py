"""Linear regression with JAX: one program over the devices of all processes.

The batch is spread over the processes, the weights are on all of them. The compiler puts the all-reduce where the
gradient crosses from one to the other.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

FEATURES, STEPS, RATE = 16, 200, 0.05


def main() -> None:
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
        num_processes=int(os.environ["NUM_PROCESSES"]),
        process_id=int(os.environ["PROCESS_ID"]),
    )
    print(f"process={jax.process_index()} of={jax.process_count()} devices={jax.device_count()}", flush=True)
    train()
    jax.distributed.shutdown()


def train() -> None:
    truth = np.random.default_rng(7).normal(size=FEATURES).astype(np.float32)
    data = np.random.default_rng(100 + jax.process_index())  # every process has its own
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    spread, everywhere = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("batch",), ()))
    update = jax.jit(step, out_shardings=(everywhere, everywhere))
    weights = jax.device_put(jnp.zeros(FEATURES), everywhere)
    for number in range(1, STEPS + 1):
        inputs = data.normal(size=(64, FEATURES)).astype(np.float32)
        batch = (jax.make_array_from_process_local_data(spread, part) for part in (inputs, inputs @ truth))
        weights, loss = update(weights, *batch)
        if number == 1 or number % 50 == 0:
            print(f"step={number} of={STEPS} loss={loss:.6f}", flush=True)
    check(np.asarray(weights), truth)


def step(weights: jax.Array, inputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        return jnp.mean((inputs @ weights - labels) ** 2)

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - RATE * gradient, value


def check(weights: np.ndarray, truth: np.ndarray) -> None:
    """All processes must have spoken, have the same weights, and be near the truth."""
    numbers = multihost_utils.process_allgather(np.array(jax.process_index()))
    everyones = multihost_utils.process_allgather(weights)
    distance = float(np.abs(weights - truth).max())
    print(f"trained: largest error of a weight {distance:.6f}", flush=True)
    if sorted(numbers.ravel().tolist()) != list(range(jax.process_count())):
        raise SystemExit(f"{jax.process_count()} processes, but these answered: {numbers}")
    if not (everyones == weights).all():
        raise SystemExit("the processes have different weights")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()
