"""Encryption of what is stored of jobs: a codec with AES-256-GCM, and the keys that it uses.

It needs the extra ``pgqueue-jobs[encryption]``. The files: ``keys`` says what a key is and reads keys from text; ``xaes`` encrypts
bytes with one key; ``codec`` decides which key is used for which part of a job, and what a stored text looks like.
"""

from pgqueue.values.hints import extra_for

with extra_for("encryption", "pgqueue.encryption", "cryptography"):
    from pgqueue.encryption.codec import AesGcm
    from pgqueue.encryption.keys import KeyRing, Keys

__all__ = ["AesGcm", "KeyRing", "Keys"]
