"""Keys: named, the newest first; how they are read from text, and how one of them encrypts.

No message of this file, and no ``repr``, shows a key.

The text is items of the form ``NAME=KEY``, separated by white space or commas; lines that begin with ``#`` are comments. KEY
is 32 bytes in base64. Of the names, ``lookup`` is the key for unique and limit keys; ``TENANT/NAME`` is a key of one tenant
(characters of the tenant's name that would end it are written as in a URL: ``%20``); any other is a key of all other jobs. The
first key of a ring encrypts, and all of them decrypt.
"""

import binascii
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import local
from typing import Final, TypeAlias
from urllib.parse import unquote

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pgqueue.errors import ConfigurationError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16
_HALF = 12
_REDUCTION = 0b10000111
"""The constant of CMAC for blocks of 128 bits."""
NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
LOOKUP: Final = "lookup"
VARIABLE: Final = "PGQUEUE_KEYS"
FILE_VARIABLE: Final = "PGQUEUE_KEYS_FILE"
MAKE: Final = "`pgqueue keys new` prints one"


class SecretBytes:
    """The bytes of a key, which no ``repr`` shows: programs that report errors send the variables of frames."""

    __slots__ = ("value",)

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "<a key>"

    def __reduce__(self) -> str:
        raise TypeError("keys are not pickled: give the other program its own")


class KeyRing:
    """Named keys, the newest first: that one encrypts, and all of them decrypt."""

    def __init__(self, keys: Mapping[str, bytes | str]) -> None:
        """Check the keys.

        Args:
            keys: 32 bytes or their base64, by name; the newest first. Names are stored in clear with what is encrypted.

        Raises:
            ConfigurationError: there is no key, or a name or a key is wrong.
        """
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError(f"a key ring needs a key: give {{name: 32 bytes}}; {MAKE}")
        self.sealers = {checked_name(name): Sealer(_decode_key(key, name)) for name, key in keys.items()}
        self.newest: str = next(iter(self.sealers))

    def __iter__(self) -> Iterator[str]:
        """The names, the newest first."""
        return iter(self.sealers)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self)})"


Tenants: TypeAlias = Mapping[str, KeyRing] | Callable[[str], KeyRing | None]


class Keys:
    """All keys of a program."""

    def __init__(self, ring: KeyRing, *, lookup: bytes | str, tenants: Tenants | None = None) -> None:
        """Describe the keys.

        Args:
            ring: for jobs that belong to no tenant.
            lookup: the key for unique keys and the keys of limits, 32 bytes or their base64. It does not rotate.
            tenants: a ring for each tenant, by name; or a function that returns the ring of a tenant, None: it has none (any
                more). It is asked for each part of a job, must not wait, and may be called by several threads.

        Raises:
            ConfigurationError: a key is wrong.
        """
        if not isinstance(ring, KeyRing):
            raise ConfigurationError(
                f"Keys(...): the first argument is of type {type(ring).__name__}, not a KeyRing"
            )
        self.ring = ring
        self.lookup = SecretBytes(_decode_key(lookup, LOOKUP))
        self.tenants = tenants

    def __repr__(self) -> str:
        return f"Keys({self.ring!r})"

    def of(self, tenant: str) -> KeyRing | None:
        """The keys of a tenant; None: it has none."""
        if self.tenants is None:
            return None
        return self.tenants(tenant) if callable(self.tenants) else self.tenants.get(tenant)

    def listed(self) -> Mapping[str, KeyRing]:
        """The rings of tenants, by name; empty where a function knows them."""
        return self.tenants if isinstance(self.tenants, Mapping) else {}

    @classmethod
    def parse(cls, text: str, *, source: str = "keys") -> "Keys":
        """Read keys from text; the module's words describe it.

        Args:
            text: the items.
            source: where it is from, for the messages of errors.

        Raises:
            ConfigurationError: an item is wrong, there is no key, or there is no key named ``lookup``.
        """
        rings: dict[str | None, dict[str, bytes | str]] = {None: {}}
        for place, item in enumerate(_items(text), start=1):
            name, equals, key = item.partition("=")
            if not equals or not key:
                raise ConfigurationError(f"{source}: item {place} is no NAME=KEY; {MAKE}")
            tenant, slash, own = name.rpartition("/")
            ring = rings.setdefault(unquote(tenant) if slash else None, {})
            if own in ring:
                raise ConfigurationError(f"{source}: item {place}: there are two keys {name!r:.80}")
            ring[own] = key
        return cls._of_rings(rings, source)

    @classmethod
    def _of_rings(cls, rings: dict[str | None, dict[str, bytes | str]], source: str) -> "Keys":
        shared = rings.pop(None)
        lookup = shared.pop(LOOKUP, None)
        if lookup is None:
            raise ConfigurationError(
                f"{source}: there is no key {LOOKUP!r}: add one with `pgqueue keys new --lookup`"
            )
        try:
            tenants = {str(tenant): KeyRing(ring) for tenant, ring in rings.items()}
            return cls(KeyRing(shared), lookup=lookup, tenants=tenants or None)
        except ConfigurationError as error:
            raise ConfigurationError(f"{source}: {error}") from None

    @classmethod
    def from_environment(cls) -> "Keys":
        """The keys in the variable ``PGQUEUE_KEYS``, or in the file that ``PGQUEUE_KEYS_FILE`` names.

        Raises:
            ConfigurationError: neither is set, or the keys are wrong.
        """
        if os.environ.get(VARIABLE):
            return cls._of_variable(VARIABLE)
        if path := os.environ.get(FILE_VARIABLE):
            return cls.from_file(path)
        raise ConfigurationError(f"no keys: set {VARIABLE}, or {FILE_VARIABLE} to a file of keys; {MAKE}")

    @classmethod
    def _of_variable(cls, name: str) -> "Keys":
        try:
            return cls.parse(os.environ[name], source=name)
        except ConfigurationError as error:
            words = str(error)
        raise ConfigurationError(words)  # not from a frame that holds the text

    @classmethod
    def from_file(cls, path: str | Path) -> "Keys":
        """The keys in a file.

        Raises:
            ConfigurationError: it cannot be read, or the keys are wrong.
        """
        source = f"the file of keys {str(path)!r}"
        try:
            return cls.parse(Path(path).read_text(encoding="utf-8"), source=source)
        except ConfigurationError as error:
            words = str(error)
        except OSError as error:
            words = f"{source}: {error.strerror}"
        except UnicodeDecodeError:
            words = f"{source}: it is no UTF-8 text"
        raise ConfigurationError(words)  # not from a frame that holds the text


