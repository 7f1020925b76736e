"""Memory of connections: little while they are open, none when they are closed."""

import asyncio.sslproto
import ctypes
import gc
import sys
from contextlib import suppress

TLS_BUFFER_BYTES = 2**15
"""What a connection reads at once. asyncio's own 256 KB are nearly all the memory of an idle connection."""


def shrink_tls_buffers() -> None:
    """Give TLS connections that open from now on small buffers. Concerns the whole process."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def release_free_memory() -> None:
    """Return the memory of closed connections to the system.

    Handshakes that failed are cycles of references, and the C library (glibc) keeps freed memory for itself.
    """
    gc.collect()
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
