"""The files of the front end, from memory."""

import gzip
import mimetypes
from pathlib import Path

from aiohttp import web

INDEX = "index.html"
ASSETS = "assets/"
"""The folder of files whose names have a hash of their content: a browser may keep them for ever."""
NOT_BUILT = "The front end is not part of this installation. Build it: hack/web.sh\n"


class StaticPages:
    """Reads each file once. Paths that are no file are pages of the front end, which reads its own path."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, tuple[bytes, bytes, str]] | None = None

    def response(self, request: web.Request) -> web.Response:
        """The file of a request."""
        files = self._read()
        path = request.path.removeprefix("/")
        if path not in files and "." not in path.rpartition("/")[2]:
            path = INDEX
        if path not in files:
            if path == INDEX:
                return web.Response(status=503, text=NOT_BUILT)
            return web.Response(status=404, text="no such file\n")
        plain, packed, content_type = files[path]
        use_gzip = len(packed) < len(plain) and "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {
            "Content-Type": content_type,
            "Vary": "Accept-Encoding",
            "Cache-Control": "public, max-age=31536000, immutable" if path.startswith(ASSETS) else "no-cache",
            **({"Content-Encoding": "gzip"} if use_gzip else {}),
        }
        return web.Response(body=packed if use_gzip else plain, headers=headers)

    def _read(self) -> dict[str, tuple[bytes, bytes, str]]:
        if self._files is None:
            self._files = {
                file.relative_to(self._folder).as_posix(): _load(file)
                for file in sorted(self._folder.rglob("*"))
                if file.is_file()
            }
        return self._files


def _load(file: Path) -> tuple[bytes, bytes, str]:
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind in ("application/json", "image/svg+xml", "application/manifest+json"):
        kind += "; charset=utf-8"
    return content, gzip.compress(content, mtime=0), kind
