"""Random UUIDs."""

import uuid

from gangline.base.uuids import random_uuid


def test_a_random_uuid_is_of_version_4() -> None:
    texts = {random_uuid() for _ in range(200)}
    assert len(texts) == 200
    for text in texts:
        parsed = uuid.UUID(text)
        assert (str(parsed), parsed.version, parsed.variant) == (text, 4, uuid.RFC_4122)
