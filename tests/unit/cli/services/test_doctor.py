"""How `gangline doctor` judges clocks and leases."""

from datetime import UTC, datetime, timedelta

from gangline.api.selectors import LabelSelector
from gangline.cli.services.doctor import OPERATOR_SELECTOR, clock_skew, is_lease_held
from support.cluster.installation import installation

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_the_resolution_of_the_date_header_is_no_skew() -> None:
    assert clock_skew("Thu, 01 Jan 2026 12:00:00 GMT", NOW + 0.9 * SECOND, NOW + SECOND) == timedelta()


def test_the_skew_is_a_lower_bound() -> None:
    assert clock_skew("Thu, 01 Jan 2026 12:01:00 GMT", NOW, NOW + SECOND) == 59 * SECOND
    assert clock_skew("Thu, 01 Jan 2026 11:59:00 GMT", NOW, NOW + SECOND) == 59 * SECOND


def test_without_a_date_header_the_skew_is_unknown() -> None:
    assert clock_skew("", NOW, NOW) is None
    assert clock_skew("soon", NOW, NOW) is None


def lease(renewed: str, holder: str = "me") -> dict[str, dict[str, object]]:
    return {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


def test_a_lease_is_held_while_it_is_renewed() -> None:
    assert is_lease_held(lease("2026-01-01T11:59:50.000000Z"), NOW)
    assert not is_lease_held(lease("2026-01-01T11:58:00.000000Z"), NOW)
    assert not is_lease_held(lease("2026-01-01T11:59:50.000000Z", ""), NOW)
    assert not is_lease_held({"spec": {}}, NOW)


def test_the_operator_is_searched_by_the_label_of_its_deployment() -> None:
    (deployment,) = [one for one in installation({}) if one["kind"] == "Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert LabelSelector.parse(OPERATOR_SELECTOR).matches(labels)
