"""A codec to test with: a toy cipher, which only has to make texts unreadable."""

import base64
import hashlib
import hmac
from itertools import cycle

from pgqueue import Codec, JobPart


class Secret(Codec):
    """A toy cipher with named keys: the text says which key, and for which part of a job of which task it is."""

    def __init__(self, *keys: str) -> None:
        self.keys = keys  # the first one encodes

    def encode(self, data: bytes, part: JobPart) -> str | bytes:
        bound = f"{part.kind} {part.task}|".encode() + data
        return f"{self.keys[0]}:{base64.b85encode(_xor(bound, self.keys[0])).decode()}"

    def decode(self, text: str, part: JobPart) -> bytes:
        key, _, rest = text.partition(":")
        if key not in self.keys:
            raise KeyError(key)
        bound, _, data = _xor(base64.b85decode(rest), key).partition(b"|")
        if bound != f"{part.kind} {part.task}".encode():
            raise ValueError("it was encoded for another part")
        return data

    def key(self, key: str) -> str:
        return hmac.digest(b"unique", key.encode(), hashlib.sha256).hex()


def _xor(data: bytes, key: str) -> bytes:
    return bytes(
        one ^ two for one, two in zip(data, cycle(hashlib.sha256(key.encode()).digest()), strict=False)
    )
