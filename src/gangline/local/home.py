"""The folder of a plane that stays: its state, certificates, token, port, and the kubeconfig that leads to it."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import yaml

from gangline.apiserver.store.folder_lock import folder_lock, lock_holder
from gangline.base.errors import InputError
from gangline.base.files import write_private
from gangline.kube.config.access import PlaneAccess
from gangline.node.ports import PLANE_PORTS, reserve_port


class PlaneHome(msgspec.Struct, frozen=True):
    """Where everything of one plane is. Only its owner can read it."""

    folder: Path

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def pods(self) -> Path:
        return self.folder / "pods"

    @property
    def runs(self) -> Path:
        """What ended runs left; see `gangline.local.archive.runs`."""
        return self.folder / "runs"

    @property
    def artifacts(self) -> Path:
        """What programs wrote into the folders of their jobs. Theirs: nothing here removes it."""
        return self.folder / "artifacts"

    @property
    def kubeconfig_file(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def log_file(self) -> Path:
        return self.folder / "log"

    def create_folder(self) -> None:
        """Make the folder. Raises `InputError`."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder}: cannot be used: {error.strerror}; choose another with --dir") from error

    def ensure_token(self) -> str:
        """The administrator's token: made once, kept."""
        file = self.folder / "token"
        if not file.exists():
            write_private(file, secrets.token_urlsafe(32).encode())
        return file.read_text().strip()

    def choose_port(self, wanted: int = 0) -> int:
        """The port: the one asked for, else the one that was kept, else a free one."""
        kept = self._port_file.read_text().strip() if self._port_file.exists() else ""
        return wanted or (int(kept) if kept.isdecimal() else 0) or _free_port()

    def save_port(self, port: int) -> None:
        """For next time. Only one that could be listened on: another would be in the way again and again."""
        write_private(self._port_file, str(port).encode())

    @property
    def _port_file(self) -> Path:
        return self.folder / "port"

    def write_kubeconfig(self, server: str, ca: Path) -> None:
        """For kubectl and everyone else; readable by its owner only, because of the token."""
        config = PlaneAccess(server, self.ensure_token(), ca).kubeconfig()
        write_private(self.kubeconfig_file, yaml.safe_dump(config, sort_keys=False).encode())

    # The process that runs it

    @contextmanager
    def lock(self) -> Iterator[None]:
        """No other process runs this plane until the block ends. Raises `InputError` when one does."""
        with folder_lock(self.folder):
            try:
                yield
            finally:
                self.clear_ready()

    def mark_ready(self) -> None:
        """This process, which has claimed the plane, is ready."""
        write_private(self._pid_file, str(os.getpid()).encode())

    def clear_ready(self) -> None:
        """Nobody is ready. Undoes what a process that was killed left behind."""
        self._pid_file.unlink(missing_ok=True)

    def running_pid(self) -> int | None:
        """The process that runs this plane, if one does and is ready."""
        # The file first: whoever waits for a plane to start must not touch the lock it is about to take.
        return lock_holder(self.folder) if self._pid_file.exists() else None

    @property
    def _pid_file(self) -> Path:
        return self.folder / "pid"


def _free_port() -> int:
    with reserve_port(PLANE_PORTS) as found:
        number: int = found.getsockname()[1]
        return number
