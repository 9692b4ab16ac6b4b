"""Record ids (GUIDs): 16 bytes in the header `guid`, shown as uuid.UUID. Topics with message.guid.dedup=true store an id once."""
import uuid
from typing import Any, Union

from ._native import ffi, lib
from .errors import BadGuid, check

Guid = Union[uuid.UUID, bytes, str]
"""Whatever names an id: a UUID, its 16 bytes, or its text."""


def new_guid() -> uuid.UUID:
    """A new UUIDv7: store it with what it stands for, so that sending that again sends the same id."""
    out = ffi.new("uint8_t[16]")
    check(lib.kc_guid_make(out), "new_guid")
    return uuid.UUID(bytes=bytes(ffi.buffer(out)))


def guid_bytes(guid: Any) -> bytes:
    """The 16 bytes of an id. BadGuid: it is none."""
    if isinstance(guid, uuid.UUID):
        return guid.bytes
    if isinstance(guid, str):
        out, encoded = ffi.new("uint8_t[16]"), guid.encode()
        if lib.kc_guid_from_text(encoded, len(encoded), out) != 0:
            raise BadGuid(f"{guid!r} is no UUID: 8-4-4-4-12 or 32 hexadecimal digits")
        return bytes(ffi.buffer(out))
    raw = bytes(guid)
    if len(raw) != 16:
        raise BadGuid(f"an id has 16 bytes, not {len(raw)}")
    return raw


def _uuid(raw: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=raw)
