"""The contract of a task: the JSON schemas of its arguments and of its result, as its code says them.

Workers store it. Readers of jobs make columns by it, and a new release is compared with it.
"""

from datetime import datetime
from hashlib import sha256
from typing import Any, Final

import msgspec

LONGEST: Final = 64 << 10
"""Bytes of both schemas. The contract of a task with longer ones is not stored."""
_HASHED: Final = 32
"""Digits of the hash: 128 bits."""


class TaskContract(msgspec.Struct, frozen=True):
    """The types of a task's arguments and of its result.

    Attributes:
        task: the task's name.
        hash: of both schemas; the same types have the same hash.
        arguments: the JSON schema of the object that has the arguments by name, as text.
        result: that of the result; None: the task does not say what it returns.
        version: the last deploy when a worker first said this; None: no deploy was recorded, or it is not stored yet.
        first_seen: when a worker first said this; None: it is not stored yet.
        last_seen: when a worker last said this, to the hour; the contract of a task is the one with the latest time.
    """

    task: str
    hash: str
    arguments: str
    result: str | None = None
    version: str | None = None
    first_seen: datetime | None = None
    last_seen: datetime | None = None


def contract_of(task: str, arguments: Any, result: Any) -> TaskContract | None:  # noqa: ANN401 - JSON schemas, or None
    """The contract that two schemas make; None: they are too long, or a default in them has no place in the database.

    Args:
        task: the task's name.
        arguments: the schema of the arguments; None: there is none, so any fit.
        result: that of the result; None: not said.
    """
    said = {} if arguments is None else arguments
    try:
        written = [msgspec.json.encode(one) for one in (said, result)]
        sorted_ = msgspec.json.encode([said, result], order="sorted")
    except (TypeError, ValueError, RecursionError):  # a default that is not text in UTF-8, for example
        return None
    if sum(map(len, written)) > LONGEST or any(rb"\u0000" in one for one in written):
        return None
    digest = sha256(sorted_).hexdigest()[:_HASHED]
    return TaskContract(task, digest, written[0].decode(), None if result is None else written[1].decode())
