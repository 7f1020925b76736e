"""How one replica ended, and what that says about who failed first.

A failure spreads: the peers of a replica that failed lose their connections and fail in words of their own. So an end
that nobody else can cause (out of memory, evicted, a crash) says most, an error of the program's own says more than an
exit without a reason, and a complaint about a peer says that somebody else failed before.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import IntEnum

import msgspec

from gangline.jobs.plan.failures.last_error import Frame, LastError, last_error

OUTSIDE_REASONS = frozenset({"OOMKilled", "Evicted", "Preempting", "Preempted", "NodeLost", "DeadlineExceeded"})
CRASH_SIGNALS = frozenset({4, 7, 8, 9, 11, 24, 25, 31})
"""ILL, BUS, FPE, KILL, SEGV, XCPU, XFSZ, SYS. Not ABRT and PIPE: libraries end by these when a peer is gone."""
TERM_SIGNAL, KILL_SIGNAL = 15, 9
PIPE_SIGNAL = 13
MIN_SIGNAL_CODE, MAX_SIGNAL_CODE = 129, 159
EXIT_TIME = timedelta(milliseconds=50)
"""About how long an interpreter takes from the decision to exit to the end of its process."""
ONE_SECOND = timedelta(seconds=1)


class EndKind(IntEnum):
    """How likely an end is the first of a team: smaller is likelier."""

    # Out of memory, evicted, its node lost.
    TAKEN = 0
    # Ended by a signal that no peer sends.
    CRASHED = 1
    # An error that only the program itself can make.
    OWN_ERROR = 2
    # An exit, or an error that may be anything.
    UNCLEAR = 3
    # An error in words that one uses of others.
    SUSPECT = 4
    # An error of a call that talks to peers, or in words that frameworks use when a peer is gone.
    COMPLAINT = 5


class ReplicaEnd(msgspec.Struct, frozen=True):
    """How one replica ended, and the end of its log."""

    replica: str
    exit_code: int | None = None
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # `ended_at` is exact; else it is a whole second, in which the end was.
    is_exact: bool = False
    # When it began to fail, if a record of it says so.
    began_at: datetime | None = None
    # Lines as the API returns them, with times if they were asked for.
    log: tuple[str, ...] = ()
    rank: int | None = None
    # It ended because its pod was deleted: only its log can say that it had failed before.
    was_stopped: bool = False

    @property
    def error(self) -> LastError:
        return last_error(self.log, self.message, self.ended_at)


# What frameworks log when the connection to a peer breaks: gloo, NCCL, gRPC, Rabit, LightGBM, MPI, sockets.
PEER_FAILURE_PATTERN = re.compile(
    r"connection (reset|closed|refused|aborted)|closed by (the )?(remote )?peer|broken pipe|socket closed"
    r"|remote (end|host|process) (closed|has)|peer (closed|left|is (gone|down))|ncclremoteerror|nccl.*remote"
    r"|unavailableerror|cancellederror|deadline_?exceeded|failed to connect to (all|remote)|heartbeat.*(timeout|lost)"
    r"|collective[/.]result\.cc|rendezvousconnectionerror|another (process|worker|task) (died|failed)|worker .* (lost|disconnected)",
    re.IGNORECASE,
)
_COMPLAINT_NAME = re.compile(
    r"(?i)connection|brokenpipe|brokenbarrier|^eoferror|incompleteread|remotedisconnected|peer|rendezvous|nccl|gloo|rabit"
    r"|unavailable|deadlineexceeded|rpcerror|timeout|disconnect|dist(backend|network|store)error|horovodinternal"
    r"|commclosed|streamclosed|actordied|rayactor|workerlost|heartbeat|mpi\.exception"
    r"|\beofexception$|socketexception|closedchannel"
)
# Errors that programs raise in words of their own, of whatever took too long or could not be reached.
_GENERAL_ERRORS = frozenset({"TimeoutError", "ConnectionError"})
_RAISES = re.compile(r"\braise\b")
_OWN_CHILD = re.compile(r"\bstdin\b|\bcommunicate\(")
"""A call that talks to a process that the program has started itself."""
_PEER_CALL_FILE = re.compile(
    r"torch/distributed/(?!launcher|elastic|run\.py|checkpoint)|torch/nn/parallel/distributed|mpi4py|/grpc/|/socket\.py$|/ssl\.py$"
    r"|asyncio/(?:streams|selector_events|sslproto)|multiprocessing/(?:connection|managers|synchronize)|/horovod/|/rabit"
    r"|xgboost/(?:collective|tracker)|deepspeed/comm|tensorflow/python/(?:distribute|eager/context)|jax/_src/distributed"
    r"|/zmq/|/distributed/(?:comm|core)|/gloo|/nccl|torchrpc|/websockets/"
)
_PEER_CALL = re.compile(
    r"(?i)\b(?:all_?reduce|reduce_scatter|all_?gather|all_?to_?all|broadcast|bcast|barrier|recv\w*|send_?all|sendmsg"
    r"|readexactly|accept|connect|create_connection|init_process_group|rendezvous|monitored_barrier)\s*\("
)
_PEER_FUNCTION = re.compile(
    r"(?i)recv|receive|all_?reduce|barrier|gather|exchange|sync|heartbeat|peer|neighbo|wait_for|handshake|collective|ping"
)
# Errors of the program itself, wherever they are raised; a program may also raise the others on purpose.
_NATURAL_ERRORS = frozenset(
    {
        "TypeError",
        "AttributeError",
        "NameError",
        "UnboundLocalError",
        "ImportError",
        "ModuleNotFoundError",
        "SyntaxError",
        "IndentationError",
        "KeyError",
        "IndexError",
        "ZeroDivisionError",
        "FloatingPointError",
        "OverflowError",
        "UnicodeDecodeError",
        "UnicodeEncodeError",
        "MemoryError",
        "FileNotFoundError",
        "PermissionError",
        "IsADirectoryError",
        "NotADirectoryError",
        "FileExistsError",
        "RecursionError",
        "JSONDecodeError",
        "OutOfMemoryError",
    }
)
_OWN_ERRORS = _NATURAL_ERRORS | {"ValueError", "NotImplementedError"}
# What a program raises that takes the end of a stream for data.
_DATA_ERRORS = frozenset(
    {"IndexError", "JSONDecodeError", "ValueError", "UnicodeDecodeError", "error", "UnpicklingError"}
)
_OF_NO_DATA = re.compile(r": b?(?:''|\"\")$|line 1 column 1 \(char 0\)$|requires a buffer of \d+ bytes", re.MULTILINE)
_READS_STREAM = re.compile(r"recv|\.read\w*\(|unpack\(|loads\(")
# Words for others and for what one has in common with them. They are weak evidence: only times that are close yield.
_OF_OTHERS = re.compile(
    r"(?i)\b(?:peers?|neighbou?rs?|partners?|bud(?:dy|dies)|team-?mates?|colleagues?|siblings?|counterparts?|comrades?"
    r"|friends?|remotes?|others?|(?:an)?other (?:rank|worker|side|process|end|node)s?|the other one|someone|somebody|nobody"
    r"|everyone|everybody|collectives?|all-?reduce|barrier|ring|rendez-?vous|heartbeats?|quorum|membership|world"
    r"|gradients? (?:exchange|sync\w*)|connections?|sockets?|channels?|links?|handshake|(?:unexpected ?)?eof|end of (?:file|stream)"
    r"|fill whole buffer|short read|hung up|unreachable|disconnect\w*|no (?:answer|reply|response)|not (?:answer\w*|respond\w*|reply\w*)"
    r"|(?:stopped|quit) (?:answering|responding|replying|talking)|lost (?:contact|touch|sight|track)|gone|vanished"
    r"|disappeared|went (?:away|silent|quiet|dark|missing)|fell silent|timed? ?out|waiting for|nccl|gloo|mpi|grpc|rpc"
    r"|master|coordinator|chief|leader|parameter server)\b"
)
_NAMED_MEMBER = re.compile(
    r"(?i)\b(?:rank|worker|node|peer|task|process|replica|member|pod|host|neighbou?r|trainer|ps|chief|master|launcher)"
    r"s?(?:[ #_:=-]|\s#)*(\d+)\b"
)
_OUTSIDE_SERVICE = re.compile(
    r"https?://|s3://|gs://|HTTPS?ConnectionPool|urlopen error|amazonaws|huggingface|getaddrinfo"
)
# What launchers write about a process of another replica, whose exit code they then end with.
_LAUNCHER_REPORT = re.compile(
    r"(?i)noticed that (?:the )?(?:job|process)|process rank \d+ with pid|primary job\s+terminated|exited on signal"
    r"|process \d+ terminated with (?:signal|exit code)|=\s+bad termination of one of your"
)
_REACTION_TO_STOP = re.compile(r"(?i)SIGTERM|SignalException|signal 15\b|KeyboardInterrupt|SystemExit")
_FILE_READER = re.compile(r"pickle|/numpy/|/json/|/gzip|/zipfile|/tarfile|/torch/serialization|/pyarrow/|/h5py/|/PIL/")


def end_signal(end: ReplicaEnd) -> int:
    """The signal that ended a container. A node that does not report it reports 128 more as the exit code."""
    if end.signal:
        return end.signal
    code = end.exit_code or 0
    if end.is_exact or not MIN_SIGNAL_CODE <= code <= MAX_SIGNAL_CODE:
        # Our own node reports every signal: the program chose this exit code.
        return 0
    return code - 128


def end_kind(end: ReplicaEnd, error: LastError | None = None) -> EndKind:
    """What the end of a replica says. `error`: its last error, if the caller has it."""
    error = error or end.error
    if end.reason in OUTSIDE_REASONS or (end.exit_code is None and not end.was_stopped):
        return EndKind.TAKEN
    number = end_signal(end)
    # A program may send TERM to itself when it gives up: where times are exact, they tell more.
    crashed = number in CRASH_SIGNALS or (number == TERM_SIGNAL and not end.is_exact)
    if crashed and not end.was_stopped:
        return EndKind.SUSPECT if _LAUNCHER_REPORT.search(error.text) else EndKind.CRASHED
    if number == PIPE_SIGNAL:
        return EndKind.COMPLAINT
    return error_kind(error, end.replica, end.rank)


def error_kind(error: LastError, replica: str = "", rank: int | None = None) -> EndKind:
    """What an error says, whoever wrote it. `replica` and `rank`: who did, so that it may name itself."""
    name = error.exception.rpartition(".")[2]
    if _OUTSIDE_SERVICE.search(error.text):
        return EndKind.OWN_ERROR if error.frames else EndKind.UNCLEAR
    is_own = name in _OWN_ERRORS
    if _talks_to_own_child(error):
        return EndKind.UNCLEAR
    if PEER_FAILURE_PATTERN.search(error.text):
        return EndKind.COMPLAINT
    by_name = _COMPLAINT_NAME.search(error.exception) and not _reads_file(error) and not _is_raised_by_hand(error)
    if not is_own and by_name:
        return EndKind.COMPLAINT
    if not is_own and error.frames and _is_peer_call(error.frames[-1]):
        return EndKind.COMPLAINT
    if name in _DATA_ERRORS and error.frames and _READS_STREAM.search(error.frames[-1].source):
        return EndKind.SUSPECT
    message = error_message(error)
    if name in _DATA_ERRORS and _OF_NO_DATA.search(message):
        return EndKind.UNCLEAR
    if name in _NATURAL_ERRORS and error.frames:
        return EndKind.OWN_ERROR
    if _OF_OTHERS.search(message) or names_other_member(message, replica, rank):
        return EndKind.SUSPECT
    if error.frames and not is_own and any(_PEER_FUNCTION.search(frame.function) for frame in error.frames[-2:]):
        return EndKind.SUSPECT
    return EndKind.OWN_ERROR if is_own and error.frames else EndKind.UNCLEAR


def error_message(error: LastError) -> str:
    """The words of an error, without the frames of its tracebacks."""
    lines = error.text.splitlines()
    if not error.frames:
        return error.text
    return "\n".join(line for line in lines if line[:1].strip() and not line.startswith("Traceback "))


def named_members(text: str) -> frozenset[int]:
    """The numbers of ranks, workers and the like that a text names."""
    return frozenset(int(match[1]) for match in _NAMED_MEMBER.finditer(text))


def names_other_member(text: str, replica: str, rank: int | None) -> bool:
    """Whether an error names another replica than the one that wrote it."""
    index = replica.rpartition("-")[2]
    own = {rank, int(index) if index.isascii() and index.isdigit() else None}
    return bool(named_members(text) - own)


def onset(end: ReplicaEnd, error: LastError | None = None) -> tuple[float, float]:
    """Between which times a replica began to fail, as numbers to compare.

    That is when it wrote its error. Without one it is a moment before its end, which a cluster reports to the second.
    """
    error = error or end.error
    at = end.began_at or error.at
    if at is not None:
        return at.timestamp(), at.timestamp()
    if end.ended_at is None or (end.was_stopped and not error.frames):
        return float("inf"), float("inf")
    if end.is_exact:
        began = end.ended_at - EXIT_TIME
        if error.last_line_at is not None:
            began = min(max(began, error.last_line_at), end.ended_at)
        return began.timestamp(), end.ended_at.timestamp()
    latest = end.ended_at + ONE_SECOND
    began = end.ended_at
    if error.last_line_at is not None:
        began = min(max(began, error.last_line_at), latest)
    return began.timestamp(), latest.timestamp()


def is_conclusive(end: ReplicaEnd) -> bool:
    """Whether nothing that other replicas may still report makes this end the consequence of another one."""
    error = end.error
    kind = end_kind(end, error)
    natural = kind is EndKind.OWN_ERROR and error.exception.rpartition(".")[2] in _NATURAL_ERRORS
    return natural or kind is EndKind.TAKEN


def is_reaction_to_stop(error: LastError) -> bool:
    """Whether an error is what a program raises when it is asked to end."""
    return bool(_REACTION_TO_STOP.search(error_message(error)))


def blames_peer(end: ReplicaEnd) -> bool:
    """Whether the end of a replica says that a peer failed before."""
    return end_kind(end) is EndKind.COMPLAINT


def may_be_of_own_making(error: LastError) -> bool:
    """Whether a program makes such an error itself, be it a bug or that it took the end of a stream for data."""
    return error.exception.rpartition(".")[2] in _OWN_ERRORS | _DATA_ERRORS


def blames_somebody_else(error: LastError) -> bool:
    """Whether an error in words of lost peers is about a service outside of the team, or about a child process."""
    return bool(_OUTSIDE_SERVICE.search(error.text)) or _talks_to_own_child(error)


def _talks_to_own_child(error: LastError) -> bool:
    """Whether a pipe broke to a process that the program has started itself."""
    return error.exception == "BrokenPipeError" and any(_OWN_CHILD.search(frame.source) for frame in error.frames[-2:])


def _is_raised_by_hand(error: LastError) -> bool:
    """Whether the program made an error of a general kind itself: then its words say more than its name."""
    own_words = error.frames and _RAISES.search(error.frames[-1].source)
    return error.exception in _GENERAL_ERRORS and bool(own_words)


def _is_peer_call(frame: Frame) -> bool:
    return bool(_PEER_CALL_FILE.search(frame.file.replace("\\", "/")) or _PEER_CALL.search(frame.source))


def _reads_file(error: LastError) -> bool:
    """Whether an unexpected end of data is one of a file."""
    files: Iterable[str] = (frame.file for frame in error.frames[-2:])
    if "Ran out of input" in error.text or "FileInputStream" in error.text:
        return True
    return any(_FILE_READER.search(file.replace("\\", "/")) for file in files)
