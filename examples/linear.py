"""Linear regression with a parameter server: synchronous data-parallel SGD over sockets, numpy only.

Roles come from TF_CONFIG, as for any TensorFlow job. The parameter server holds the weights. In every step each
worker computes a gradient on its own data and sends it; when all have, the server takes the mean, updates the
weights and sends them to everyone.
"""

import argparse
import json
import os
import socket
import socketserver
import threading
import time
from io import BufferedRWPair

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

FEATURES = 16
RATE = 0.05


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=200)
    steps = arguments.parse_args().steps
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    if task["type"] == "ps":
        serve(cluster["ps"][task["index"]], workers=len(cluster["worker"]))
    else:
        train(cluster["ps"][0], task["index"], steps)


class Weights:
    """The model. A round ends when every worker that is here has sent its gradient."""

    def __init__(self, workers: int) -> None:
        self._values = np.zeros(FEATURES)
        self._gradients: dict[int, Vector] = {}
        self._missing = workers  # a round cannot end before all have come once
        self._here: set[int] = set()
        self._round = 0
        self._changed = threading.Condition()

    def join(self, worker: int) -> None:
        with self._changed:
            self._here.add(worker)
            self._missing -= 1

    def leave(self, worker: int) -> None:
        with self._changed:
            self._here.discard(worker)
            self._gradients.pop(worker, None)
            self._end_round()

    def step(self, worker: int, gradient: Vector) -> Vector:
        """Give a gradient, get the weights of the next round."""
        with self._changed:
            self._gradients[worker] = gradient
            this = self._round
            self._end_round()
            self._changed.wait_for(lambda: self._round > this)
            return self._values.copy()

    def _end_round(self) -> None:
        if self._missing <= 0 and self._gradients and self._gradients.keys() == self._here:
            self._values -= RATE * np.mean(list(self._gradients.values()), axis=0)
            self._gradients.clear()
            self._round += 1
            self._changed.notify_all()


def serve(address: str, workers: int) -> None:
    """Answer gradients with weights, one line of JSON each, until stopped."""
    weights = Weights(workers)

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            worker = self.client_address[1]
            weights.join(worker)
            try:
                for line in self.rfile:
                    answer = weights.step(worker, np.array(json.loads(line)))
                    self.wfile.write(json.dumps(answer.tolist()).encode() + b"\n")
            finally:
                weights.leave(worker)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("", int(address.rsplit(":", 1)[1])), Session) as server:
        print(f"parameter server for {workers} workers", flush=True)
        server.serve_forever()


def train(ps: str, index: int, steps: int) -> None:
    """Find the same weights as everyone else, from this worker's own data."""
    truth = np.random.default_rng(7).normal(size=FEATURES)
    data = np.random.default_rng(100 + index)
    weights = np.zeros(FEATURES)
    with connect(ps) as link, link.makefile("rwb") as lines:
        for step in range(1, steps + 1):
            inputs = data.normal(size=(64, FEATURES))
            errors = inputs @ (weights - truth)
            if step == 1 or step % 50 == 0:
                print(f"step={step} of={steps} loss={np.mean(errors**2):.6f}", flush=True)
            weights = exchange(lines, inputs.T @ errors / len(inputs))
    distance = float(np.abs(weights - truth).max())
    print(f"trained: largest error of a weight {distance:.6f}", flush=True)
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


def exchange(lines: BufferedRWPair, gradient: Vector) -> Vector:
    lines.write(json.dumps(gradient.tolist()).encode() + b"\n")
    lines.flush()
    return np.array(json.loads(lines.readline()))


def connect(address: str, patience: float = 60.0) -> socket.socket:
    """The parameter server may start later than we do."""
    host, port = address.rsplit(":", 1)
    end = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
