"""Git's ignore rules, also in files of our own: all `.gitignore` files from the top of the repository down, `.git/info/exclude`, negation."""

from pathlib import Path
from typing import NamedTuple

from pathspec import GitIgnoreSpec
from pathspec.pattern import RegexPattern

from gangline.base.errors import InputError

IGNORE_FILES = (".gitignore", ".ganglineignore")
"""The second is for what belongs into the repository but not into a cluster. Its rules take precedence."""


class IgnoreFile(NamedTuple):
    """The patterns of one file, which apply below its folder."""

    folder: Path
    patterns: tuple[RegexPattern, ...]


class IgnoreRules:
    """The ignore files from the top of the repository down to a folder. Deeper ones take precedence."""

    def __init__(self, rules: tuple[IgnoreFile, ...] = ()) -> None:
        self._rules = rules

    @classmethod
    def for_folder(cls, folder: Path) -> "IgnoreRules":
        """The rules above a folder, from the top of its repository. Raises `InputError` if a file cannot be read."""
        top = next((parent for parent in (folder, *folder.parents) if (parent / ".git").exists()), folder)
        rules = cls().with_file(top, top / ".git" / "info" / "exclude")
        for parent in reversed(folder.parents):
            if parent.is_relative_to(top):
                rules = rules.with_folder(parent)
        return rules

    def with_folder(self, folder: Path) -> "IgnoreRules":
        """These rules and those of the folder's `.gitignore` and `.ganglineignore`."""
        rules = self
        for name in IGNORE_FILES:
            rules = rules.with_file(folder, folder / name)
        return rules

    def with_file(self, folder: Path, file: Path) -> "IgnoreRules":
        """These rules and those of a file, if it exists. Raises `InputError`."""
        try:
            text = file.read_text(encoding="utf-8", errors="surrogateescape") if file.is_file() else ""
            patterns = tuple(GitIgnoreSpec.from_lines(text.splitlines()).patterns)
        except (OSError, ValueError) as error:
            raise InputError(f"{file}: cannot be read: {error}") from error
        return IgnoreRules((*self._rules, IgnoreFile(folder, patterns))) if text else self

    def excludes(self, path: Path, *, is_folder: bool) -> bool:
        """Whether a path is ignored, given that its folder is not."""
        for rule in reversed(self._rules):
            name = path.relative_to(rule.folder).as_posix() + ("/" if is_folder else "")
            for pattern in reversed(rule.patterns):
                if _matches_path(pattern, name):
                    return bool(pattern.include)
        return False


def _matches_path(pattern: RegexPattern, name: str) -> bool:
    """Whether a pattern matches this path itself.

    The library's patterns also match paths below a matching folder, and mark where that folder ends. But folders have
    been checked on the way down: `!lib/` includes `lib`, and not other ignored paths below it. On the other hand `lib/**`
    matches everything below `lib`, but not `lib`.
    """
    if pattern.include is None or pattern.regex is None:
        return False
    text = str(pattern.pattern).removeprefix("!").strip()
    if pattern.regex.pattern.startswith("^") and text.rstrip("/").endswith("/**"):
        match = pattern.regex.match(name)
        is_right_type = name.endswith("/") or not text.endswith("/")
        return is_right_type and match is not None and match.end() < len(name)
    matches = pattern.regex.finditer(name)
    return any(match.end() == len(name) or not any(match.groupdict().values()) for match in matches)
