"""`get` parses the same options with and without click."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from gangline.cli import get_fastpath
from gangline.cli.get.command import get
from gangline.cli.main import run
from gangline.kube.config.access import PlaneAccess

PLAIN = (
    (),
    ("jobs",),
    ("pods", "a", "b"),
    ("tfjob/x", "-o", "yaml"),
    ("pods", "-n", "team", "-owide", "--no-headers"),
    ("pods", "-nteam", "--output=json", "--show-managed-fields"),
    ("pods,svc", "-A", "-l", "a=b,c!=d", "--show-labels"),
    ("pods", "--namespace", "x", "--sort-by", ".metadata.name", "--ignore-not-found"),
    ("pods", "--namespace=x", "-o", "jsonpath={.items[*]}", "--field-selector=metadata.name=x"),
    ("--context", "c", "--kubeconfig", "f", "nodes"),
)


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_a_plain_command_line_is_parsed_as_click_parses_it(arguments: tuple[str, ...]) -> None:
    parsed = get_fastpath.plain_command_line(arguments)
    assert parsed is not None
    params = get.make_context("get", list(arguments)).params
    assert parsed.words == (params.pop("words") or ("jobs",))
    expected = {name: value for name, value in params.items() if value not in (None, False, "", (), 0)}
    assert parsed.options == expected


@pytest.mark.parametrize(
    "arguments",
    [
        ("-h",),
        ("jobs", "--help"),
        ("jobs", "-w"),
        ("-A", "-v"),
        ("-n",),
        ("--output=",),
        ("--as", "x"),
        ("-Aw",),
        ("--",),
    ],
    ids=" ".join,
)
def test_other_command_lines_are_left_to_click(arguments: tuple[str, ...]) -> None:
    assert get_fastpath.plain_command_line(arguments) is None


def test_a_plain_get_imports_neither_click_nor_an_event_loop() -> None:
    code = (
        "import sys; from gangline.cli import get_fastpath; get_fastpath.run(['pods', '--kubeconfig', 'none']); "
        "import gangline.kube.transport.blocking; "
        "sys.exit(', '.join(sorted({'click', 'asyncio', 'aiohttp', 'rich'} & set(sys.modules))))"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    # An exit with an empty text is a 1.
    assert completed.stderr == "error: kubeconfig: none: no such file; correct the path or create it\n\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("pods", "-o", "nonsense"),
        ("pods", "--kubeconfig", "none"),
        ("pods/a", "b", "--kubeconfig", "none"),
        ("pods", "--kubeconfig", "closed"),
        # Nothing is configured, and nothing has run: the answer has commands to copy.
        ("jobs",),
    ],
    ids=" ".join,
)
def test_a_mistake_has_the_same_answer_with_and_without_click(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("KUBE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    # Nobody listens on port 1.
    access = PlaneAccess("http://127.0.0.1:1", "secret", None)
    (tmp_path / "closed").write_text(yaml.safe_dump(access.kubeconfig()))
    fast = (get_fastpath.run(arguments), capsys.readouterr())
    slow = (run(("get", *arguments)), capsys.readouterr())
    assert fast == slow
    assert fast[0] == 1
    assert fast[1].err