def checked_name(name: object) -> str:
    """The name of a key.

    Raises:
        ConfigurationError: it can be none.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigurationError(
            f"the name of a key has up to 40 letters, digits and characters of '_.-', not {name!r:.80}"
        )
    if name == LOOKUP:
        raise ConfigurationError(f"the name {LOOKUP!r} is for the key of unique and limit keys")
    return name


def new_key() -> str:
    """A random key, in base64."""
    return b64encode(os.urandom(KEY_BYTES)).decode()


def _items(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if not line.lstrip().startswith("#"):
            yield from re.split(r"[\s,]+", line.strip(" \t,")) if line.strip(" \t,") else ()


def _decode_key(given: object, name: object) -> bytes:
    try:
        found = b64decode(given, validate=True) if isinstance(given, str) else given
    except (binascii.Error, ValueError):
        # No message quotes the key.
        raise ConfigurationError(f"the key {name!r:.80} is no base64; {MAKE}") from None
    if not isinstance(found, bytes):
        raise ConfigurationError(
            f"the key {name!r:.80} is of type {type(found).__name__}; use bytes, or base64"
        )
    if len(found) != KEY_BYTES:
        raise ConfigurationError(f"the key {name!r:.80} has {len(found)} bytes, not {KEY_BYTES}; {MAKE}")
    return found


class Sealer:
    """XAES-256-GCM of one key: AES-256-GCM, with a key for each message that is derived from a nonce of 24 bytes.

    With one AES-GCM key and random nonces of 12 bytes at most 2**32 messages may be encrypted (NIST SP 800-38D, section 8.3). A
    queue that runs 1,000 jobs/s encrypts that number in 25 days. XAES-256-GCM (https://c2sp.org/XAES-256-GCM) derives the key of
    a message from the first half of its nonce, with CMAC as in NIST SP 800-108; so 2**80 messages are safe, and no program has to
    count. The derivation is two blocks of AES, and the only own arithmetic here. One object serves all threads.
    """

    def __init__(self, secret: bytes) -> None:
        """``secret`` has 32 bytes."""
        self._blocks = _AesBlocks(secret)
        doubled = int.from_bytes(self._blocks.encryptor.update(bytes(16))) << 1
        self._subkey = (doubled ^ _REDUCTION if doubled >> 128 else doubled) & ((1 << 128) - 1)

    def seal(self, data: bytes, bound: bytes) -> bytes:
        """Encrypt under a random nonce.

        Args:
            data: what is to be secret.
            bound: what is not stored, and must be given again to decrypt.

        Returns:
            The nonce, the encrypted data and the tag: 40 bytes more than the data.
        """
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._of(nonce).encrypt(nonce[_HALF:], data, bound)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Decrypt what :meth:`seal` returned.

        Raises:
            cryptography.exceptions.InvalidTag: another key encrypted it, it was changed, or ``bound`` differs.
        """
        nonce = sealed[:NONCE_BYTES]
        return self._of(nonce).decrypt(nonce[_HALF:], sealed[NONCE_BYTES:], bound)

    def _of(self, nonce: bytes) -> AESGCM:
        blocks = (self._block(place, nonce[:_HALF]) for place in (1, 2))
        return AESGCM(self._blocks.encryptor.update(b"".join(blocks)))

    def _block(self, place: int, half: bytes) -> bytes:
        """The input of AES for one half of a message's key."""
        return (int.from_bytes(bytes((0, place, ord("X"), 0)) + half) ^ self._subkey).to_bytes(16)


class _AesBlocks(local):
    """AES of single blocks; each thread keeps an encryptor of its own, which has no state between blocks.

    Making OpenSSL's cipher costs 20 microseconds, and a block 1.
    """

    encryptor: CipherContext

    def __init__(self, secret: bytes) -> None:
        mode = modes.ECB()  # noqa: S305 - of single blocks, as the derivation of keys asks
        self.encryptor = Cipher(algorithms.AES(secret), mode).encryptor()
