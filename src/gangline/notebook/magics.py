"""`%%gangline` runs a cell as a team of processes, `%gangline` calls the command line."""

import inspect
import secrets
import shlex
import subprocess
import sys
from typing import Any

from IPython.core.error import UsageError

from gangline.base.clock import SystemClock
from gangline.base.errors import GanglineError
from gangline.notebook.cell_program import cell_program
from gangline.notebook.follow import TeamFollower
from gangline.notebook.options import CellOptions, help_text, parse_options
from gangline.notebook.session import NotebookSession
from gangline.notebook.team_display import team_display
from gangline.sdk.build.function_names import shown_file
from gangline.sdk.build.jobs import replica_counts
from gangline.sdk.client import TrainingClient
from gangline.sdk.errors import TrainingError
from gangline.sdk.train import DEFAULT_IMAGE, TeamRequest, framework_kind, start_program

MAGIC = "gangline"


class GanglineMagic:
    """The magic of one IPython shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.session = NotebookSession()

    def __call__(self, line: str, cell: str | None = None) -> None:
        if cell is None:
            self.run_command(line)
        else:
            self.run_cell(line, cell)

    def run_cell(self, line: str, cell: str) -> None:
        """`%%gangline --nproc 4`: run the cell in every process of a team, and show it until it ends."""
        if line.split() in (["-h"], ["--help"]):
            sys.stdout.write(help_text())
            return
        options = parse_options(line)
        program = cell_program(cell, _cell_name(), options.get, self._sent(options))
        try:
            client = self.session.client(options.context)
            run = start_program(client, program, _team(client, options))
        except (ValueError, TrainingError, GanglineError) as error:
            # IPython shows it as one line.
            raise UsageError(str(error)) from error
        job = TeamFollower(client, run, run.job, team_display(self._shell), SystemClock()).follow()
        if options.get:
            try:
                self._shell.user_ns.update(run.result(show=False))
            except TypeError as error:
                raise UsageError(f"--get: {error}; job {job.metadata.name} has succeeded") from error

    def run_command(self, line: str) -> None:
        """`%gangline why NAME`: any command of gangline, about the jobs of this notebook."""
        words = shlex.split(line) or ["--help"]
        with subprocess.Popen(
            [sys.executable, "-m", "gangline", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.session.environment(),
        ) as process:
            assert process.stdout is not None
            for output in process.stdout:
                sys.stdout.write(output)

    def _sent(self, options: CellOptions) -> dict[str, Any]:
        values = self._shell.user_ns
        missing = [name for name in options.send if name not in values]
        if missing:
            raise UsageError(f"--send: the notebook has no variable {', '.join(missing)}")
        return {name: values[name] for name in options.send}


def _cell_name() -> str:
    """`Cell In[5]`, as IPython calls the running cell in its own tracebacks."""
    frame = inspect.currentframe()
    while frame is not None:
        name = shown_file(frame.f_code.co_filename)
        if name.startswith("Cell In["):
            return name
        frame = frame.f_back
    return "the cell"


def _team(client: TrainingClient, options: CellOptions) -> TeamRequest:
    kind = framework_kind(options.framework)
    name = options.name or f"cell-{secrets.token_hex(3)}"
    if options.name and options.context is None:
        # A cell is run again and again; its earlier jobs stay, to be asked about.
        taken = {job.metadata.name for job in client.list_jobs(job_kind=kind.kind)}
        names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 2)))
        name = next(each for each in names if each not in taken)
    return TeamRequest(
        kind,
        replica_counts(kind, options.nproc),
        name,
        options.image or DEFAULT_IMAGE,
        options.limits or None,
        restart_policy="OnFailure" if options.max_restarts else "Never",
        max_restarts=options.max_restarts,
        namespace=options.namespace,
    )


def load_ipython_extension(shell: Any) -> None:
    """Called by `%load_ext gangline`."""
    shell.register_magic_function(GanglineMagic(shell), "line_cell", MAGIC)


def unload_ipython_extension(shell: Any) -> None:
    """Called by `%unload_ext gangline`: ends the plane of this notebook and all its jobs."""
    magics = shell.magics_manager.magics
    for kind in ("line", "cell"):
        magic = magics[kind].pop(MAGIC, None)
        if isinstance(magic, GanglineMagic):
            magic.session.close()
