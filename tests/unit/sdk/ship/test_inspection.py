"""Folders that try to smuggle a credential into a cluster."""

import os
from pathlib import Path

import pytest

from gangline.sdk.ship.archive import list_files
from gangline.sdk.ship.inspection import MAX_NAMED, inspect_files, refusal_message, suspicion_lines

KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "train.py").write_text("print('hello')\n")
    return made


def refused(folder: Path) -> dict[str, str]:
    return {path: what for path, what, _ in inspect_files(list_files(folder)).refused}


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_an_ordinary_folder_is_shipped(folder: Path) -> None:
    write(folder / "data" / "weights.bin").write_bytes(bytes(range(256)) * 100)
    assert inspect_files(list_files(folder)) == ((), ())


def test_credentials_in_nested_folders_and_in_upper_case(folder: Path) -> None:
    for name in ("a/b/c/.env", "A/.SSH/ID_RSA", "deep/.aws/credentials"):
        write(folder / name)
    assert set(refused(folder)) == {"a/b/c/.env", "A/.SSH/ID_RSA", "deep/.aws/credentials"}


def test_a_key_under_a_harmless_name(folder: Path) -> None:
    write(folder / "notes.txt", KEY)
    assert refused(folder) == {"notes.txt": "a private key"}


def test_links_out_of_the_folder_also_through_other_links(folder: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "outside" / "plain", "0600")
    secret.chmod(0o600)
    (folder / "direct").symlink_to(secret)
    (folder / "hop").symlink_to("direct")
    (folder / "relative").symlink_to("../outside/plain")
    (folder / "sub").mkdir()
    (folder / "sub" / "again").symlink_to("../hop")
    assert refused(folder) == dict.fromkeys(("direct", "hop", "relative", "sub/again"), "a link out of the folder")


def test_a_folder_whose_name_begins_like_ours_is_outside(folder: Path, tmp_path: Path) -> None:
    (folder / "link").symlink_to(write(tmp_path / "work-of-others" / "file"))
    assert refused(folder) == {"link": "a link out of the folder"}


def test_a_folder_that_is_a_link_itself_is_no_reason(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(folder)
    (folder / "model.txt").symlink_to("train.py")
    assert refused(tmp_path / "alias") == {}


def test_a_link_to_a_credential_that_git_ignores(folder: Path) -> None:
    write(folder / ".gitignore", ".env\n")
    write(folder / ".env")
    (folder / "settings").symlink_to(".env")
    assert set(refused(folder)) == {"settings"}


def test_links_to_folders_loops_and_pipes_are_never_opened(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / ".env")
    (folder / "folder").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    (folder / "to-pipe").symlink_to("pipe")
    (folder / "dangling").symlink_to("nowhere")
    files = list_files(folder)
    assert [item.path for item in files.files] == ["train.py"]
    assert inspect_files(files) == ((), ())


def test_a_huge_file_is_looked_at_from_its_beginning_only(folder: Path) -> None:
    with (folder / "huge.txt").open("wb") as huge:
        huge.write(b"text\n")
        huge.seek(8 * 2**30)
        huge.write(KEY.encode())
    assert inspect_files(list_files(folder, limit=2**40)) == ((), ())


def test_names_with_new_lines_stay_in_one_line(folder: Path) -> None:
    write(folder / "a\nerror: all is well\x1b[2J" / ".env")
    message = refusal_message(folder, inspect_files(list_files(folder)).refused, "--ship-secrets")
    assert message.isprintable()
    assert r"a\nerror: all is well\x1b[2J/.env" in message


def test_what_is_ignored_is_not_looked_at(folder: Path) -> None:
    write(folder / ".gitignore", "*.env\n")
    write(folder / "prod.env")
    write(folder / "notes" / "key.pem", KEY)
    write(folder / ".ganglineignore", "notes/\n")
    assert refused(folder) == {}


def test_rules_of_our_own_win_over_those_of_git(folder: Path) -> None:
    write(folder / ".gitignore", "*.npy\n")
    write(folder / ".ganglineignore", "!small.npy\nbig.txt\n")
    for name in ("small.npy", "other.npy", "big.txt"):
        write(folder / name)
    shipped = [item.path for item in list_files(folder).files]
    assert shipped == [".ganglineignore", ".gitignore", "small.npy", "train.py"]


def test_messages_name_a_few_and_count_the_rest(folder: Path) -> None:
    for number in range(MAX_NAMED + 3):
        write(folder / f"{number:02}.env")
    message = refusal_message(folder, inspect_files(list_files(folder)).refused, "--ship-secrets")
    assert message.count(".env (") == MAX_NAMED
    assert "and 3 more; leave them out with .gitignore or .ganglineignore" in message
    assert message.endswith("or ship them with --ship-secrets")


def test_lines_with_a_token_are_reported_without_it(folder: Path) -> None:
    token = "h" + "f_" + "aBc" * 11 + "a"
    write(folder / "train.py", f"a = 1\nlogin('{token}')\n")
    (line,) = suspicion_lines(inspect_files(list_files(folder)).suspicious)
    assert line.startswith("train.py:2: looks like a token of Hugging Face")
    assert token not in line
