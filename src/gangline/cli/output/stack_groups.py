"""Stacks as text for people: groups first, the user's own frames in front, frames of libraries folded. Pure."""

import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from gangline.cli.output.text import Span, StyledLine, clip_line
from gangline.stacks.frames import own_frames, short_name, short_path
from gangline.stacks.groups import TEAM_KINDS, RankPlace, StackGroup, odd_groups, stack_groups
from gangline.stacks.model import Frame, ProcessStack, RankStack, ThreadStack
from gangline.stacks.sentence import stacks_sentence

MIN_WIDTH = 40
MAX_NAME_WIDTH = 26
STATES = {"R": "runs", "S": "waits", "D": "waits for a disk", "T": "is stopped", "t": "is traced", "Z": "has ended"}
_NUMBERED = re.compile(r"(.+)-(\d+)")


def group_lines(stacks: Sequence[RankStack], width: int) -> Iterator[StyledLine]:
    """The sentence, then each group with its ranks and frames, cut to `width` columns."""
    groups = stack_groups(stacks)
    odd = odd_groups(groups)
    for text in textwrap.wrap(stacks_sentence(groups), max(width, MIN_WIDTH), break_on_hyphens=False):
        yield (Span(text, "bold"),)
    for group in groups:
        yield ()
        yield _title(group, groups, odd=group in odd)
        names = ", ".join(range_names(group.places))
        yield from _wrapped(names, width, "  ")
        if group.error:
            yield from _wrapped(group.error, width, "  ", "yellow")
        yield from (clip_line(line, width) for line in frame_lines(group.frames, fold=True))


def _title(group: StackGroup, groups: Sequence[StackGroup], *, odd: bool) -> StyledLine:
    count = len(group.places)
    waited_for = group.activity.kind not in TEAM_KINDS and any(one.activity.kind in TEAM_KINDS for one in groups)
    apart = f"the others wait for {'it' if count == 1 else 'them'}" if waited_for else "not where the others are"
    what = "rank" if group.places[0].rank is not None else "replica"
    command = f" ({group.location})" if group.location and not group.frames else ""
    title = f"{count} {what if count == 1 else f'{what}s'} {group.verb}{command}"
    return (Span(title, "bold red" if odd else "bold"), Span(f": {apart}" if odd else "", "red"))


def _wrapped(text: str, width: int, indent: str, style: str = "") -> Iterator[StyledLine]:
    room = max(width, MIN_WIDTH)
    for line in textwrap.wrap(text, room, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False):
        yield (Span(line, style),)


def frame_lines(frames: Sequence[Frame], *, fold: bool, indent: str = "  ") -> Iterator[StyledLine]:
    """The frames, innermost first. With `fold`, calls of libraries in a row are one line."""
    own = own_frames(frames)
    shown = list(_folded(frames, own) if fold else ((frame, 0) for frame in frames))
    names = [short_name(frame) for frame, _ in shown]
    places = [_place_text(frame, mine=frame in own) for frame, _ in shown]
    name_room = min(max(map(len, names), default=0), MAX_NAME_WIDTH)
    place_room = max((len(text) for text, (frame, _) in zip(places, shown, strict=True) if frame in own), default=0)
    for (frame, hidden), name, text in zip(shown, names, places, strict=True):
        mine = frame in own
        label = f"{name[: MAX_NAME_WIDTH - 1]}…" if len(name) > MAX_NAME_WIDTH else name
        more = f"  (+{hidden} more)" if hidden else ""
        yield (
            Span(f"{indent}{'>' if mine else ' '} ", "cyan" if mine else ""),
            Span(f"{label:<{name_room}}  ", "bold" if mine else "dim"),
            Span(f"{text}{more}", "" if mine else "dim"),
            Span(f"{'':<{place_room - len(text)}}  {frame.code}" if mine and frame.code else "", "cyan"),
        )


def _place_text(frame: Frame, *, mine: bool) -> str:
    file = file_text(frame.file) if mine else short_path(frame.file)
    return f"{file}:{frame.line}" if frame.line else file


def _folded(frames: Sequence[Frame], own: Sequence[Frame]) -> Iterator[tuple[Frame, int]]:
    """The user's own frames, and of each row of others the innermost with the number of the rest.

    What started the program, outside of its outermost own frame, is left out.
    """
    outermost = max((number for number, frame in enumerate(frames) if frame in own), default=len(frames) - 1)
    for mine, run in itertools.groupby(frames[: outermost + 1], key=lambda frame: frame in own):
        row = list(run)
        if mine:
            yield from ((frame, 0) for frame in row)
        else:
            yield row[0], len(row) - 1


def file_text(file: str) -> str:
    """A path as people write it: relative to the working directory if it is below it, with ~ for their home."""
    path = Path(file)
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(folder):
            return f"{prefix}{path.relative_to(folder)}"
    return file


def all_lines(stacks: Sequence[RankStack], width: int) -> Iterator[StyledLine]:
    """Every thread of every process, with all frames."""
    for one in stacks:
        yield ()
        name = one.replica if one.rank is None else f"{one.replica} (rank {one.rank})"
        yield (Span(name, "bold"), Span(f"  {one.pod}", "dim"))
        if one.error:
            yield from _wrapped(one.error, width, "  ", "yellow")
        for process in one.processes:
            yield from (clip_line(line, width) for line in _process_lines(process))


def _process_lines(process: ProcessStack) -> Iterator[StyledLine]:
    state = STATES.get(process.state[:1], process.state)
    yield (Span(f"  process {process.pid}", "bold"), Span(f" {state}  {process.command}", "dim"))
    if process.error:
        yield (Span(f"    {process.error}", "yellow"),)
    for (title, _), run in itertools.groupby(process.threads, key=lambda one: (_thread_title(one), one.frames)):
        thread, *more = run
        yield (Span(f"    {title}", ""), Span(f"  (and {len(more)} more)" if more else "", "dim"))
        yield from frame_lines(thread.frames, fold=False, indent="      ")


def _thread_title(thread: ThreadStack) -> str:
    words = [f"thread {thread.name or thread.id}"]
    words.append("runs" if thread.active else "waits")
    words += ["with the GIL"] if thread.holds_gil else []
    words += [f"in the kernel's {thread.wait_channel}"] if thread.wait_channel and not thread.active else []
    return " ".join(words)


def range_names(places: Sequence[RankPlace]) -> list[str]:
    """The names of ranks, those in a row together: `worker-0 to worker-62 (ranks 1-63)`."""
    return [_range_name(row) for row in _rows(places)]


def _rows(places: Iterable[RankPlace]) -> Iterator[list[RankPlace]]:
    row: list[RankPlace] = []
    for one in places:
        if row and not _follows(row[-1], one):
            yield row
            row = []
        row.append(one)
    if row:
        yield row


def _follows(before: RankPlace, after: RankPlace) -> bool:
    first, second = _NUMBERED.fullmatch(before.replica), _NUMBERED.fullmatch(after.replica)
    if first is None or second is None or first[1] != second[1] or int(second[2]) != int(first[2]) + 1:
        return False
    if before.rank is None or after.rank is None:
        return before.rank == after.rank
    return after.rank == before.rank + 1


def _range_name(row: Sequence[RankPlace]) -> str:
    first, last = row[0], row[-1]
    if len(row) < 3:
        return ", ".join(one.name for one in row)
    ranks = f" (ranks {first.rank}-{last.rank})" if first.rank is not None else ""
    return f"{first.replica} to {last.replica}{ranks}"
