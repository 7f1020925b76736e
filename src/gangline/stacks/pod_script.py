"""The script that reads the stacks inside a container, for `sh`, and what its output says. Pure.

It needs no more than `/proc`, `cat`, `tr`, `grep`, `sed` and `readlink`, which BusyBox has, and uses py-spy where it is.
It prints only variables that name a rank: an environment has secrets. Source lines are those of the user's own frames;
whoever reads them is ended after a second, because the file system may be what hangs. Every process that the script starts
ends before it, or is waited for: the first process of a container does not take in those that others leave behind.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from gangline.stacks.frames import with_source
from gangline.stacks.model import ProcessStack, ThreadStack
from gangline.stacks.processes import MAX_COMMAND, RANK_VARIABLES, rank_in, stat_cpu_seconds, wakeups_in
from gangline.stacks.pyspy import NOT_INSTALLED_THERE, decode_dump, failure_text, python_command

MARK_VARIABLE = "GANGLINE_CONTAINER"
"""Processes of our own node see all processes of their machine; this variable says which are theirs."""

SCRIPT = r"""
spy=$(command -v py-spy)
code_of() {
  grep -oE '"(filename|line)": ?("[^"]*"|[0-9]+)' | while IFS=' ' read -r key value; do
    case $key in
      '"line":') echo "$value $file" ;;
      *) file=${value#?}; file=${file%?} ;;
    esac
  done | sort -u | while read -r line file; do
    case "$line $file" in
      0\ * | *' <'* | *\\* | */site-packages/* | */dist-packages/* | */lib/python[23]*) continue ;;
      *' /'*) path=$1/root$file ;;
      *) path=$1/cwd/$file ;;
    esac
    echo "@line $line $file"
    sed -n "$line{s/^/@code /p;q;}" "$path"
  done
}
echo "@self $$"
files=$(echo /proc/[0-9]*/environ)
[ -n "$MARK" ] && files=$(grep -lF "MARK=$MARK" $files 2>/dev/null)
for file in $files; do
  folder=${file%/environ}
  pid=${folder#/proc/}
  [ "$pid" = "$$" ] && continue
  stat=$(cat "$folder/stat" 2>/dev/null) || continue
  program=$(readlink "$folder/exe" 2>/dev/null)
  echo "@process $pid"
  echo "@stat $stat"
  echo "@channel $(cat "$folder/wchan" 2>/dev/null)"
  echo "@status $(grep '^voluntary' "$folder/status" 2>/dev/null)"
  echo "@io $(grep -E '^[rw]char:' "$folder/io" 2>/dev/null | tr '\n' ' ')"
  echo "@command $(tr '\0\n' '  ' < "$folder/cmdline" 2>/dev/null)"
  tr '\0' '\n' < "$folder/environ" 2>/dev/null | grep -E '^(RANKS)=' | sed 's/^/@variable /'
  case "${program##*/}" in
    python*|pypy*) ;;
    *) grep -q libpython "$folder/maps" 2>/dev/null || continue ;;
  esac
  [ -n "$spy" ] || { echo "@missing"; continue; }
  dump=$("$spy" dump --json FLAGS --pid "$pid" 2>&1) || dump=$("$spy" dump --json --pid "$pid" 2>&1)
  printf '%s\n' "$dump" | code_of "$folder" 2>/dev/null &
  reader=$!
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    case $(cat "/proc/$reader/stat" 2>/dev/null) in '' | *') Z '*) break ;; esac
    sleep 0.1
  done
  case $(cat "/proc/$reader/stat" 2>/dev/null) in '' | *') Z '*) wait "$reader" ;; *) kill -9 "$reader" ;; esac
  echo "@dump"
  printf '%s\n' "$dump"
done
echo "@end"
"""

_MARKER = re.compile(r"^@(self|process|stat|channel|status|io|command|variable|missing|line|code|dump|end)\b ?(.*)$")


class IncompleteOutput(ValueError):
    """The output of the script ends too early."""


def script(*, native: bool = False) -> str:
    """The script."""
    text = SCRIPT.replace("RANKS", "|".join(RANK_VARIABLES)).replace("MARK", MARK_VARIABLE)
    return text.replace("FLAGS", "--native" if native else "--nonblocking")


def script_processes(output: str) -> tuple[ProcessStack, ...]:
    """The processes in the output, without those of the script itself. Raises `IncompleteOutput`."""
    lines = output.splitlines()
    if not lines or not re.fullmatch(r"@self \d+", lines[0]) or lines[-1] != "@end":
        raise IncompleteOutput(next((line for line in reversed(lines) if line.strip()), ""))
    own = {int(lines[0].removeprefix("@self "))}
    processes: list[ProcessStack] = []
    for part in _parts(lines[1:-1]):
        process = _process(part)
        if process is None:
            continue
        if process.parent in own or process.pid in own:
            own.add(process.pid)
        else:
            processes.append(process)
    return tuple(processes)


def _parts(lines: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for line in lines:
        if line.startswith("@process ") and part:
            yield part
            part = []
        part.append(line)
    if part:
        yield part


def _process(lines: list[str]) -> ProcessStack | None:
    values: dict[str, str] = {}
    variables: dict[str, str] = {}
    source: dict[tuple[str, int], str] = {}
    dump: list[str] | None = None
    for line in lines:
        match = _MARKER.match(line) if dump is None else None
        if dump is not None:
            dump.append(line)
        elif match is not None and match[1] == "dump":
            dump = []
        elif match is not None and match[1] == "variable":
            name, _, value = match[2].partition("=")
            variables[name] = value
        elif match is not None and match[1] == "code":
            number, _, file = values.get("line", "").partition(" ")
            source[file, int(number or 0)] = match[2].strip()
        elif match is not None:
            values[match[1]] = match[2]
    fields = values.get("stat", "").rpartition(")")[2].split()
    if "process" not in values or len(fields) < 13:
        return None
    pid, state = int(values["process"]), fields[0]
    channel = values.get("channel", "").strip()
    stack = ProcessStack(
        pid,
        python_command(values.get("command", "").split())[:MAX_COMMAND],
        (
            ThreadStack(
                (),
                "",
                pid,
                active=state == "R",
                wait_channel="" if channel == "0" else channel,
                wakeups=wakeups_in(values.get("status", "")),
            ),
        ),
        state=state,
        parent=int(fields[1]),
        rank=rank_in(variables),
        cpu_seconds=stat_cpu_seconds(fields),
        bytes_moved=sum(map(int, re.findall(r"\d+", values["io"]))) if values.get("io") else None,
    )
    if "missing" in values:
        return msgspec.structs.replace(stack, error=NOT_INSTALLED_THERE)
    return with_source(_with_dump(stack, "\n".join(dump)), source) if dump is not None else stack


def _with_dump(stack: ProcessStack, text: str) -> ProcessStack:
    try:
        threads = decode_dump(text.encode(), stack.pid)
    except msgspec.MsgspecError:
        return msgspec.structs.replace(stack, error=failure_text(text))
    kernel = stack.threads[0]
    main, *others = threads or stack.threads
    main = msgspec.structs.replace(main, wait_channel=kernel.wait_channel, wakeups=kernel.wakeups)
    return msgspec.structs.replace(stack, threads=(main, *others), source="py-spy")
