"""The codec: which key encrypts which part of a job, what a stored text looks like, and what it is bound to.

A stored text is ``x1:RING:NAME:DATA``. RING is ``s`` for the keys that jobs share, ``t`` for those of a tenant, which ``meta``
names. NAME is the key's. DATA is base64 of what :mod:`pgqueue.encryption.keys` made: the nonce, the encrypted JSON, the tag.
It is bound to the JSON array ``["x1", RING, NAME, KIND, TASK, TENANT]``: moved to another part, task or tenant, it does not
decrypt. It is not bound to one job, which has no id yet when it is encrypted: who may write to the tables can copy the
arguments of one job to another of the same task and tenant.

Unique keys and the keys of limits become ``h1:`` and HMAC-SHA-256 in base64, so that equal keys stay equal.
"""

import hashlib
import hmac
from base64 import b64encode
from binascii import a2b_base64
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag

from pgqueue.encryption.keys import NONCE_BYTES, TAG_BYTES, KeyRing, Keys
from pgqueue.errors import ConfigurationError, PayloadNotDecodable, PayloadNotEncodable
from pgqueue.values.payloads.codec import Codec, JobPart

VERSION: Final = "x1"
SHARED: Final = "s"
OF_TENANT: Final = "t"


class AesGcm(Codec):
    """Encrypts arguments, results, notes, errors and payloads of signals with AES-256-GCM; unique and limit keys become HMACs."""

    def __init__(self, keys: Keys | None = None, *, tenant: str | None = None) -> None:
        """Choose the keys.

        Args:
            keys: the keys; None: those of ``PGQUEUE_KEYS`` or ``PGQUEUE_KEYS_FILE``.
            tenant: the key of ``meta`` that names a job's tenant, whose own keys are then used; a tenant without keys cannot
                enqueue. Jobs without this key of ``meta`` use the shared keys. None: all jobs use the shared keys.

        Raises:
            ConfigurationError: there are no keys, they are wrong, or there are keys of tenants and ``tenant`` is not given.
        """
        self._keys = Keys.from_environment() if keys is None else keys
        if not isinstance(self._keys, Keys):
            raise ConfigurationError(f"AesGcm(keys): it is of type {type(keys).__name__}, not a Keys")
        if self._keys.tenants is not None and tenant is None:
            raise ConfigurationError(
                "there are keys of tenants: say which key of meta names a job's tenant, AesGcm(tenant=...)"
            )
        self._tenant = tenant

    hides_errors = True

    def __repr__(self) -> str:
        """Show the names of the shared keys, and no key."""
        return f"AesGcm({vars(self).get('_keys')!r})"  # also while it is made

    def encode(self, data: bytes, part: JobPart) -> str:
        """The JSON, encrypted with the newest key.

        Raises:
            PayloadNotEncodable: the tenant has no keys.
        """
        tenant = self._tenant_of(part)
        ring = self._keys.ring if tenant is None else self._ring_of(tenant)
        if ring is None:
            raise PayloadNotEncodable(f"the tenant {tenant!r:.80} has no keys here")
        marker, name = SHARED if tenant is None else OF_TENANT, ring.newest
        sealed = ring.sealers[name].seal(data, _associated_data(marker, name, part, tenant))
        return f"{VERSION}:{marker}:{name}:{b64encode(sealed).decode()}"

    def decode(self, text: str, part: JobPart) -> bytes:
        """The JSON that was encrypted.

        Raises:
            PayloadNotDecodable: the key is not here, or the text was changed or belongs to another part, task or tenant.
        """
        marker, name, sealed = _parse_text(text)
        tenant = self._tenant_of(part) if marker == OF_TENANT else None
        ring = self._keys.ring if marker == SHARED else self._ring_of(tenant)
        if ring is None:
            raise PayloadNotDecodable(f"the tenant {tenant!r:.80} has no keys here, or they were dropped")
        sealer = ring.sealers.get(name)
        if sealer is None:
            raise PayloadNotDecodable(f"it needs the key {name!r:.80}; here are {', '.join(ring)}")
        try:
            return sealer.open(sealed, _associated_data(marker, name, part, tenant))
        except InvalidTag:
            raise PayloadNotDecodable(
                f"it does not decrypt with the key {name!r:.80}: another key has this name, it was changed, or it belongs to "
                "another task, part or tenant"
            ) from None

    def key(self, key: str) -> str:
        """The HMAC of a unique key, or of the values in the key of a limit."""
        digest = hmac.digest(self._keys.lookup.value, key.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"h1:{b64encode(digest).decode()}"

    def _tenant_of(self, part: JobPart) -> str | None:
        value = None if self._tenant is None else part.meta.get(self._tenant)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise PayloadNotEncodable(
            f"meta[{self._tenant!r}]={value!r:.80} names no tenant: use a text or a whole number"
        )

    def _ring_of(self, tenant: str | None) -> KeyRing | None:
        return None if tenant is None else self._keys.of(tenant)


def _parse_text(text: str) -> tuple[str, str, bytes]:
    """Return marker, name and sealed data of a stored text, which anyone may have written."""
    version, *rest = text.split(":", 3)
    if version == VERSION and len(rest) == len(("marker", "name", "data")) and rest[0] in {SHARED, OF_TENANT}:
        try:
            sealed = a2b_base64(rest[2], strict_mode=True)
        except ValueError:
            sealed = b""
        if len(sealed) >= NONCE_BYTES + TAG_BYTES:
            return rest[0], rest[1], sealed
    raise PayloadNotDecodable("AesGcm did not encrypt it, or it is cut off")


def _associated_data(marker: str, name: str, part: JobPart, tenant: str | None) -> bytes:
    """Return the associated data: what a text is bound to."""
    return msgspec.json.encode([VERSION, marker, name, part.kind, part.task, tenant])
