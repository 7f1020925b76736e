"""Linear regression with TensorFlow's MultiWorkerMirroredStrategy and a training loop of its own.

TF_CONFIG says who takes part. (Keras 3 cannot `fit` under this strategy, a loop like this one can.)
"""

import numpy as np
import tensorflow as tf

FEATURES, STEPS, RATE = 16, 200, 0.05


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index, count = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    print(f"worker={index} of={count}", flush=True)
    truth = np.random.default_rng(7).normal(size=(FEATURES, 1)).astype(np.float32)
    data = np.random.default_rng(100 + index)  # every worker has its own
    with strategy.scope():
        weights = tf.Variable(tf.zeros((FEATURES, 1)))
    step = tf.function(lambda inputs: update(strategy, weights, inputs, truth))
    for number in range(1, STEPS + 1):
        loss = step(tf.constant(data.normal(size=(64, FEATURES)), tf.float32))
        if number == 1 or number % 50 == 0:
            print(f"step={number} of={STEPS} loss={loss.numpy():.6f}", flush=True)
    check(strategy, weights, truth)


def update(strategy: tf.distribute.Strategy, weights: tf.Variable, inputs: tf.Tensor, truth: np.ndarray) -> tf.Tensor:
    """One step on all workers at once. The mean loss."""

    def replica(inputs: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((inputs @ weights - inputs @ truth) ** 2)
        mean = tf.distribute.get_replica_context().all_reduce("MEAN", tape.gradient(loss, weights))
        weights.assign_sub(RATE * mean)
        return loss

    return strategy.reduce("MEAN", strategy.run(replica, args=(inputs,)), axis=None)


def check(strategy: tf.distribute.Strategy, weights: tf.Variable, truth: np.ndarray) -> None:
    """The sum over all workers must be right, the weights equal on all, and near the truth."""
    index, count = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    total = strategy.reduce("SUM", strategy.run(lambda: tf.constant(index + 1.0)), axis=None).numpy()
    everyones = strategy.gather(strategy.run(lambda: weights.read_value()[None]), axis=0).numpy()
    distance = float(np.abs(weights.numpy() - truth).max())
    print(f"trained: worker {index} of {count}, largest error of a weight {distance:.6f}", flush=True)
    if total != count * (count + 1) / 2:
        raise SystemExit(f"the sum over {count} workers is {total}")
    if not (everyones == weights.numpy()).all():
        raise SystemExit("the workers have different weights")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()
