"""The token file of kube-apiserver: users by token, and one clear line for what is wrong."""

from pathlib import Path

import pytest

from gangline.apiserver.auth.token_file import read_token_file
from gangline.apiserver.users import UserInfo
from gangline.base.errors import InputError


def test_users_have_their_groups_and_are_authenticated(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t1,ann,1\nt2,ben,2,"dev,ops"\n\nt3,cid,,one\n')
    assert read_token_file(file) == {
        "t1": UserInfo("ann", ("system:authenticated",), "1"),
        "t2": UserInfo("ben", ("dev", "ops", "system:authenticated"), "2"),
        "t3": UserInfo("cid", ("one", "system:authenticated"), ""),
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good,ann,1\nsecret,ben\n", "line 2: must have at least 3 columns, and has 2; write token,user,uid"),
        (",ann,1\n", "line 1: the token is empty"),
        ("secret,,1\n", "line 1: the user is empty"),
        ("secret,ann,1\nsecret,ben,2\n", "line 2: has the token of an earlier line"),
        ('secret,"ann"x,1\n', "line 1: "),
    ],
)
def test_bad_line_is_named_without_its_token(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_token_file(file)
    assert f"--token-auth-file {file}, {message}" in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="none: No such file or directory"):
        read_token_file(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text in UTF-8"):
        read_token_file(tmp_path / "binary")
