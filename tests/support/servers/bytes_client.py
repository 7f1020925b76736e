"""A client that sends bytes as they are, to say what no library would say."""

import asyncio
import re
import ssl
from urllib.parse import urlsplit

LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


async def raw_response(url: str, tls: ssl.SSLContext | None, data: bytes) -> bytes:
    """The first response to these bytes; empty if the server closes the connection."""
    target = urlsplit(url)
    reader, writer = await asyncio.open_connection(target.hostname, target.port, ssl=tls)
    received = b""
    try:
        writer.write(data)
        async with asyncio.timeout(30):
            while not _is_complete(received):
                piece = await reader.read(2**16)
                if not piece:
                    break
                received += piece
    except (ConnectionError, ssl.SSLError):
        pass
    finally:
        writer.transport.abort()
    return received


def status_code(response: bytes) -> int:
    """The status code of a response; 0 if there is none."""
    parts = response.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 0


def _is_complete(received: bytes) -> bool:
    head, separator, body = received.partition(b"\r\n\r\n")
    if not separator:
        return False
    length = LENGTH.search(head)
    return len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n") or b"304" in head[:15]
