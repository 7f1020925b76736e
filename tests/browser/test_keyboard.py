"""The whole dashboard without a mouse."""

from support.browser import PageOpener
from support.example_dashboard import team
from support.example_dashboard.server import ExampleServer


def test_the_first_stop_skips_to_the_content(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.keyboard.press("Tab")
    assert opened.focused() == "Skip to content"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("() => document.activeElement.id") == "main"
    assert opened.page.url.endswith("#/")


def test_every_stop_is_visible_and_has_a_visible_focus(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(".job-line")
    script = """() => {
      const one = document.activeElement;
      const style = getComputedStyle(one);
      const box = one.getBoundingClientRect();
      return [one.outerHTML.slice(0, 80), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2, box.width > 0 && box.height > 0];
    }"""
    stops = []
    for _ in range(24):
        opened.page.keyboard.press("Tab")
        stops.append(opened.page.evaluate(script))
    assert [stop for stop in stops if not (stop[1] and stop[2])] == []
    assert len({stop[0] for stop in stops}) > 15


def test_j_k_and_enter_open_a_job_and_u_goes_back(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/?sort=name")
    opened.page.wait_for_selector(".job-line")
    for key in ("j", "j", "j", "k"):
        opened.page.keyboard.press(key)
    opened.page.wait_for_selector("[data-row='1'][data-selected=yes]")
    opened.page.wait_for_function("() => document.activeElement.textContent === 'dlrm-nightly'")
    opened.page.keyboard.press("Enter")
    opened.page.wait_for_selector("h1:has-text('dlrm-nightly')")
    opened.page.keyboard.press("u")
    opened.page.wait_for_selector(".job-line")


def test_g_goes_to_views_and_the_question_mark_helps(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    for keys, title in (("gc", "Cluster"), ("gs", "Sweeps"), ("gn", "Submit a job"), ("gb", "Jobs")):
        opened.page.keyboard.type(keys)
        opened.page.wait_for_selector(f"h1:has-text('{title}')")
    opened.page.keyboard.press("?")
    dialog = opened.page.get_by_role("dialog", name="Keyboard shortcuts")
    dialog.wait_for()
    assert "Next job" in dialog.inner_text()
    assert opened.violations() == []
    opened.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")


def test_single_keys_can_be_switched_off(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.keyboard.press("?")
    opened.page.get_by_label("Use single-key shortcuts").uncheck()
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.type("gc")
    opened.settle()
    assert opened.page.locator("h1").inner_text() == "Jobs"


def test_a_slash_searches_and_keys_in_a_field_are_text(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/")
    opened.page.wait_for_selector(".job-line")
    opened.page.keyboard.press("/")
    opened.page.keyboard.type("gcj")
    opened.page.wait_for_selector("text=Nothing matches")
    assert opened.page.input_value("input[type=search]") == "gcj"
    opened.page.keyboard.press("Escape")
    opened.page.keyboard.press("x")
    opened.page.wait_for_selector(".job-line")


def test_the_timeline_is_brushed_by_keys_and_logs_and_events_follow(
    example: ExampleServer, open_page: PageOpener
) -> None:
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}")
    opened.page.wait_for_selector(".log-line")
    opened.page.keyboard.press("]")
    opened.page.wait_for_selector(".brush")
    for _ in range(2):
        opened.page.keyboard.press("]")
    opened.page.wait_for_selector(".mark-item[aria-pressed=true]:has-text('First failure')")
    opened.page.wait_for_function("() => !document.querySelector('.log').textContent.includes('step 0 ')")
    opened.page.keyboard.press("3")
    opened.page.wait_for_selector("text=2 of 5 events in the selected span")
    opened.page.keyboard.press("2")
    opened.page.wait_for_selector(".segment[aria-pressed=true]:has-text('By time')")
    opened.page.keyboard.press("Escape")
    opened.page.wait_for_selector(".brush", state="detached")
    opened.page.locator(".timeline-scroll").focus()
    for key in ("ArrowRight", "ArrowRight", "Shift+ArrowRight"):
        opened.page.keyboard.press(key)
    opened.page.wait_for_selector(".brush")
    assert "from=" in opened.page.url


def test_an_action_is_confirmed_by_keys_and_sent_with_the_header(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}")
    opened.page.get_by_role("button", name="Suspend").focus()
    opened.page.keyboard.press("Enter")
    dialog = opened.page.get_by_role("dialog", name="Suspend bert-large?")
    dialog.wait_for()
    assert opened.violations() == []
    assert example.requests == []
    opened.page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert opened.focused() == "Suspend"
    opened.page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Suspend").focus()
    opened.page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    assert example.requests == [(f"/api/jobs/{team.BERT}/actions/suspend", "1", {"uid": "uid-bert-large"})]


def test_only_what_is_allowed_is_offered(example: ExampleServer, open_page: PageOpener) -> None:
    example.detail["allowed"] = {"resume": True}
    opened = open_page(example.url)
    opened.go(f"#/job/{team.BERT}")
    opened.page.wait_for_selector(".actions button")
    assert opened.page.locator(".actions button").all_inner_texts() == ["Resume"]


def test_a_yaml_is_checked_before_it_is_submitted(example: ExampleServer, open_page: PageOpener) -> None:
    opened = open_page(example.url)
    opened.go("#/submit")
    submit = opened.page.get_by_role("button", name="Submit", exact=True)
    assert submit.is_disabled()
    opened.page.fill("textarea", "name: x")
    opened.page.get_by_role("button", name="Check").click()
    opened.page.wait_for_selector("text=kind: missing")
    assert submit.is_disabled()
    opened.page.fill("textarea", "kind: PyTorchJob")
    opened.page.get_by_role("button", name="Check").click()
    opened.page.wait_for_selector("text=would be created")
    submit.click()
    opened.page.wait_for_selector("text=Submitted:")
    assert [body["dryRun"] for _, _, body in example.requests] == [True, True, False]
