"""Paths of a container on a machine without containers: `/data/x` becomes the folder that `/data` stands for.

A process cannot be given a mount without privileges, so the node rewrites paths where it can see them: in command,
arguments, literal environment values and the working directory. A path that a program has built in is not seen; such
a program finds its volumes in `GANGLINE_VOLUME_<NAME>`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

UNTOUCHED = ("/dev/shm", "/")  # noqa: S108 - a mount point
"""Mount points that are there on every machine, and must stay what programs take them for."""


class Paths:
    """Prefixes of paths and what they stand for. The longest prefix wins."""

    def __init__(self, prefixes: Mapping[str, Path]) -> None:
        known = {prefix.rstrip("/"): real for prefix, real in prefixes.items() if prefix not in UNTOUCHED}
        self._known = {prefix: str(real) for prefix, real in known.items() if prefix}
        longest = sorted(self._known, key=len, reverse=True)
        # A prefix counts where a path begins, and only as whole names: /data is not in /data2, nor in /my/data.
        self._pattern = re.compile(
            rf"(?<![\w./-])({'|'.join(map(re.escape, longest))})(?![\w.-])" if longest else r"(?!)"
        )

    def mapped(self, text: str) -> str:
        """The text with every known path replaced."""
        return self._pattern.sub(lambda found: self._known[found[1]], text)


def variable(volume: str) -> str:
    """The environment variable that names a volume's folder."""
    return "GANGLINE_VOLUME_" + re.sub(r"[^A-Z0-9]", "_", volume.upper())
