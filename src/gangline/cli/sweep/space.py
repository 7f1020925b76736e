"""What a sweep tries: `--set lr=0.1,0.01` becomes values, all combinations of them, or draws. Pure."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gangline.base.errors import InputError

MAX_TRIALS = 1000
"""More trials than this are a slip of the hand."""
SIGNIFICANT_DIGITS = 4
"""So many digits of a number that is drawn matter."""

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?P<log>log\()?(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})(?(log)\))")
_INTEGER = re.compile(r"[-+]?\d+")
_CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}

TrialValues = Mapping[str, str]
"""What one trial gets: values by parameter, each as text."""


class ValueRange(msgspec.Struct, frozen=True):
    """Numbers to draw from; both ends belong to it."""

    low: float
    high: float
    # Only whole numbers.
    is_integer: bool = False
    # As likely between 1 and 10 as between 10 and 100.
    is_log: bool = False


class Parameter(msgspec.Struct, frozen=True):
    """A name, and its values or the range they are drawn from."""

    name: str
    values: tuple[str, ...] = ()
    range: ValueRange | None = None

    @property
    def is_path(self) -> bool:
        """Whether it is a place in the job; else it is a variable of every replica."""
        return "." in self.name


def parse_parameters(settings: Sequence[str]) -> list[Parameter]:
    """Each `--set`, in order. Raises `InputError`."""
    found = [parse_parameter(setting) for setting in settings]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--set {name}: is given twice; write all values at once: --set {name}=1,2")
    return found


def parse_parameter(setting: str) -> Parameter:
    """`lr=0.1,0.01`, `lr=log(1e-4..1e-1)` or `spec.runPolicy.backoffLimit=1,2`. Raises `InputError`."""
    name, equals, text = setting.partition("=")
    if not equals or not text:
        raise InputError(f"--set {setting}: expected name=values; write: --set {name or 'lr'}=0.1,0.01")
    path = "." in name
    if not path and _VARIABLE_NAME.fullmatch(name) is None:
        raise InputError(f'--set {setting}: "{name}" is no name of a variable; write letters, digits and _')
    if (found := _RANGE.fullmatch(text)) is not None:
        return Parameter(name, range=_parse_range(setting, found))
    items = [item.strip() if path else _unquoted(item.strip()) for item in split_values(text)]
    for item in items:
        if not item:
            raise InputError(f"--set {setting}: a value is empty; write: --set {name}=0.1,0.01")
        if _RANGE.fullmatch(item) is not None:
            raise InputError(f"--set {setting}: a range stands alone; write: --set {name}={item}")
        if items.count(item) > 1:
            raise InputError(f"--set {setting}: {item} is there twice")
    return Parameter(name, tuple(items))


def split_values(text: str) -> list[str]:
    """At commas, but not inside brackets or quotes."""
    items, start, closing = [], 0, list[str]()
    for at, character in enumerate(text):
        if closing and character == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in "'\"":
            continue
        elif character in "'\"":
            closing.append(character)
        elif character in _CLOSING_BRACKETS:
            closing.append(_CLOSING_BRACKETS[character])
        elif character == "," and not closing:
            items.append(text[start:at])
            start = at + 1
    return [*items, text[start:]]


def trial_values(found: Sequence[Parameter], draws: int | None = None, seed: int = 0) -> list[TrialValues]:
    """All combinations, the last parameter changing fastest; or so many draws. Raises `InputError`.

    The same seed draws the same. No two trials are alike, so there may be fewer than asked for.
    """
    if draws is not None:
        if not 1 <= draws <= MAX_TRIALS:
            raise InputError(f"--random {draws}: expected 1 to {MAX_TRIALS}")
        return list(_random_trials(found, draws, random.Random(seed)))  # noqa: S311 - nothing is kept secret with it
    for each in found:
        if each.range is not None:
            raise InputError(f"--set {each.name}: values are drawn from a range; say how many: --random 20")
    number = math.prod(len(each.values) for each in found)
    if number > MAX_TRIALS:
        raise InputError(f"{number} trials are too many (at most {MAX_TRIALS}); take fewer values, or --random 20")
    names = [each.name for each in found]
    return [dict(zip(names, each, strict=True)) for each in itertools.product(*(each.values for each in found))]


def _random_trials(found: Sequence[Parameter], draws: int, chance: random.Random) -> Iterator[TrialValues]:
    seen: set[tuple[str, ...]] = set()
    # Of a small space some would come again and again.
    for _ in range(draws * 100):
        values = {each.name: _random_value(each, chance) for each in found}
        if tuple(values.values()) not in seen:
            seen.add(tuple(values.values()))
            yield values
        if len(seen) == draws:
            return


def _random_value(of: Parameter, chance: random.Random) -> str:
    if of.range is None:
        return chance.choice(of.values)
    low, high = of.range.low, of.range.high
    if of.range.is_integer and not of.range.is_log:
        return str(chance.randint(int(low), int(high)))
    value = math.exp(chance.uniform(math.log(low), math.log(high))) if of.range.is_log else chance.uniform(low, high)
    if of.range.is_integer:
        return str(round(value))
    return f"{min(high, max(low, float(f'{value:.{SIGNIFICANT_DIGITS}g}'))):g}"


def _parse_range(setting: str, found: re.Match[str]) -> ValueRange:
    low, high, log = float(found["low"]), float(found["high"]), found["log"] is not None
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"--set {setting}: a range goes from less to more")
    if log and low <= 0:
        raise InputError(f"--set {setting}: log() begins above 0; write log(1e-4..1)")
    whole = all(_INTEGER.fullmatch(found[end]) for end in ("low", "high"))
    return ValueRange(low, high, whole, log)


def _unquoted(item: str) -> str:
    return item[1:-1] if len(item) > 1 and item[0] == item[-1] and item[0] in "'\"" else item
