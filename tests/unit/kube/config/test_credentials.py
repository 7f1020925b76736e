import os
from datetime import timedelta
from pathlib import Path

import pytest

from gangline.kube.config.credentials import TokenFile
from gangline.kube.errors import ConfigError
from gangline.testing.clock import FakeClock


class Rotating:
    """A token file whose modification time the test sets."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        self.path = folder / "token"
        self.put("one", at=1)
        self.credentials = TokenFile(self.path, "tokenFile", clock)

    def put(self, token: str, *, at: int) -> None:
        self.path.write_text(token)
        os.utime(self.path, (at, at))

    async def sent(self) -> str:
        return (await self.credentials.headers())["Authorization"].removeprefix("Bearer ")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def file(tmp_path: Path, clock: FakeClock) -> Rotating:
    return Rotating(tmp_path, clock)


async def test_changed_token_file_is_read_at_once(file: Rotating) -> None:
    assert await file.sent() == "one"
    file.put("two", at=2)
    assert await file.sent() == "two"


async def test_token_file_is_read_again_after_a_minute_even_if_it_looks_the_same(
    file: Rotating, clock: FakeClock
) -> None:
    await file.sent()
    file.put("two", at=1)
    await clock.advance(timedelta(seconds=59))
    assert await file.sent() == "one"
    await clock.advance(timedelta(seconds=1))
    assert await file.sent() == "two"


async def test_rejected_token_is_read_again(file: Rotating) -> None:
    sent = await file.credentials.headers()
    file.put("two", at=1)
    assert file.credentials.invalidate(sent)
    assert await file.sent() == "two"


async def test_late_rejection_of_an_old_token_keeps_the_new_one(file: Rotating) -> None:
    old = await file.credentials.headers()
    file.put("two", at=2)
    await file.sent()
    file.put("six", at=2)
    assert file.credentials.invalidate(old)
    assert await file.sent() == "two"


async def test_last_token_is_kept_while_the_file_is_away_until_it_is_rejected(
    file: Rotating, caplog: pytest.LogCaptureFixture
) -> None:
    await file.sent()
    file.path.unlink()
    assert await file.sent() == "one"
    assert [record.message for record in caplog.records] == ["token file unusable, keeping the last token"]
    file.credentials.invalidate()
    with pytest.raises(ConfigError, match="no such file"):
        await file.sent()


async def test_token_file_comes_back(file: Rotating) -> None:
    await file.sent()
    file.path.unlink()
    await file.sent()
    file.put("two", at=3)
    assert await file.sent() == "two"
