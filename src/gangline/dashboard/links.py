"""Links that begin one session each, and the file by which other commands of the same user make more of them.

A key carries its end, a random part and a signature. Whoever can read the secret can make one: the process of the dashboard,
and commands of the user who started it, because only that user can read the file. Imports little: a run prints a link
before anything of the dashboard is loaded.
"""

import base64
import hashlib
import hmac
import json
import secrets
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from gangline.base.files import write_private

FILE_NAME = "dashboard.json"
LIFETIME = timedelta(minutes=10)


class DashboardAddress(NamedTuple):
    """Where a dashboard listens, and the secret that signs its links."""

    # `http://127.0.0.1:8123`
    url: str
    secret: str

    def new_link(self, now: datetime, lifetime: timedelta | None = LIFETIME) -> str:
        """A link that begins one session; without a lifetime, as long as the dashboard runs."""
        end = int((now + lifetime).timestamp()) if lifetime is not None else 0
        text = f"{end:x}.{secrets.token_urlsafe(12)}"
        return f"{self.url}/?key={text}.{_signature(self.secret, text)}"

    def save(self, folder: Path) -> None:
        """Let other commands of this user find the dashboard."""
        write_private(folder / FILE_NAME, json.dumps(self._asdict()).encode())


def new_secret() -> str:
    """A secret for one dashboard."""
    return secrets.token_urlsafe(32)


def read_address(folder: Path) -> DashboardAddress | None:
    """The dashboard of a plane's or run's folder; None if there is none."""
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        return DashboardAddress(str(content["url"]), str(content["secret"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_address(folder: Path) -> None:
    """The dashboard of a folder has ended."""
    (folder / FILE_NAME).unlink(missing_ok=True)


def is_valid_key(secret: str, key: str, now: datetime) -> bool:
    """Whether a key has a good signature, and its end has not come. Who redeems it remembers that it was used."""
    text, _, signature = key.rpartition(".")
    if not text.isascii() or not hmac.compare_digest(_signature(secret, text).encode(), signature.encode()):
        return False
    end = int(text.partition(".")[0], 16)
    return not end or now.timestamp() <= end


def _signature(secret: str, text: str) -> str:
    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:18]).decode()
