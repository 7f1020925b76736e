"""What the doctor makes of what it sees."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from gangline.api.selectors import LabelSelector
from gangline.cli.services.doctor import OPERATOR_SELECTOR, clock_skew, is_lease_held

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_a_clock_that_tells_whole_seconds_is_not_blamed_for_the_rest() -> None:
    assert clock_skew("Thu, 01 Jan 2026 12:00:00 GMT", NOW + 0.9 * SECOND, NOW + SECOND) == timedelta()


def test_a_clock_that_is_off_is_off_by_at_least_so_much() -> None:
    assert clock_skew("Thu, 01 Jan 2026 12:01:00 GMT", NOW, NOW + SECOND) == 59 * SECOND
    assert clock_skew("Thu, 01 Jan 2026 11:59:00 GMT", NOW, NOW + SECOND) == 59 * SECOND


def test_a_server_without_a_clock_is_known_as_such() -> None:
    assert clock_skew("", NOW, NOW) is None
    assert clock_skew("soon", NOW, NOW) is None


def lease(renewed: str, holder: str = "me") -> dict[str, dict[str, object]]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


def test_a_lease_is_held_while_somebody_renews_it() -> None:
    assert is_lease_held(lease("2026-01-01T11:59:50.000000Z"), NOW)
    assert not is_lease_held(lease("2026-01-01T11:58:00.000000Z"), NOW)
    assert not is_lease_held(lease("2026-01-01T11:59:50.000000Z", ""), NOW)
    assert not is_lease_held({"spec": {}}, NOW)


def test_the_operator_is_looked_for_under_the_label_it_is_installed_with() -> None:
    documents = yaml.safe_load_all((Path(__file__).parents[4] / "manifests" / "operator.yaml").read_text())
    (deployment,) = [result for result in documents if result["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert LabelSelector.parse(OPERATOR_SELECTOR).matches(labels)
