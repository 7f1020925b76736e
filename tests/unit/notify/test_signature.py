"""Keys, and the headers that a receiver verifies."""

import base64

import pytest

from gangline.base.errors import InputError
from gangline.notify.plan.signature import signature_headers, signing_keys

# The example of the specification at standardwebhooks.com.
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
MESSAGE_ID, TIMESTAMP, BODY = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_signature_is_that_of_the_specification() -> None:
    headers = signature_headers(signing_keys(KEY, "f"), MESSAGE_ID, TIMESTAMP, BODY)
    assert headers == {
        "webhook-id": MESSAGE_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": SIGNATURE,
    }


def test_with_two_keys_there_are_two_signatures() -> None:
    other = f"whsec_{base64.b64encode(b'x' * 32).decode()}"
    keys = signing_keys(f"{other}\n\n{KEY}\n", "f")
    signatures = signature_headers(keys, MESSAGE_ID, TIMESTAMP, BODY)["webhook-signature"].split(" ")
    assert len(signatures) == 2
    assert signatures[1] == SIGNATURE


def test_without_a_key_there_is_no_signature() -> None:
    assert "webhook-signature" not in signature_headers((), MESSAGE_ID, TIMESTAMP, BODY)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n", "f: has no key"),
        ("hunter2", "f:1: is not a key, which begins with whsec_"),
        ("whsec_hunter2!", "f:1: is not base64"),
        (f"{KEY}\nwhsec_aHVudGVyMg==", "f:2: has 7 bytes and needs 24"),
    ],
)
def test_a_key_that_cannot_be_used_is_not_repeated_in_the_message(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        signing_keys(text, "f")
    assert message in str(error.value)
    assert not {"hunter2", "aHVudGVyMg"} & set(str(error.value).split())
    assert "hunter2" not in str(error.value)
