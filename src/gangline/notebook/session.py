"""The control plane and the clients of one notebook. They end with its kernel."""

import os
from pathlib import Path

from gangline.sdk.client import TrainingClient
from gangline.sdk.local_plane import PlaneProcess


class NotebookSession:
    """Starts a plane for the first cell that needs one, and keeps it: jobs of earlier cells can be asked about."""

    def __init__(self) -> None:
        self._plane: PlaneProcess | None = None
        self._clients: dict[str | None, TrainingClient] = {}

    def client(self, context: str | None) -> TrainingClient:
        """The client of a context; None is this machine. Raises `PlaneStartError`."""
        if context not in self._clients:
            if context is not None:
                client = TrainingClient(context=context, local=False)
            else:
                self._plane = PlaneProcess.start(Path.cwd())
                client = TrainingClient(config_file=str(self._plane.kubeconfig))
            self._clients[context] = client
        return self._clients[context]

    def environment(self) -> dict[str, str]:
        """The variables of a command that shall find the plane of this notebook, if there is one."""
        plane = {} if self._plane is None else {"KUBECONFIG": str(self._plane.kubeconfig)}
        return {**os.environ, **plane}

    def close(self) -> None:
        """Close the clients, and end the plane with all its processes. Idempotent."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._plane is not None:
            self._plane.close()
            self._plane = None
