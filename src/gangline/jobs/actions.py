"""What a plan may ask for: a closed union of frozen values, so that a plan prints as JSON."""

from typing import TypeAlias

import msgspec

from gangline.api.meta import JSON


class CreateService(msgspec.Struct, frozen=True, tag=True):
    body: JSON


class CreatePod(msgspec.Struct, frozen=True, tag=True):
    body: JSON


class DeletePod(msgspec.Struct, frozen=True, tag=True):
    name: str
    # Only this very pod: a replacement of the same name must not die for its predecessor.
    uid: str


Action: TypeAlias = CreateService | CreatePod | DeletePod
