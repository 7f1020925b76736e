"""Private files."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gangline.base.files import write_private


def test_a_private_file_replaces_one_that_all_could_read(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_writers_at_once_leave_the_whole_content_of_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    contents = [bytes([number]) * 100_000 for number in range(50)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda content: write_private(file, content), contents))
    assert file.read_bytes() in contents
    assert list(tmp_path.iterdir()) == [file]
