"""Says which translations are older than their source.

python hack/translations.py           list the translations whose source has changed; exit 1 if there is one
python hack/translations.py --accept  record that every translation matches its source as it is now

The first line of a translation names its source: <!-- translation of docs/index.md -->. docs/zh/sources.json has a hash
of each source as it was when the translation was last brought up to date. Code blocks must be the same in both.
docs/zh/commands.json has the one-line summary of each command in both languages; docs/zh/commands.md is written from it.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TRANSLATIONS = ROOT / "docs" / "zh"
RECORD = TRANSLATIONS / "sources.json"
COMMANDS = TRANSLATIONS / "commands.json"
COMMANDS_PAGE = TRANSLATIONS / "commands.md"
_SOURCE = re.compile(r"\A<!-- translation of (\S+) -->\n")
_EXIT_CODES = """## 退出码

| 退出码 | 含义 |
| --- | --- |
| 0 | 成功 |
| 1 | 输入或用法有错误 |
| 100 | 任务失败 |
| 101 | 没有按时完成 |
| 102 | 没有这个任务 |
| 103 | 任务被删除 |
| 130 | 被中断 |"""
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


def commands_page(summaries: dict[str, Any]) -> str:
    """The page with what `gangline --help` says, from the summaries in both languages."""
    lines = [
        f"<!-- translation of {COMMANDS.relative_to(ROOT)} -->",
        "# 命令一览",
        "",
        "`gangline --help` 的中文摘要。每个命令都有例子：`gangline 命令 --help`。全部细节：[命令行](../cli.md)（英文）。",
    ]
    for section in summaries["sections"].values():
        lines += ["", f"## {section['zh']}", "", "| 命令 | 作用 |", "| --- | --- |"]
        lines += [f"| `gangline {name}` | {each['zh']} |" for name, each in section["commands"].items()]
    return "\n".join([*lines, "", _EXIT_CODES, ""])


def main() -> int:
    """List or record. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--accept", action="store_true", help="record the sources as they are now")
    if parser.parse_args().accept:
        COMMANDS_PAGE.write_text(commands_page(json.loads(COMMANDS.read_text())))
        hashes = {str(source.relative_to(ROOT)): text_hash(source.read_text()) for source in sources().values()}
        RECORD.write_text(json.dumps(hashes, indent=2) + "\n")
    lines = list(problems(json.loads(RECORD.read_text())))
    print("\n".join(lines), end="\n" if lines else "")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
