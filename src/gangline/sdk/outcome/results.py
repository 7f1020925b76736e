"""The return values of functions, read from the logs of their replicas."""

import base64
import json
import pickle
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gangline.sdk.build.remote_call import RESULT_PREFIX


class FunctionResult(NamedTuple):
    """What the function returned in one process, as its log line has it."""

    # The rank that the process itself knew.
    rank: int | None = None
    value: Any = None
    # The value as a pickle, if JSON is not exact.
    pickled: str = ""
    # The file with the pickle, on this machine.
    file: str = ""
    # Why there is no value.
    error: str = ""

    def load(self, *, trusted: bool) -> Any:
        """The value. A pickle can run code here, so it is opened only if the process is `trusted`.

        Raises `TypeError` if the value could not be sent.
        """
        if trusted and (self.pickled or self.file):
            try:
                content = Path(self.file).read_bytes() if self.file else zlib.decompress(base64.b64decode(self.pickled))
                return pickle.loads(content)  # noqa: S301
            except Exception as error:
                raise TypeError(f"the function's return value cannot be read here: {error}") from error
        if self.error:
            raise TypeError(f"the function's return value: {self.error}")
        return self.value


def is_result_line(text: str) -> bool:
    """Whether a log line has a return value, and is not for people."""
    return RESULT_PREFIX in text


def parse_results(lines: Iterable[str]) -> Iterator[FunctionResult]:
    """The return values in a log. A restarted function has returned only once: the last value of a rank counts."""
    for line in lines:
        # The function's own output may lack a newline before it.
        _, mark, text = line.partition(RESULT_PREFIX)
        if mark:
            try:
                fields = json.loads(text)
            except ValueError:
                continue
            yield FunctionResult(
                fields.get("rank"),
                fields.get("value"),
                fields.get("pickle", ""),
                fields.get("file", ""),
                fields.get("error", ""),
            )
