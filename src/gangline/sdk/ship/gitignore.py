"""What git would leave out: every `.gitignore` from the top of the repository down, `.git/info/exclude`, negation."""

from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

from gangline.base.errors import InputError

GITIGNORE = ".gitignore"


class IgnoreFile(NamedTuple):
    """The lines of one file. They are about what is below its folder."""

    folder: Path
    patterns: tuple[RegexPattern, ...]


class IgnoreRules:
    """What the files on the way down to a folder say about what is in it. Deeper ones have the last word."""

    def __init__(self, rules: tuple[IgnoreFile, ...] = ()) -> None:
        self._rules = rules

    @classmethod
    def for_folder(cls, folder: Path) -> "IgnoreRules":
        """Of a folder that may lie deep in a repository. Raises `InputError` for a file that cannot be read."""
        top = next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)
        rules = cls().with_file(top, top / ".git" / "info" / "exclude")
        above = [each for each in reversed(folder.parents) if each.is_relative_to(top)]
        for each in above:
            rules = rules.with_folder(each)
        return rules

    def with_folder(self, folder: Path) -> "IgnoreRules":
        """These, and what the folder itself says."""
        return self.with_file(folder, folder / GITIGNORE)

    def with_file(self, folder: Path, file: Path) -> "IgnoreRules":
        """These, and what is in a file, if it is there."""
        try:
            text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else ""
            patterns = tuple(GitIgnoreSpec.from_lines(text.splitlines()).patterns)
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from error
        return IgnoreRules((*self._rules, IgnoreFile(folder, patterns))) if text else self

    def excludes(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a path is left out, given that the folder it is in is not."""
        for rule in reversed(self._rules):
            name = path.relative_to(rule.folder).as_posix() + ("/" if is_folder else "")
            for pattern in reversed(rule.patterns):
                if _matches_path(pattern, name):
                    return bool(pattern.include)
        return False


def _matches_path(pattern: RegexPattern, name: str) -> bool:
    """Whether a pattern is about this very path.

    The library's patterns also match what is below a folder that they mean, and mark where that folder ends. But
    folders were judged on the way down: `!lib/` takes back `lib`, and not whatever else is left out below it. On the
    other hand `lib/**` is about all that is below `lib`, and not about `lib`.
    """
    if pattern.include is None or pattern.regex is None:
        return False
    text = str(pattern.pattern).removeprefix("!").strip()
    if pattern.regex.pattern.startswith("^") and text.rstrip("/").endswith("/**"):
        found = pattern.regex.match(name)
        fits = name.endswith("/") or not text.endswith("/")
        return fits and found is not None and found.end() < len(name)
    matches = pattern.regex.finditer(name)
    return any(found.end() == len(name) or not any(found.groupdict().values()) for found in matches)
