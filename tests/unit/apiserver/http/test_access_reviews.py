"""Access reviews, answered as kube-apiserver answers them."""

from typing import Any

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import Authorizer, check_access
from gangline.apiserver.auth.service_account_tokens import API_AUDIENCES
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.access_reviews import ReviewHandler, ReviewRequest
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb, access_attributes, request_info
from gangline.apiserver.users import ANONYMOUS_USER, MASTERS_GROUP, UserInfo

ADMIN = UserInfo("admin", (MASTERS_GROUP, "system:authenticated"))
NOBODY = UserInfo("nobody", ("system:authenticated",))
NOW = "2026-01-01T00:00:00Z"
PODS = {"namespace": "ns", "verb": "create", "resource": "pods"}


def of(plural: str) -> RequestInfo:
    group = "authentication" if plural in ("tokenreviews", "selfsubjectreviews") else "authorization"
    place = "namespaces/ns/" if plural.startswith("local") else ""
    found = request_info(f"/apis/{group}.k8s.io/v1/{place}{plural}")
    assert found is not None
    return found


class Reviewer:
    """Sends reviews to a handler."""

    def __init__(self, authorizer: Authorizer) -> None:
        self.handler = ReviewHandler(Authenticator({"secret": ADMIN}), authorizer)

    def review(self, plural: str, user: UserInfo = ADMIN, **body: Any) -> JSON:
        return self.handler.review(ReviewRequest(user, of(plural), body, "test", NOW))

    def error(self, plural: str, **body: Any) -> StatusError:
        with pytest.raises(StatusError) as found:
            self.review(plural, **body)
        return found.value


@pytest.fixture
def reviewer(authorizer: Authorizer) -> Reviewer:
    return Reviewer(authorizer)


def test_self_subject_review_returns_the_user(reviewer: Reviewer) -> None:
    answer = reviewer.review("selfsubjectreviews", NOBODY)
    assert answer["kind"] == "SelfSubjectReview"
    assert answer["metadata"] == {"creationTimestamp": NOW}
    assert answer["status"] == {"userInfo": {"username": "nobody", "groups": ["system:authenticated"]}}


@pytest.mark.parametrize(("user", "allowed"), [(ADMIN, True), (NOBODY, False)])
def test_self_subject_access_review_returns_what_the_user_may_do(
    user: UserInfo, allowed: bool, reviewer: Reviewer
) -> None:
    answer = reviewer.review("selfsubjectaccessreviews", user, spec={"resourceAttributes": PODS})
    assert answer["status"] == {"allowed": allowed}
    assert answer["spec"] == {"resourceAttributes": PODS}
    (owner,) = answer["metadata"]["managedFields"]
    assert (owner["manager"], owner["operation"]) == ("test", "Update")


def test_public_paths_and_self_reviews_are_allowed_for_all_users(reviewer: Reviewer) -> None:
    version = reviewer.review(
        "selfsubjectaccessreviews",
        NOBODY,
        spec={"nonResourceAttributes": {"path": "/version", "verb": "get"}},
    )
    assert version["status"]["allowed"]
    assert version["status"]["reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
        'to Group "system:authenticated"'
    )
    own = {"group": "authorization.k8s.io", "resource": "selfsubjectaccessreviews", "verb": "create"}
    assert reviewer.review("selfsubjectaccessreviews", NOBODY, spec={"resourceAttributes": own})["status"]["allowed"]


def test_subject_access_review_is_about_its_user_and_groups(reviewer: Reviewer) -> None:
    master = {"user": "x", "groups": [MASTERS_GROUP], "resourceAttributes": PODS}
    assert reviewer.review("subjectaccessreviews", spec=master)["status"] == {"allowed": True}
    other = {"user": "admin", "resourceAttributes": PODS}
    assert reviewer.review("subjectaccessreviews", spec=other)["status"] == {"allowed": False}
    local = reviewer.review("localsubjectaccessreviews", spec={"user": "x", "resourceAttributes": PODS})
    assert (local["metadata"]["namespace"], local["status"]) == ("ns", {"allowed": False})


def test_a_local_review_is_about_its_namespace(reviewer: Reviewer) -> None:
    elsewhere = {**PODS, "namespace": "other"}
    error = reviewer.error("localsubjectaccessreviews", spec={"user": "x", "resourceAttributes": elsewhere})
    assert error.code == 422
    assert error.message == (
        '.authorization.k8s.io "" is invalid: spec.resourceAttributes.namespace: Invalid value: "other": '
        "must match metadata.namespace"
    )


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
def test_invalid_review_is_refused_with_kube_apiservers_message(
    plural: str, spec: JSON, told: str, reviewer: Reviewer
) -> None:
    error = reviewer.error(plural, spec=spec)
    assert error.code == 422
    assert error.message == f'.authorization.k8s.io "" is invalid: {told}'
    assert error.details is not None
    assert error.details["group"] == "authorization.k8s.io"


def test_token_review_returns_the_user_of_a_valid_token(reviewer: Reviewer) -> None:
    status = reviewer.review("tokenreviews", spec={"token": "secret"})["status"]
    assert status["authenticated"] is True
    assert status["user"]["username"] == "admin"
    assert status["audiences"] == list(API_AUDIENCES)
    unknown = {"user": {}, "error": "invalid bearer token"}
    assert reviewer.review("tokenreviews", spec={"token": "nonsense"})["status"] == unknown
    assert reviewer.review("tokenreviews", spec={"token": "secret", "audiences": ["x"]})["status"] == unknown
    assert reviewer.error("tokenreviews", spec={}).message == "token is required for TokenReview in authentication"


def test_rules_are_listed(reviewer: Reviewer) -> None:
    everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert everything in reviewer.review("selfsubjectrulesreviews", spec={"namespace": "ns"})["status"]["resourceRules"]
    rules = reviewer.review("selfsubjectrulesreviews", NOBODY, spec={"namespace": "ns"})["status"]["resourceRules"]
    assert everything not in rules
    assert reviewer.error("selfsubjectrulesreviews", spec={}).message == "no namespace on request"


@pytest.mark.parametrize("body", [{"spec": "text"}, {"spec": {"token": 3}}, {"kind": "Pod"}, {"metadata": 1}])
def test_a_body_of_the_wrong_type_is_refused(body: JSON, reviewer: Reviewer) -> None:
    assert reviewer.error("tokenreviews", **body).code == 400


def test_only_authenticated_users_may_create_self_reviews(authorizer: Authorizer) -> None:
    def check(user: UserInfo, plural: str) -> None:
        check_access(authorizer, access_attributes(user, "POST", of(plural), {}))

    check(NOBODY, "selfsubjectaccessreviews")
    check(ADMIN, "tokenreviews")
    for user, plural in ((ANONYMOUS_USER, "selfsubjectreviews"), (NOBODY, "tokenreviews")):
        with pytest.raises(StatusError) as found:
            check(user, plural)
        assert found.value.code == 403


def test_a_review_can_only_be_created(reviewer: Reviewer) -> None:
    with pytest.raises(StatusError) as found:
        reviewer.handler.check_verb(RequestVerb.LIST, of("selfsubjectaccessreviews"))
    assert found.value.code == 405
