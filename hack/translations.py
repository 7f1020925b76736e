"""Says which translations are older than their source.

python hack/translations.py           list the translations whose source has changed; exit 1 if there is one
python hack/translations.py --accept  record that every translation matches its source as it is now

The first line of a translation names its source: <!-- translation of docs/index.md -->. docs/zh/sources.json has a hash
of each source as it was when the translation was last brought up to date. Code blocks must be the same in both.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRANSLATIONS = ROOT / "docs" / "zh"
RECORD = TRANSLATIONS / "sources.json"
_SOURCE = re.compile(r"\A<!-- translation of (\S+) -->\n")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def sources() -> dict[Path, Path]:
    """Each translation, and the page it was made from."""
    found: dict[Path, Path] = {}
    for page in sorted(TRANSLATIONS.rglob("*.md")):
        match = _SOURCE.match(page.read_text())
        if match is None:
            raise ValueError(f"{page.relative_to(ROOT)}: the first line must name its source")
        found[page] = ROOT / match[1]
    return found


def text_hash(text: str) -> str:
    """A hash of a source."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def problems(recorded: dict[str, str]) -> Iterator[str]:
    """One line for each translation that is older than its source, or has other code."""
    for page, source in sources().items():
        name, text = str(source.relative_to(ROOT)), source.read_text()
        if recorded.get(name) != text_hash(text):
            yield f"{page.relative_to(ROOT)}: is older than {name}"
        if _BLOCK.findall(text) != _BLOCK.findall(page.read_text()):
            yield f"{page.relative_to(ROOT)}: has other code blocks than {name}"


def main() -> int:
    """List or record. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--accept", action="store_true", help="record the sources as they are now")
    if parser.parse_args().accept:
        hashes = {str(source.relative_to(ROOT)): text_hash(source.read_text()) for source in sources().values()}
        RECORD.write_text(json.dumps(hashes, indent=2) + "\n")
    lines = list(problems(json.loads(RECORD.read_text())))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
