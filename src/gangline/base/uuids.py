"""Random UUIDs as text."""

import os

_VARIANTS = "89ab"


def random_uuid() -> str:
    """A random UUID (version 4). Several times faster than `str(uuid.uuid4())`: every request to a server needs one."""
    digits = os.urandom(16).hex()
    variant = _VARIANTS[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
