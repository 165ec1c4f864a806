"""What encryption costs beside AES-GCM alone: microseconds for texts of three lengths, the least of many short runs.

Run it: ``python tests/bench/encryption.py``. It needs no database.
"""

import os
from collections.abc import Callable
from functools import partial
from timeit import repeat

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pgqueue import JobPart
from pgqueue.encryption import AesGcm, KeyRing, Keys

TIMES, RUNS = 50, 200
PART = JobPart("args", "shop.jobs.send")


def best(call: Callable[[], object]) -> float:
    """Microseconds of a call."""
    return min(repeat(call, number=TIMES, repeat=RUNS)) / TIMES * 1e6


def main() -> None:
    """Measure, and print."""
    codec, bare, nonce = (
        AesGcm(Keys(KeyRing({"a": bytes(32)}), lookup=bytes(32))),
        AESGCM(bytes(32)),
        os.urandom(12),
    )
    for size in (100, 1_000, 10_000):
        data = b'{"text":"%s"}' % (b"a" * (size - 11))
        text = codec.encode(data, PART)
        took = [
            best(partial(bare.encrypt, nonce, data, None)),
            best(partial(codec.encode, data, PART)),
            best(partial(codec.decode, text, PART)),
        ]
        print("{:6} bytes: AES-GCM {:5.1f}, encode {:5.1f}, decode {:5.1f}".format(size, *took))  # noqa: T201
    print(f"a key: {best(lambda: codec.key('order:42')):.1f}")  # noqa: T201


if __name__ == "__main__":
    main()
