"""Checks the prose of the pages that people wrote: words of old habits, and how easy they are to read.

python hack/prose.py                      print every finding; exit 1 if there is one
python hack/prose.py --scores             print the reading ease and the words per sentence of each page as well
python hack/prose.py --compare COMMIT     print a table of both, at a commit and now

Reading ease is Flesch's: 206.835 - 1.015 words per sentence - 84.6 syllables per word; 60 is plain English. Code, tables,
headings and names in backticks do not count, because nobody can choose simpler ones.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (".", "tutorials", "how-to", "doors", "reference", "runtime", "runbooks")
"""Folders of docs/ whose pages are checked. Decisions are history, and the pages of rules are generated."""
NOT_CHECKED = ("benchmarks.md", "reference/fields.md", "reference/labels.md", "reference/python.md")
"""A record of measurements, and generated pages."""
MIN_EASE = 60.0
MAX_WORDS = 32
"""The words of the longest sentence."""
HABITS = (
    (r"\b(?:is|are|was|were|been) told\b", "say who tells whom: gangline tells each process its rank"),
    (r"\bhas it\b(?!s)", "name the thing: the page lists it"),
    (r"\bgoes (?:into|as|to|out)\b", "use the verb that says how: is sent to, is written to"),
    (
        r"\b(?:of old|thereof|wherever|whosoever|in vain|lest|upon|nought|anew|whence|thence)\b",
        "use a present-day word",
    ),
    (r"\bfor (?:it|they|he|this) (?:is|are|has|have|was|were)\b", "write: because"),
    (r"\bmade of\b.*\bmade of\b", "one sentence, one thought"),
    (r"\b(?:simply|just|easily|obviously|of course)\b", "leave it out: it is not simple for everybody"),
    (r"\b(?:utilize|leverage|facilitate|in order to)\b", "use, help, to"),
    (r"\bplease\b", "leave it out"),
)
"""Patterns of habits, and what to write instead."""
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
_WORD = re.compile(r"[A-Za-z][A-Za-z']*")


class Finding(NamedTuple):
    """A place in a page, and what is wrong there."""

    page: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.message}"


def checked_pages(docs: Path = ROOT / "docs") -> list[Path]:
    """The pages that people wrote for people."""
    pages = (page for folder in FOLDERS for page in sorted((docs / folder).glob("*.md")))
    return [page for page in pages if str(page.relative_to(docs)) not in NOT_CHECKED]


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page that are prose, with their numbers. A list item ends with a full stop."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and line.strip() and not re.match(r"\s*(#|\||<!--|!\[)", line):
            yield number, line


def findings(page: str, text: str) -> Iterator[Finding]:
    """What is wrong with a page."""
    for number, line in prose(text):
        plain = re.sub(r"`[^`]*`", "NAME", line)
        for pattern, advice in HABITS:
            for found in re.finditer(pattern, plain, re.IGNORECASE):
                yield Finding(page, number, f'"{found[0]}": {advice}')
    for sentence in sentences(text):
        words = len(_WORD.findall(sentence))
        if words > MAX_WORDS:
            yield Finding(page, 1, f'a sentence of {words} words, at most {MAX_WORDS}: "{sentence[:60]}..."')
    ease = reading_ease(text)
    if ease < MIN_EASE:
        yield Finding(page, 1, f"reading ease {ease:.0f}, at least {MIN_EASE:.0f}: shorter sentences, shorter words")


def sentences(text: str) -> list[str]:
    """The sentences of a page, without code."""
    paragraphs = list[str]()
    last = -2
    for number, line in prose(text):
        is_item = re.match(r"\s*(?:[-*]|\d+\.)\s", line)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "name", line)).strip(" -*>")
        if is_item or number != last + 1 or not paragraphs:
            paragraphs.append(plain)
        else:
            paragraphs[-1] += " " + plain
        last = number
    return [part for text in paragraphs for part in re.split(r"(?<=[.!?])\s+", text) if _WORD.search(part)]


def reading_ease(text: str) -> float:
    """Flesch's reading ease of a page; 100 for a page without prose."""
    parts = sentences(text)
    words = [word for part in parts for word in _WORD.findall(part)]
    if not words:
        return 100.0
    return 206.835 - 1.015 * len(words) / len(parts) - 84.6 * sum(map(syllables, words)) / len(words)


def sentence_words(text: str) -> float:
    """The words of an average sentence; 0 for a page without prose."""
    parts = sentences(text)
    return sum(len(_WORD.findall(part)) for part in parts) / len(parts) if parts else 0.0


def comparison(commit: str) -> Iterator[str]:
    """A table of the checked pages: what they measure now, and what they did at a commit, if they were there."""
    yield "| page | reading ease before | now | words per sentence before | now |"
    yield "| --- | --- | --- | --- | --- |"
    for page in checked_pages():
        name = str(page.relative_to(ROOT))
        shown = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, text=True)
        before = shown.stdout if shown.returncode == 0 else ""
        old = (f"{reading_ease(before):.0f}", f"{sentence_words(before):.1f}") if before else ("", "")
        text = page.read_text()
        yield f"| `{name}` | {old[0]} | {reading_ease(text):.0f} | {old[1]} | {sentence_words(text):.1f} |"


def syllables(word: str) -> int:
    """The syllables of an English word, counted by its groups of vowels."""
    word = re.sub(r"'s?$", "", word.lower())
    groups = len(re.findall(r"[aeiouy]+", word))
    if re.search(r"[^aeiouyl]e$", word) or re.search(r"[aeiouy]le$", word):
        groups -= 1  # a silent e: time, while
    if re.search(r"[^aeiouydt]ed$", word) or re.search(r"[^aeiouyscxzgh]es$", word):
        groups -= 1  # jumped, takes
    return max(groups, 1)


def main() -> int:
    """Print what is wrong. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--scores", action="store_true", help="print the reading ease and words per sentence of each page"
    )
    parser.add_argument("--compare", metavar="COMMIT", help="print a table: at that commit, and now")
    options = parser.parse_args()
    if options.compare:
        print("\n".join(comparison(options.compare)))
        return 0
    wrong = list[Finding]()
    for page in checked_pages():
        text, name = page.read_text(), str(page.relative_to(ROOT))
        if options.scores:
            print(f"{reading_ease(text):5.0f} {sentence_words(text):5.1f}  {name}")
        wrong += findings(name, text)
    for finding in wrong:
        print(finding)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
