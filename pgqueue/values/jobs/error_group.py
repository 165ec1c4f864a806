"""Which dead jobs died of the same error: those of one task whose last errors differ in digits only. A key names each such group.

The same rule is in SQL, as ``error group`` in :mod:`pgqueue.store.column_lists`.
"""

import hashlib
from typing import Final

from pgqueue.values.jobs.job import Job

LONGEST_LINE: Final = 500
"""Characters of the first line of a message that tell errors apart."""
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_BETWEEN: Final = "\x1f"


def error_group_key(task: str, kind: str | None, reason: str | None, line: str | None) -> str:
    """The key of a group: 32 hexadecimal digits, from which the message cannot be read.

    Args:
        task: the jobs' task.
        kind: the type of the last error; None: there is none.
        reason: why they are dead.
        line: the first line of the error's message; None: a codec has encoded it.
    """
    said = (line or "")[:LONGEST_LINE].translate(_NO_DIGITS)
    text = _BETWEEN.join((task, kind or "", reason or "", said))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


def error_group_of(job: Job) -> str:
    """The key of the group that a job is in."""
    last = job.errors[-1] if job.errors else None
    line = None if last is None or last.encoded is not None else last.message.partition("\n")[0]
    return error_group_key(job.task, None if last is None else last.type, job.reason, line)
