"""Access reviews, answered as kube-apiserver answers them."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import MastersOnly, check_access
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.access_reviews import API_AUDIENCE, ReviewHandler, ReviewRequest
from gangline.apiserver.http.handler import access_attributes
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb, request_info
from gangline.apiserver.users import ANONYMOUS_USER, MASTERS_GROUP, UserInfo

ADMIN = UserInfo("admin", (MASTERS_GROUP, "system:authenticated"))
NOBODY = UserInfo("nobody", ("system:authenticated",))
REVIEWS = ReviewHandler(Authenticator({"secret": ADMIN}), MastersOnly())
NOW = "2026-01-01T00:00:00Z"
PODS = {"namespace": "ns", "verb": "create", "resource": "pods"}


def of(plural: str) -> RequestInfo:
    group = "authentication" if plural in ("tokenreviews", "selfsubjectreviews") else "authorization"
    place = "namespaces/ns/" if plural.startswith("local") else ""
    found = request_info(f"/apis/{group}.k8s.io/v1/{place}{plural}")
    assert found is not None
    return found


def asked(plural: str, user: UserInfo = ADMIN, **body: Any) -> JSON:
    return REVIEWS.review(ReviewRequest(user, of(plural), body, "test", NOW))


def refused(plural: str, **body: Any) -> StatusError:
    with pytest.raises(StatusError) as found:
        asked(plural, **body)
    return found.value


def test_self_subject_review_returns_the_user() -> None:
    answer = asked("selfsubjectreviews", NOBODY)
    assert answer["kind"] == "SelfSubjectReview"
    assert answer["metadata"] == {"creationTimestamp": NOW}
    assert answer["status"] == {"userInfo": {"username": "nobody", "groups": ["system:authenticated"]}}


@pytest.mark.parametrize(("user", "allowed"), [(ADMIN, True), (NOBODY, False)])
def test_self_subject_access_review_returns_what_the_user_may_do(user: UserInfo, allowed: bool) -> None:
    answer = asked("selfsubjectaccessreviews", user, spec={"resourceAttributes": PODS})
    assert answer["status"] == {"allowed": allowed}
    assert answer["spec"] == {"resourceAttributes": PODS}
    (owner,) = answer["metadata"]["managedFields"]
    assert (owner["manager"], owner["operation"]) == ("test", "Update")


def test_public_paths_and_self_reviews_are_allowed_for_all_users() -> None:
    version = asked(
        "selfsubjectaccessreviews",
        NOBODY,
        spec={"nonResourceAttributes": {"path": "/version", "verb": "get"}},
    )
    assert version["status"] == {"allowed": True}
    own = {"group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews", "verb": "create"}
    assert asked("selfsubjectaccessreviews", NOBODY, spec={"resourceAttributes": own})["status"]["allowed"]


def test_subject_access_review_is_about_its_user_and_groups() -> None:
    master = {"user": "x", "groups": [MASTERS_GROUP], "resourceAttributes": PODS}
    assert asked("subjectaccessreviews", spec=master)["status"] == {"allowed": True}
    other = {"user": "admin", "resourceAttributes": PODS}
    assert asked("subjectaccessreviews", spec=other)["status"] == {"allowed": False}
    local = asked("localsubjectaccessreviews", spec={"user": "x", "resourceAttributes": PODS})
    assert (local["metadata"]["namespace"], local["status"]) == ("ns", {"allowed": False})


def test_a_local_review_is_about_its_namespace() -> None:
    elsewhere = {**PODS, "namespace": "other"}
    error = refused("localsubjectaccessreviews", spec={"user": "x", "resourceAttributes": elsewhere})
    assert (error.code, error.message) == (400, "spec.resourceAttributes.namespace must match namespace: ns")


@pytest.mark.parametrize(
    ("plural", "spec", "told"),
    [
        (
            "subjectaccessreviews",
            {"resourceAttributes": PODS},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "selfsubjectaccessreviews",
            {},
            (
                "spec.resourceAttributes: Invalid value: null: exactly one of nonResourceAttributes or "
                "resourceAttributes must be specified"
            ),
        ),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": PODS, "nonResourceAttributes": {"path": "/", "verb": "get"}},
            (
                'spec.nonResourceAttributes: Invalid value: {"Path":"/","Verb":"get"}: '
                "cannot be specified in combination with resourceAttributes"
            ),
        ),
    ],
)
def test_invalid_review_is_refused_with_kube_apiservers_message(plural: str, spec: JSON, told: str) -> None:
    error = refused(plural, spec=spec)
    assert error.code == 422
    assert error.message == f'.authorization.k8s.io "" is invalid: {told}'
    assert error.details is not None
    assert error.details["group"] == "authorization.k8s.io"


def test_token_review_returns_the_user_of_a_valid_token() -> None:
    status = asked("tokenreviews", spec={"token": "secret"})["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == "admin"
    assert status["audiences"] == [API_AUDIENCE]
    assert asked("tokenreviews", spec={"token": "nonsense"})["status"] == {"user": {}}
    assert asked("tokenreviews", spec={"token": "secret", "audiences": ["x"]})["status"] == {"user": {}}
    assert refused("tokenreviews", spec={}).message == "token is required for TokenReview in authentication"


def test_rules_are_listed() -> None:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in asked("selfsubjectrulesreviews", spec={"namespace": "ns"})["status"]["resourceRules"]
    rules = asked("selfsubjectrulesreviews", NOBODY, spec={"namespace": "ns"})["status"]["resourceRules"]
    assert everything not in rules
    assert refused("selfsubjectrulesreviews", spec={}).message == "no namespace on request"


@pytest.mark.parametrize("body", [{"spec": "text"}, {"spec": {"token": 3}}, {"kind": "Pod"}, {"metadata": 1}])
def test_a_body_of_the_wrong_type_is_refused(body: JSON) -> None:
    assert refused("tokenreviews", **body).code == 400


def test_only_authenticated_users_may_create_self_reviews() -> None:
    def check(user: UserInfo, plural: str) -> None:
        check_access(MastersOnly(), access_attributes(user, RequestVerb.CREATE, of(plural)))

    check(NOBODY, "selfsubjectaccessreviews")
    check(ADMIN, "tokenreviews")
    for user, plural in ((ANONYMOUS_USER, "selfsubjectreviews"), (NOBODY, "tokenreviews")):
        with pytest.raises(StatusError) as found:
            check(user, plural)
        assert found.value.code == 403


def test_a_review_can_only_be_created() -> None:
    with pytest.raises(StatusError) as found:
        REVIEWS.check_verb(RequestVerb.LIST, of("selfsubjectaccessreviews"))
    assert found.value.code == 405
