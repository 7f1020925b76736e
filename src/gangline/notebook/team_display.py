"""Shows a team: HTML that is updated in place in a notebook, lines in a terminal."""

import sys
from typing import Any, Protocol

from gangline.notebook.team_html import team_html, team_text
from gangline.notebook.team_view import TeamFrame


class TeamDisplay(Protocol):
    """Where a team is shown while its cell runs."""

    def show(self, frame: TeamFrame, *, last: bool = False) -> None:
        """Show the present moment; the last one stays."""
        ...

    def show_line(self, text: str) -> None:
        """A log line has arrived."""
        ...


class TeamPicture:
    """A frame as IPython displays it."""

    def __init__(self, frame: TeamFrame) -> None:
        self._frame = frame

    def _repr_html_(self) -> str:
        return team_html(self._frame)

    def __repr__(self) -> str:
        return team_text(self._frame)


class NotebookTeamDisplay:
    """One output of the cell, replaced whenever the team changes."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, frame: TeamFrame, *, last: bool = False) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(TeamPicture(frame), display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(TeamPicture(frame))

    def show_line(self, text: str) -> None: ...


class LineTeamDisplay:
    """Log lines as they come, and the outcome."""

    def show(self, frame: TeamFrame, *, last: bool = False) -> None:
        if last:
            sys.stdout.write(f"{team_text(frame)}\n")

    def show_line(self, text: str) -> None:
        sys.stdout.write(f"{text}\n")


def team_display(shell: Any) -> TeamDisplay:
    """The display for this front end."""
    return NotebookTeamDisplay() if type(shell).__name__ == "ZMQInteractiveShell" else LineTeamDisplay()
