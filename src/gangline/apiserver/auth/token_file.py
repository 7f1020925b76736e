"""The file of `--token-auth-file`: users by token, in kube-apiserver's CSV format.

A line is `token,user,uid` or `token,user,uid,"group1,group2"`.
"""

import csv
from collections.abc import Iterable
from pathlib import Path

from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo
from gangline.base.errors import InputError

_FORM = 'write token,user,uid or token,user,uid,"group1,group2"'


def read_token_file(file: Path) -> dict[str, UserInfo]:
    """The users of a file, by token. Raises `InputError` with the line that is wrong; no message shows a token."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            return _read_users(file, lines)
    except OSError as error:
        raise InputError(f"--token-auth-file {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"--token-auth-file {file}: is not text in UTF-8") from error


def _read_users(file: Path, lines: Iterable[str]) -> dict[str, UserInfo]:
    users: dict[str, UserInfo] = {}
    reader = csv.reader(lines, strict=True)

    def problem(text: str) -> InputError:
        return InputError(f"--token-auth-file {file}, line {reader.line_num}: {text}")

    try:
        for row in reader:
            if not row:
                continue
            columns = [column.strip() for column in row]
            if len(columns) < 3:
                raise problem(f"must have at least 3 columns, and has {len(columns)}; {_FORM}")
            token, name, uid = columns[:3]
            if not token or not name:
                raise problem(f"{'the user' if token else 'the token'} is empty; {_FORM}")
            if token in users:
                raise problem("has the token of an earlier line; give every user another one")
            groups = [group.strip() for group in columns[3].split(",")] if len(columns) > 3 else []
            users[token] = UserInfo(name, (*(group for group in groups if group), AUTHENTICATED_GROUP), uid)
    except csv.Error as error:
        raise problem(f"{error}; {_FORM}") from error
    return users
