"""Encryption of what is stored of jobs: a codec with AES-256-GCM, and the keys that it uses.

It needs the extra ``pgqueue-jobs[encryption]``. The files: ``keys`` says what a key is and reads keys from text; ``xaes`` encrypts
bytes with one key; ``codec`` decides which key is used for which part of a job, and what a stored text looks like.
"""

from pgqueue.errors import ConfigurationError
from pgqueue.values.hints import missing_extra

try:
    from pgqueue.encryption.codec import AesGcm
    from pgqueue.encryption.keys import KeyRing, Keys
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("cryptography"):
        raise
    raise ConfigurationError(
        missing_extra("encryption", "pgqueue.encryption needs the package cryptography")
    ) from error

__all__ = ["AesGcm", "KeyRing", "Keys"]
