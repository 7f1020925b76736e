"""How the progress of an installation is shown: plain lines for files and pipes, a live list for a terminal."""

import sys
from collections.abc import Sequence
from typing import IO, Any, Self

import click

from gangline.cli.install.record import ObjectRef
from gangline.cli.output.tables import is_ansi_terminal

_GROUPS = {
    "CustomResourceDefinition": "definitions (CRDs)",
    "Namespace": "namespace",
    "Deployment": "deployments",
    **dict.fromkeys(("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), "accounts, roles"),
}
OTHER_OBJECTS = "other objects"


class InstallScreen:
    """Prints one line for each object and each change of what is waited for.

    A context manager, so that a terminal is always restored.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._last_texts: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show_change(self, ref: ObjectRef, action: str) -> None:
        """An object was created, configured, deleted, or was as it should be."""
        self.say(f"{ref.display_name} {action}")

    def show_wait(self, subject: str, text: str, *, done: bool = False) -> None:
        """How far something is that is waited for. Called again and again with the same text."""
        if self._last_texts.get(subject) != text:
            self._last_texts[subject] = text
            self.say(f"{subject}: {text}")

    def say(self, *lines: str) -> None:
        """Print lines for the user."""
        for line in lines:
            click.echo(line, file=self._stream)


class LiveInstallScreen(InstallScreen):
    """A list that is redrawn in place: a row for each group of objects and for each thing that is waited for."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(stream)
        # Imported here: only a terminal needs it.
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Any = Live(console=self._console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
        self._counts: dict[str, dict[str, int]] = {}
        self._rows: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show_change(self, ref: ObjectRef, action: str) -> None:
        group = _GROUPS.get(ref.kind, OTHER_OBJECTS)
        counts = self._counts.setdefault(group, {})
        counts[action] = counts.get(action, 0) + 1
        self._rows[group] = (", ".join(f"{count} {action}" for action, count in counts.items()), True)
        self._draw()

    def show_wait(self, subject: str, text: str, *, done: bool = False) -> None:
        self._rows[subject] = (text, done)
        self._draw()

    def say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def _draw(self) -> None:
        from rich.text import Text

        width = self._console.width - 1
        lines = [_row_text(subject, text, done, width) for subject, (text, done) in self._rows.items()]
        self._live.update(Text("\n").join(map(Text, lines)), refresh=True)


def _row_text(subject: str, text: str, done: bool, width: int) -> str:
    return f"{'✓' if done else '…'} {subject}  {text}"[:width]


def choose_install_screen(stream: IO[str] | None = None) -> InstallScreen:
    """A live list for a terminal that can move its cursor, else plain lines."""
    stream = stream or sys.stdout
    return LiveInstallScreen(stream) if is_ansi_terminal(stream) else InstallScreen(stream)


def names_text(names: Sequence[str], most: int = 5) -> str:
    """Names by commas, the first few of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
