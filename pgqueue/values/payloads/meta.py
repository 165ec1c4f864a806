"""The meta that an enqueuer sends with a job for other programs: which values it may hold, and their JSON.

pgqueue does not read it: it is stored with the job, kept in the history and with dead jobs, given to the task as
``ctx.meta``, and shown as ``Job.meta``.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption, PayloadNotEncodable
from pgqueue.values.payloads.storable import (
    NULL,
    has_line_ends,
    refuse_non_finite,
    refuse_unstorable,
    storable_json,
)

SCHEDULE, SCHEDULED_FOR = "pgqueue_schedule", "pgqueue_scheduled_for"
"""The keys that a schedule adds to the meta of its jobs: its name, and the tick. sql/schema/0001_15_schedules.up.sql adds them."""
LARGEST = 8_192
"""Bytes of JSON. sql/schema/0001_09_enqueue.up.sql has the same bound, for jobs that are enqueued by SQL."""


def encode_meta(meta: Mapping[str, Any]) -> bytes:
    """The values as one JSON object.

    Raises:
        InvalidOption: the meta is not a mapping with strings as keys, has no JSON form that PostgreSQL stores, or takes
            more than :data:`LARGEST` bytes.
    """
    if not isinstance(meta, Mapping) or not all(isinstance(name, str) for name in meta):
        raise _refusal(meta, "use a dict with strings as keys")
    try:
        data = msgspec.json.encode(dict(meta))
        if has_line_ends(data):
            data = storable_json(data)
        refuse_unstorable(data)
        msgspec.json.decode(data)
        if data.find(NULL) >= 0:
            refuse_non_finite(msgspec.to_builtins(dict(meta)))
    except (PayloadNotEncodable, TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise _refusal(meta, error) from error
    if len(data) > LARGEST:
        raise _refusal(
            meta,
            f"it takes {len(data):,} bytes as JSON, more than {LARGEST:,}; "
            "store what is larger elsewhere and send a reference along",
        )
    return data


def _refusal(meta: object, reason: object) -> InvalidOption:
    try:
        shown = f"{meta!r:.60}"
    except (ValueError, RecursionError):  # numbers of over 4,300 digits, thousands of levels
        shown = f"<{type(meta).__name__}>"
    return InvalidOption(f"meta={shown}: {reason}")
