"""`gangline at TIME COMMAND`: a command that reads, on the recorded state of a moment."""

import re
from datetime import datetime, timedelta

import click

from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.past import PastView, show_past
from gangline.cli.flags.commands import CliCommand
from gangline.cli.history.moments import FORMS, moment_text, parse_moment, split_moment
from gangline.local.paths import home_folder

READING_COMMANDS = ("get", "list", "ps", "describe", "why", "logs", "events", "kubectl")
"""The commands that can show the past, and kubectl."""

QUIET_TIME = timedelta(seconds=8)
"""A recorder without changes writes every 5 s, so the last moments of one that runs may be missing."""


class MomentCommand(CliCommand):
    """A command whose first argument may be a time ago, such as `-15m`: that is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = 0
        while first < len(args) and args[first].startswith("--") and args[first] != "--":
            first += 2 if args[first] in ("--history", "--server") else 1
        if first < len(args) and re.match(r"-\d", args[first]):
            args = [*args[:first], "--", *args[first:]]
        return super().parse_args(ctx, args)


@click.command(cls=MomentCommand, context_settings={"allow_interspersed_args": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="TIME [COMMAND [ARGUMENTS]...]")
@click.option(
    "--history",
    "place",
    metavar="FOLDER|URL",
    help="Where the history is.  [default: that of this machine's runs and plane]",
)
@click.option(
    "--server", metavar="ID", default="", help="The server whose objects are shown, or the beginning of its name."
)
@click.option("--serve", is_flag=True, help="Serve that moment to kubectl and other clients, until interrupted.")
@click.pass_context
def at(ctx: click.Context, words: tuple[str, ...], place: str | None, server: str, serve: bool) -> int:
    r"""Show jobs, pods, events and logs as they were at a moment, also of jobs that are gone.

    \b
      gangline at 14:02 get jobs
      gangline at 14:02 why bert
      gangline at yesterday 18:30 get pods -A
      gangline at -15m describe bert
      gangline at -15m logs bert
      gangline at 14:02 kubectl get pods -o wide    kubectl, on that moment
      gangline at --serve 14:02                     a kubeconfig for any client, until interrupted

    TIME is a time of today (14:02 or 14:02:31), one of yesterday (yesterday 14:02), a time ago (-15m, -2h), or a date
    and time (2026-11-18T14:02:03Z). The commands that can look back are get, list, ps, describe, why, logs and events.

    `gangline up` and `gangline run` record what changes, every second. `gangline get jobs --history` lists all jobs of
    the record. At a moment at which nothing was recorded, the last one before it is shown. If two servers had a job of
    one name then, `--server` chooses.

    Exit codes: that of the command; 1 an error, such as a time before the record began.
    """
    if not words:
        raise click.UsageError(f"which time? write one of {FORMS}", ctx)
    text, command = split_moment(words)
    view = find_moment(place or str(home_folder() / "history"), parse_moment(text, SystemClock().now()), server)
    if serve:
        from gangline.cli.history.serve import serve_past

        if command:
            raise InputError(f"--serve: takes no command, but there is {command[0]}; leave out one of them")
        return serve_past(view)
    if not command or command[0] not in READING_COMMANDS:
        what = f"{command[0]}: cannot show the past; write" if command else "which command? write"
        raise InputError(f"{what} one of {', '.join(READING_COMMANDS)}")
    if command[0] == "kubectl":
        from gangline.cli.history.serve import run_kubectl

        return run_kubectl(view, command)
    root = ctx.find_root().command
    with show_past(view):
        code = root.main(command, prog_name="gangline", standalone_mode=False, obj=tuple(command))
    return code if isinstance(code, int) else 0


def find_moment(place: str, moment: datetime, server: str = "") -> PastView:
    """The moment to show: this one, or the last recorded one before it, which is then printed. Raises `InputError`."""
    from gangline.cli.history.servers import choose_server, require_one_server_per_job
    from gangline.history.objectstore import open_history
    from gangline.history.reader import HistoryReader

    segments = open_history(place)
    reader = HistoryReader(segments)
    if server:
        server = choose_server(reader, server)
        reader = HistoryReader(segments, server)
    shown, now = reader.last_recorded(moment.timestamp()), SystemClock().now()
    if shown is None:
        starts = [span.start for span in reader.spans()]
        if not starts:
            raise InputError(f"{place}: has no history; gangline up and gangline run record one")
        first = datetime.fromtimestamp(min(starts)).astimezone()
        raise InputError(
            f"{moment_text(moment, now)}: is before the record began; it begins at {moment_text(first, now)}"
        )
    found = datetime.fromtimestamp(shown, moment.tzinfo)
    if moment - found > QUIET_TIME:
        note = f"nothing was recorded at {moment_text(moment, now)}; this is the state at {moment_text(found, now)}"
        click.echo(note, err=True)
    if not server:
        require_one_server_per_job(reader, shown)
    return PastView(place, found, server)
