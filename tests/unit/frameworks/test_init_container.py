import pytest

from gangline.base.errors import InputError
from gangline.frameworks.init_container import InitContainers, rendered_template


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("a {{.X}} b", "a 1 b"),
        ("a {{ .X }} b", "a 1 b"),
        ("a  {{- .X }}  b", "a1  b"),
        ("a  {{ .X -}}  b", "a  1b"),
        ("a\n{{- .X -}}\nb", "a1b"),
        ("{{.X}}{{.X}}", "11"),
        ("a{{/* why */}}b", "ab"),
        ("a {{- /* why */ -}} b", "ab"),
        ("{ {.X} }", "{ {.X} }"),
    ],
)
def test_variables_are_filled_in_and_dashes_trim(template: str, text: str) -> None:
    assert rendered_template(template, {".X": "1"}) == text


def test_values_are_escaped_as_go_does() -> None:
    assert (
        rendered_template("{{.X}}", {".X": """a<b>&'c'+"d"\0"""}) == "a&lt;b&gt;&amp;&#39;c&#39;&#43;&#34;d&#34;\ufffd"
    )


@pytest.mark.parametrize("action", [".Other", "if .X", "-.X", ""])
def test_other_actions_are_refused_with_those_that_are_known(action: str) -> None:
    with pytest.raises(InputError, match=r"is not known; write one of \{\{\.X\}\}, \{\{\.Y\}\}"):
        rendered_template(f"{{{{{action}}}}}", {".X": "1", ".Y": "2"})


def test_a_template_makes_containers() -> None:
    made = InitContainers(
        "wait:2",
        7,
        """
- name: wait
  image: {{ .InitContainerImage }}
  command: ['sh', '-c', 'wait {{.MasterAddr}} {{.MaxTries}}']
- name: second
  image: other
""",
    )
    assert made.waiting_for("job-master-0") == (
        {"name": "wait", "image": "wait:2", "command": ["sh", "-c", "wait job-master-0 7"]},
        {"name": "second", "image": "other"},
    )


@pytest.mark.parametrize("template", ["name: x", "- [", "- 1", "- name: {{.Nobody}}"])
def test_a_bad_template_is_refused_before_the_first_job(template: str) -> None:
    with pytest.raises(InputError, match="init container template"):
        InitContainers("wait:2", 7, template)
