"""Linear regression with a parameter server: synchronous data-parallel SGD over sockets, numpy only.

Roles come from TF_CONFIG, as for any TensorFlow job. The parameter server holds the weights. In every step each
worker computes a gradient on its own data and sends it; when all have, the server takes the mean, updates the
weights and sends them to everyone. A worker that was lost is waited for: when it comes back it is told the weights
and the step, and everyone goes on from there.
"""

import argparse
import json
import os
import socket
import socketserver
import threading
import time
from io import BufferedRWPair
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

FEATURES = 16


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=200)
    # From a variable, so that a sweep can try some: gangline sweep tfjob-numpy.yaml --set RATE=0.01,0.05,0.2
    arguments.add_argument("--rate", type=float, default=float(os.environ.get("RATE", "0.05")))
    arguments.add_argument("--pace", type=float, default=0.0, help="seconds to wait in every step, to be watched")
    wanted = arguments.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    if task["type"] == "ps":
        serve(cluster["ps"][task["index"]], workers=len(cluster["worker"]), rate=wanted.rate)
    else:
        train(cluster["ps"][0], task["index"], wanted.steps, wanted.pace)


class Weights:
    """The model. A round ends when every worker has sent its gradient."""

    def __init__(self, workers: int, rate: float) -> None:
        self._values = np.zeros(FEATURES)
        self._gradients: dict[int, Vector] = {}
        self._workers, self._rate = workers, rate
        self._round = 0
        self._changed = threading.Condition()

    def now(self) -> dict[str, Any]:
        """Where we are, for a worker that comes, or comes back."""
        with self._changed:
            return {"step": self._round, "weights": self._values.tolist()}

    def step(self, worker: int, gradient: Vector) -> Vector:
        """Give a gradient, get the weights of the next round. Given twice in one round, the later one counts."""
        with self._changed:
            self._gradients[worker] = gradient
            this = self._round
            if len(self._gradients) == self._workers:
                self._values -= self._rate * np.mean(list(self._gradients.values()), axis=0)
                self._gradients.clear()
                self._round += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._round > this)
            return self._values.copy()


def serve(address: str, workers: int, rate: float) -> None:
    """Answer gradients with weights, one line of JSON each, until stopped."""
    weights = Weights(workers, rate)

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            worker = json.loads(self.rfile.readline())["worker"]
            try:
                done = self.talk(worker)
            except OSError:
                done = False
            if not done:
                print(f"lost worker {worker}, waiting for it", flush=True)

        def talk(self, worker: int) -> bool:
            """Until it says that it is done, or is gone."""
            self.tell(weights.now())
            for line in self.rfile:
                gradient = json.loads(line)
                if gradient is None:
                    return True
                self.tell(weights.step(worker, np.array(gradient)).tolist())
            return False

        def tell(self, what: object) -> None:
            self.wfile.write(json.dumps(what).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("", int(address.rsplit(":", 1)[1])), Session) as server:
        print(f"parameter server for {workers} workers", flush=True)
        server.serve_forever()


def train(ps: str, index: int, steps: int, pace: float) -> None:
    """Find the same weights as everyone else, from this worker's own data."""
    truth = np.random.default_rng(7).normal(size=FEATURES)
    with connect(ps) as link, link.makefile("rwb") as lines:
        began = exchange(lines, {"worker": index})
        weights, done = np.array(began["weights"]), began["step"]
        if done:
            print(f"back at step {done}", flush=True)
        data = np.random.default_rng((100 + index, done))
        for step in range(done + 1, steps + 1):
            inputs = data.normal(size=(64, FEATURES))
            errors = inputs @ (weights - truth)
            tell(step, steps, float(np.mean(errors**2)))
            time.sleep(pace)
            weights = np.array(exchange(lines, (inputs.T @ errors / len(inputs)).tolist()))
        lines.write(b"null\n")
    distance = float(np.abs(weights - truth).max())
    print(f"trained: largest error of a weight {distance:.6f}", flush=True)
    if distance > 0.05:
        raise SystemExit("the weights are wrong: this was no training")


def tell(step: int, steps: int, loss: float) -> None:
    """For people now and then; for gangline (docs/progress.md) a bit more often."""
    if step == 1 or step % max(50, steps // 4) == 0:
        print(f"step={step} of={steps} loss={loss:.6f}", flush=True)
    if step == 1 or step % 5 == 0:
        print(json.dumps({"progress": {"step": step, "total": steps, "loss": round(loss, 9)}}), flush=True)


def exchange(lines: BufferedRWPair, said: object) -> Any:
    """Say one thing, hear one. Raises `ConnectionError` when the server is gone."""
    lines.write(json.dumps(said).encode() + b"\n")
    lines.flush()
    answer = lines.readline()
    if not answer:
        raise ConnectionError("the parameter server is gone")
    return json.loads(answer)


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
