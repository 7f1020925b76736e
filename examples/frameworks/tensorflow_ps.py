"""Linear regression with TensorFlow's ParameterServerStrategy.

The chief hands out steps, the workers take them whenever they are free, the weights are on the parameter servers.
Only the chief ends by itself: its end is the job's.
"""

import os

import numpy as np
import tensorflow as tf

FEATURES, STEPS, RATE = 16, 600, 0.02


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("ps", "worker"):
        print(f"{cluster.task_type}={cluster.task_id} serves", flush=True)
        spec = cluster.cluster_spec()
        server = tf.distribute.Server(spec, job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc")
        server.join()  # for ever
    else:
        coordinate(cluster)


def coordinate(cluster: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    truth = tf.random.stateless_normal((FEATURES, 1), seed=(7, 7))
    with strategy.scope():
        weights = tf.Variable(tf.zeros((FEATURES, 1)))
    print(f"the weights are on {weights.device}", flush=True)
    step = tf.function(lambda number: update(weights, truth, number))
    for done in range(0, STEPS, 100):
        losses = [coordinator.schedule(step, args=(tf.constant(done + each),)) for each in range(100)]
        coordinator.join()
        print(f"step={done + 100} of={STEPS} loss={losses[-1].fetch():.6f}", flush=True)
    check(weights, truth)
    os._exit(0)  # the coordinator's own end would wait for every worker that died, for ever


def update(weights: tf.Variable, truth: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """One step of one worker, on data of its own."""
    inputs = tf.random.stateless_normal((64, FEATURES), seed=tf.stack([100, number]))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((inputs @ weights - inputs @ truth) ** 2)
    weights.assign_sub(RATE * tape.gradient(loss, weights))
    return loss


def check(weights: tf.Variable, truth: tf.Tensor) -> None:
    distance = float(np.abs(weights.numpy() - truth.numpy()).max())
    print(f"trained: largest error of a weight {distance:.6f}", flush=True)
    if "/job:ps" not in weights.device:
        raise SystemExit("the weights were not on a parameter server")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()
