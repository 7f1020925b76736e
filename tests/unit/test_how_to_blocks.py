"""Every block of a how-to page is played, or says why not."""

from pathlib import Path

import pytest

from support.how_to import CLUSTER, PAGE_NOT_PLAYED, SetAside, cluster_steps, named_tests, set_aside
from support.nodes.how_to import IN_CLUSTER
from support.tutorials import SavedFile, TypedCommand

ROOT = Path(__file__).parents[2]
PAGES = {
    str(page.relative_to(ROOT / "docs")): page.read_text()
    for folder in ("how-to", "zh/how-to")
    for page in sorted((ROOT / "docs" / folder).glob("*.md"))
}
PLAYED = {name: text for name, text in PAGES.items() if not PAGE_NOT_PLAYED.search(text)}
PAGE = """Save this as `job.yaml`:

```yaml
kind: TFJob
```

```console
$ gangline up
$ gangline submit job.yaml
```

<!-- block not played: needs the moon; tests/unit/test_moon.py, tests/moon do the parts -->

```console cluster
$ kubectl get moon
```

```console cluster
$ gangline install
ok
```
"""


def test_a_block_is_set_aside_with_its_reason() -> None:
    reason = "needs the moon; tests/unit/test_moon.py, tests/moon do the parts"
    assert set_aside(PAGE) == [
        SetAside("cluster", "$ kubectl get moon\n", reason),
        SetAside("cluster", "$ gangline install\nok\n", ""),
    ]
    assert named_tests(reason) == ["tests/unit/test_moon.py", "tests/moon"]


def test_a_reader_with_a_cluster_saves_files_and_types_what_is_for_a_cluster() -> None:
    saved = SavedFile("job.yaml", "kind: TFJob\n")
    install = TypedCommand("cluster", "gangline install", ("ok",))
    assert list(cluster_steps(PAGE)) == [saved, install]
    submit = TypedCommand("", "gangline submit job.yaml", ())
    assert list(cluster_steps(PAGE, ("gangline submit",))) == [saved, submit, install]


@pytest.mark.parametrize("name", PLAYED)
def test_every_block_is_played_or_says_why_not(name: str) -> None:
    for block in set_aside(PLAYED[name]):
        if not block.reason:
            assert block.tag == CLUSTER, f"{name}: say why this is not played:\n{block.code}"
            assert Path(name).stem in IN_CLUSTER, f"{name}: play this in the cluster, or say why not:\n{block.code}"
        else:
            paths = named_tests(block.reason)
            assert paths, f"{name}: name the test that does its work"
            assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", IN_CLUSTER)
def test_a_page_of_the_cluster_has_commands_for_it(name: str) -> None:
    steps = list(cluster_steps(PAGES[f"how-to/{name}.md"], IN_CLUSTER[name]))
    commands = [step for step in steps if isinstance(step, TypedCommand)]
    assert [step for step in commands if step.tag == CLUSTER]
    for beginning in IN_CLUSTER[name]:
        assert [step for step in commands if step.command.startswith(beginning)], f"{name}: no {beginning}"
    assert [step.command for step in commands if step.command.startswith(("gangline up", "gangline down"))] == []
