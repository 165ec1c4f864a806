"""What an enqueuer sends along with a job for other programs: which values, and how they become JSON.

It passes through: it is stored with the job, kept in the history and with dead jobs, given to the task as ``ctx.meta``,
and shown as ``Job.meta``. pgqueue does not read it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption, PayloadNotEncodable
from pgqueue.values.storable import may_be_non_finite, refuse_non_finite, refuse_unstorable

LARGEST = 8_192
"""Bytes of JSON. The same bound stands in sql/schema/0004_meta.up.sql, for what is enqueued by SQL."""


def encode_meta(meta: Mapping[str, Any]) -> bytes:
    """The values as one JSON object.

    Raises:
        InvalidOption: they are no mapping with strings as keys, have no JSON form that PostgreSQL stores, or take more
            than :data:`LARGEST` bytes.
    """
    if not isinstance(meta, Mapping) or not all(isinstance(name, str) for name in meta):
        raise InvalidOption(f"meta={meta!r:.60}: use a dict with strings as keys")
    try:
        data = msgspec.json.encode(dict(meta))
        refuse_unstorable(data)
        msgspec.json.decode(data)
        if may_be_non_finite(data):
            refuse_non_finite(msgspec.to_builtins(dict(meta)))
    except (PayloadNotEncodable, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidOption(f"meta={meta!r:.60}: {error}") from error
    if len(data) > LARGEST:
        raise InvalidOption(
            f"meta={meta!r:.60}: it takes {len(data):,} bytes as JSON, more than {LARGEST:,}; "
            "store what is larger elsewhere and send a reference along"
        )
    return data
