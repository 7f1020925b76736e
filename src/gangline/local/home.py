"""The folder of a plane that stays: its state, certificates, token, port, and its kubeconfig."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline.apiserver.store.folder_lock import folder_lock, lock_holder
from gangline.base.errors import InputError
from gangline.base.files import write_private
from gangline.kube.config.access import PlaneAccess
from gangline.node.ports import PLANE_PORTS, reserve_port


class PlaneLock:
    """The process that runs the plane of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid_file = folder, folder / "pid"

    @contextmanager
    def acquire(self) -> Iterator[None]:
        """Keep other processes from running this plane until the block ends. Raises `InputError` when one does."""
        with folder_lock(self._folder):
            try:
                yield
            finally:
                self.clear_ready()

    def mark_ready(self) -> None:
        """Record that this process, which holds the lock, is ready."""
        write_private(self._pid_file, str(os.getpid()).encode())

    def clear_ready(self) -> None:
        """Remove the record, also one that a killed process left."""
        self._pid_file.unlink(missing_ok=True)

    def running_pid(self) -> int | None:
        """The process that runs this plane and is ready; None if there is none."""
        # The file first: a client that waits for a plane must not touch the lock that the plane is about to take.
        return lock_holder(self._folder) if self._pid_file.exists() else None


class PlaneHome:
    """The folder of one plane. Only its owner can read it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, PlaneLock(folder)
        self.state, self.certificates, self.pods = folder / "state", folder / "certificates", folder / "pods"
        # Signs tokens of service accounts, so that they stay valid after a restart.
        self.service_account_key = folder / "service-account-key.json"
        # Archived runs; see `gangline.local.archive.runs`.
        self.runs = folder / "runs"
        # What changed, and when; see `gangline.history`.
        self.history = folder / "history"
        # Files that programs wrote into their jobs' folders. They belong to the user: nothing here removes them.
        self.artifacts = folder / "artifacts"
        self.kubeconfig_file, self.log_file = folder / "kubeconfig", folder / "log"
        self._port_file = folder / "port"

    def create_folder(self) -> None:
        """Create the folder. Raises `InputError`."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be used: {error.strerror}; choose another with --dir") from error

    def ensure_token(self) -> str:
        """The administrator's token, created once."""
        file = self.folder / "token"
        token = file.read_text().strip() if file.exists() else ""
        if not token:
            token = secrets.token_urlsafe(32)
            write_private(file, token.encode(), durable=True)
        return token

    def choose_port(self, requested: int = 0) -> int:
        """The requested port, else the saved one, else a free one."""
        saved = self._port_file.read_text().strip() if self._port_file.exists() else ""
        return requested or (int(saved) if saved.isdecimal() else 0) or _free_port()

    def save_port(self, port: int) -> None:
        """Save the port for the next start. Call it once the server listens: a taken port would fail every time."""
        write_private(self._port_file, str(port).encode())

    def write_kubeconfig(self, access: PlaneAccess) -> None:
        """Write the kubeconfig. Only its owner can read it, because it has the token."""
        import yaml  # slow to import, and a plane without a folder does not need it

        write_private(self.kubeconfig_file, yaml.safe_dump(access.kubeconfig(), sort_keys=False).encode())


def _free_port() -> int:
    with reserve_port(PLANE_PORTS) as reserved:
        number: int = reserved.getsockname()[1]
        return number
