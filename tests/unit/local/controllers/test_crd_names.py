"""Which names a CRD gets beside others of its group."""

from typing import Any

from gangline.local.controllers.crd_names import NamesDecision, decide_names


def definition(accepted: dict[str, Any] | None = None, group: str = "a.test", **names: Any) -> dict[str, Any]:
    full = {"plural": "ws", "singular": "w", "kind": "W", "listKind": "WList", **names}
    return {
        "spec": {"group": group, "names": full},
        "status": {"acceptedNames": full if accepted is None else accepted},
    }


def test_free_names_are_accepted() -> None:
    crd = definition({}, shortNames=["x"], categories=["all"])
    assert decide_names(crd, [crd, definition(group="b.test")]) == NamesDecision(crd["spec"]["names"])


def test_the_last_conflict_is_reported_and_free_names_are_accepted() -> None:
    crd = definition({}, plural="others", singular="other")
    decision = decide_names(crd, [crd, definition()])
    assert decision.accepted == {"plural": "others", "singular": "other"}
    assert (decision.reason, decision.message) == ("ListKindConflict", '"WList" is already in use')


def test_short_names_are_accepted_together_or_not_at_all() -> None:
    names = {"plural": "others", "singular": "other", "kind": "O", "listKind": "OList"}
    crd = definition({}, **names, shortNames=["w", "ws", "o"])
    decision = decide_names(crd, [crd, definition()])
    assert decision.accepted == names
    assert decision.reason == "ShortNamesConflict"
    assert decision.message == '["w" is already in use, "ws" is already in use]'


def test_names_that_it_has_are_no_conflict() -> None:
    crd = definition(shortNames=["new"])
    crd["status"]["acceptedNames"] = {key: name for key, name in crd["spec"]["names"].items() if key != "shortNames"}
    assert decide_names(crd, [crd]).accepted == crd["spec"]["names"]
