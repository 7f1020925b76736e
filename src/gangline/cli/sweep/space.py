"""The search space of a sweep: `--set lr=0.1,0.01` becomes the values of each trial. Pure."""

import itertools
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gangline.base.errors import InputError

MAX_TRIALS = 1000
"""More trials than this are taken for a mistake."""
SIGNIFICANT_DIGITS = 4
"""Significant digits of a random number."""

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_RANGE = re.compile(rf"(?P<log>log\()?(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})(?(log)\))")
_INTEGER = re.compile(r"[-+]?\d+")
_CLOSING_BRACKETS = {"(": ")", "[": "]", "{": "}"}

TrialValues = Mapping[str, str]
"""The values of one trial as text, by parameter."""


class ValueRange(msgspec.Struct, frozen=True):
    """A range of numbers, both ends included."""

    low: float
    high: float
    # Whether only integers are drawn.
    is_integer: bool = False
    # Log-uniform: as likely between 1 and 10 as between 10 and 100.
    is_log: bool = False


class Parameter(msgspec.Struct, frozen=True):
    """A parameter with its values, or the range they are drawn from."""

    name: str
    values: tuple[str, ...] = ()
    range: ValueRange | None = None


def is_path(name: str) -> bool:
    """Whether a parameter is a path in the job; else it is an environment variable of every replica."""
    return "." in name


def parse_parameters(settings: Sequence[str]) -> list[Parameter]:
    """The parameters of the `--set` options, in order. Raises `InputError`."""
    parameters = [parse_parameter(setting) for setting in settings]
    names = [parameter.name for parameter in parameters]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--set {name}: is given twice; write all values at once: --set {name}=1,2")
    return parameters


def parse_parameter(setting: str) -> Parameter:
    """The parameter of `lr=0.1,0.01`, `lr=log(1e-4..1e-1)` or `spec.runPolicy.backoffLimit=1,2`. Raises `InputError`."""
    name, equals, text = setting.partition("=")
    if not equals or not text:
        raise InputError(f"--set {setting}: expected name=values; write: --set {name or 'lr'}=0.1,0.01")
    if not is_path(name) and _VARIABLE_NAME.fullmatch(name) is None:
        raise InputError(f'--set {setting}: "{name}" is no name of a variable; write letters, digits and _')
    if (match := _RANGE.fullmatch(text)) is not None:
        return Parameter(name, range=_parse_range(setting, match))
    items = [item.strip() if is_path(name) else _unquoted(item.strip()) for item in split_values(text)]
    for item in items:
        if not item:
            raise InputError(f"--set {setting}: a value is empty; write: --set {name}=0.1,0.01")
        if _RANGE.fullmatch(item) is not None:
            raise InputError(f"--set {setting}: a range cannot be combined with values; write: --set {name}={item}")
        if items.count(item) > 1:
            raise InputError(f"--set {setting}: {item} is given twice")
    return Parameter(name, tuple(items))


def split_values(text: str) -> list[str]:
    """The text split at commas that are not inside brackets or quotes."""
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


def trial_values(parameters: Sequence[Parameter], draws: int | None = None, seed: int = 0) -> list[TrialValues]:
    """All combinations of values, the last parameter changing fastest; with `draws`, that many random ones.

    The same seed draws the same values. Trials are distinct, so a small space may yield fewer than `draws`. Raises
    `InputError`.
    """
    if draws is not None:
        if not 1 <= draws <= MAX_TRIALS:
            raise InputError(f"--random {draws}: expected 1 to {MAX_TRIALS}")
        return list(_random_trials(parameters, draws, random.Random(seed)))  # noqa: S311 - not used for cryptography
    for parameter in parameters:
        if parameter.range is not None:
            raise InputError(f"--set {parameter.name}: values are drawn from a range; say how many: --random 20")
    number = math.prod(len(parameter.values) for parameter in parameters)
    if number > MAX_TRIALS:
        raise InputError(f"{number} trials are too many (at most {MAX_TRIALS}); take fewer values, or --random 20")
    names = [parameter.name for parameter in parameters]
    combinations = itertools.product(*(parameter.values for parameter in parameters))
    return [dict(zip(names, values, strict=True)) for values in combinations]


def _random_trials(parameters: Sequence[Parameter], draws: int, generator: random.Random) -> Iterator[TrialValues]:
    drawn: set[tuple[str, ...]] = set()
    # Bounded, because a small space has fewer distinct trials than `draws`.
    for _ in range(draws * 100):
        values = {parameter.name: _random_value(parameter, generator) for parameter in parameters}
        if tuple(values.values()) not in drawn:
            drawn.add(tuple(values.values()))
            yield values
        if len(drawn) == draws:
            return


def _random_value(parameter: Parameter, generator: random.Random) -> str:
    bounds = parameter.range
    if bounds is None:
        return generator.choice(parameter.values)
    low, high = bounds.low, bounds.high
    if bounds.is_integer and not bounds.is_log:
        return str(generator.randint(int(low), int(high)))
    value = (
        math.exp(generator.uniform(math.log(low), math.log(high))) if bounds.is_log else generator.uniform(low, high)
    )
    if bounds.is_integer:
        return str(round(value))
    return f"{min(high, max(low, float(f'{value:.{SIGNIFICANT_DIGITS}g}'))):g}"


def _parse_range(setting: str, match: re.Match[str]) -> ValueRange:
    low, high, log = float(match["low"]), float(match["high"]), match["log"] is not None
    if not (low < high and math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"--set {setting}: the first end of a range must be below the second")
    if log and low <= 0:
        raise InputError(f"--set {setting}: log() begins above 0; write log(1e-4..1)")
    is_integer = all(_INTEGER.fullmatch(match[end]) for end in ("low", "high"))
    return ValueRange(low, high, is_integer, log)


def _unquoted(item: str) -> str:
    return item[1:-1] if len(item) > 1 and item[0] == item[-1] and item[0] in "'\"" else item
