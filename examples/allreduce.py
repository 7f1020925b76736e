"""Linear regression by all-reduce over sockets, numpy only: every member learns the same weights from its own data.

The member of rank 0 listens, adds up the gradients of all and sends the sum back. Where it listens, how many members
there are and which one this is comes from the variables of the job's kind: PyTorchJob and XGBoostJob, JAXJob,
PaddleJob. For an MPIJob see `launch.py`.
"""

import os
import socket
import time

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

FEATURES, STEPS, RATE = 16, 200, 0.1


def place() -> tuple[str, int, int, int | None]:
    """Host and port of rank 0, how many members there are, and this one's rank: None if rank 0 gives it."""
    env = os.environ
    if "COORDINATOR_ADDRESS" in env:
        return (
            env["COORDINATOR_ADDRESS"],
            int(env["COORDINATOR_PORT"]),
            int(env["NUM_PROCESSES"]),
            int(env["PROCESS_ID"]),
        )
    if "PADDLE_MASTER" in env:
        host, _, port = env["PADDLE_MASTER"].rpartition(":")
        # A PaddleJob tells nobody its rank, but only its first member is told its own address.
        return host, int(port), int(env["PADDLE_NNODES"]), 0 if "POD_IP_DUMMY" in env else None
    return env["MASTER_ADDR"], int(env["MASTER_PORT"]), int(env["WORLD_SIZE"]), int(env["RANK"])


class Team:
    """Everyone's sum: rank 0 has a line to each of the others, and they have one to it."""

    def __init__(self, host: str, port: int, size: int, rank: int | None) -> None:
        self.leads = rank == 0
        if self.leads:
            with socket.create_server(("", port), backlog=size) as server:
                self._lines = [server.accept()[0] for _ in range(size - 1)]
            for number, line in enumerate(self._lines, 1):
                line.sendall(bytes((number,)))
            self.rank = 0
        else:
            self._lines = [self._connect(host, port)]
            given = self._lines[0].recv(1)[0]
            self.rank = given if rank is None else rank

    def sum(self, values: Vector) -> Vector:
        if not self.leads:
            self._lines[0].sendall(values.tobytes())
            return self._read(self._lines[0], values)
        total = values + np.sum([self._read(line, values) for line in self._lines], axis=0)
        for line in self._lines:
            line.sendall(total.tobytes())
        return np.asarray(total)

    def leave(self) -> None:
        """Rank 0 goes last: the others have said all they have to say when their lines are closed.

        Some kinds of jobs are done when it is, and what the others are about by then is lost.
        """
        if self.leads:
            for line in self._lines:
                line.recv(1)

    @staticmethod
    def _read(line: socket.socket, like: Vector) -> Vector:
        data = b""
        while len(data) < like.nbytes:
            more = line.recv(like.nbytes - len(data))
            if not more:
                raise SystemExit("a member of the team is gone: Connection closed by peer")
            data += more
        return np.frombuffer(data)

    @staticmethod
    def _connect(host: str, port: int, patience: float = 60.0) -> socket.socket:
        """Rank 0 may start later than we do, and its name may not be known yet."""
        end = time.monotonic() + patience
        while True:
            try:
                return socket.create_connection((host, port))
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)


def main() -> None:
    host, port, size, rank = place()
    team = Team(host, port, size, rank)
    truth = np.random.default_rng(7).normal(size=FEATURES)
    data = np.random.default_rng(100 + team.rank)
    weights = np.zeros(FEATURES)
    for step in range(1, STEPS + 1):
        inputs = data.normal(size=(64, FEATURES))
        errors = inputs @ (weights - truth)
        if step == 1 or step % 50 == 0:
            print(f"step={step} of={STEPS} loss={np.mean(errors**2):.6f}", flush=True)
        weights -= RATE * team.sum(inputs.T @ errors / len(inputs)) / size
    alike = team.sum(weights) / size
    distance = float(np.abs(weights - truth).max())
    print(f"trained: rank {team.rank} of {size}, largest error of a weight {distance:.6f}", flush=True)
    if distance > 0.05 or not np.allclose(alike, weights):
        raise SystemExit("the weights are wrong: this was no training")
    team.leave()


if __name__ == "__main__":
    main()
