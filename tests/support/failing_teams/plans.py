"""Random plans of failing teams: who fails, how, and what its peers do then."""

import random
import signal
from typing import Any

CAUSE_WORDS = (
    "bad sample 17 in shard 3",
    "loss is nan",
    "no such column: label",
    "out of cheese",
    "checksum of epoch 4 is wrong",
    "the tokenizer knows no such token",
    "",
)
PEER_WORDS = (
    "Connection reset by peer",
    "peer gone",
    "NCCL error: unhandled system error",
    "the other side hung up",
    "lost rank {cause}",
    "my neighbour has fallen silent; leaving",
    "nobody answers any more",
    "gradient exchange broke down",
    "zonk",
    "Fatal: der Kollege antwortet nicht",
    "what a pity",
    "giving up",
    "",
)
CAUSES = ("exception", "exit", "signal", "oom", "os._exit")
SIGNALS = (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM)


def random_plan(seed: int, max_size: int = 16, *, silent_peers: bool = True) -> dict[str, Any]:
    """One team of at least 2 ranks, a random one of which fails first.

    `silent_peers`: peers may end without a word. In the second in which they end nothing that a kubelet reports tells
    them from a first one that does.
    """
    dice = random.Random(seed)
    size = dice.randint(2, max_size)
    cause = dice.randrange(size)
    how = CAUSES[seed % len(CAUSES)]
    code = int(dice.choice(SIGNALS)) if how == "signal" else dice.choice((1, 2, 3, 7, 41))
    silent = how in ("signal", "oom", "os._exit")
    first = {
        "how": how,
        "type": dice.choice(("ValueError", "KeyError", "RuntimeError")),
        "code": code,
        "words": "" if silent else dice.choice(CAUSE_WORDS),
    }
    choices = PEER_WORDS if silent_peers else tuple(filter(None, PEER_WORDS))
    shared = dice.choice(choices) if dice.random() < 0.4 else None
    ranks = [_peer(dice, cause, (shared,) if shared is not None else choices) for _ in range(size)]
    ranks[cause] = first
    notice = dice.choice(("end", "end", "end", "flag"))
    return {"size": size, "cause": cause, "notice": notice, "steps": dice.randint(0, 5), "ranks": ranks}


def _peer(dice: random.Random, cause: int, choices: tuple[str, ...]) -> dict[str, Any]:
    return {
        "how": dice.choice(("exception", "exit", "exit", "os._exit")),
        "type": dice.choice(("RuntimeError", "EOFError", "Gone", "ConnectionResetError")),
        "code": dice.choice((1, 1, 1, 2, 5)),
        "words": dice.choice(choices).format(cause=cause),
        "delay": dice.uniform(0, 0.5),
    }
