"""Linear regression with PaddlePaddle's data parallelism.

Start it as `python -m paddle.distributed.launch paddle_linear.py`: the launcher finds the others through PADDLE_MASTER
and gives every process its rank.
"""

import numpy as np
import paddle
import paddle.distributed as dist

FEATURES, STEPS = 16, 200


def main() -> None:
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank={rank} world={world}", flush=True)
    truth = paddle.to_tensor(np.random.default_rng(7).normal(size=(FEATURES, 1)).astype(np.float32))
    data = np.random.default_rng(100 + rank)
    model = paddle.DataParallel(paddle.nn.Linear(FEATURES, 1, bias_attr=False))
    optimizer = paddle.optimizer.SGD(0.05, parameters=model.parameters())
    for step in range(1, STEPS + 1):
        inputs = paddle.to_tensor(data.normal(size=(64, FEATURES)).astype(np.float32))
        loss = paddle.nn.functional.mse_loss(model(inputs), inputs @ truth)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        if step == 1 or step % 50 == 0:
            print(f"step={step} of={STEPS} loss={loss.item():.6f}", flush=True)
    check(model.parameters()[0], truth)


def check(weights: paddle.Tensor, truth: paddle.Tensor) -> None:
    """The sum over all ranks must be right, the weights equal on all, and near the truth."""
    rank, world = dist.get_rank(), dist.get_world_size()
    total = paddle.to_tensor([rank + 1.0])
    dist.all_reduce(total)
    everyones: list[paddle.Tensor] = []
    dist.all_gather(everyones, weights)
    distance = (weights - truth).abs().max().item()
    print(f"trained: rank {rank} of {world}, largest error of a weight {distance:.6f}", flush=True)
    if total.item() != world * (world + 1) / 2:
        raise SystemExit(f"the sum over {world} ranks is {total.item()}")
    if not all(paddle.equal_all(weights, other).item() for other in everyones):
        raise SystemExit("the ranks have different weights")
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


if __name__ == "__main__":
    main()
