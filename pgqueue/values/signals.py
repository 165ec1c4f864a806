"""What signals are sent to, what they are called, and the reasons of jobs that wait: names, their bounds, and the sentence.

A *target* is a text: ``job:ID``, ``flow:ID`` or ``key:TEXT``. A job that waits is blocked for one *reason*, also a text:
``signal:TARGET:NAME``, or ``timer:NAME``. A name has no colon, so a reason can be taken apart again.
"""

from base64 import b64decode
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.options import check_name, check_text

LONGEST_NAMED = 200
"""Characters of a reason, or of a key, in a sentence."""
LONGEST_KEY = 296
"""Characters of a key; with its prefix it is a target."""


class SignalWait(NamedTuple):
    """What an attempt waits for.

    Attributes:
        job_id: whose attempt.
        name: which signal, or which timer.
        target: what the signal is sent to; None: it is a timer.
        timeout: how long from the first wait; None: as long as it takes.
    """

    job_id: int
    name: str
    target: str | None
    timeout: timedelta | None

    @property
    def reason(self) -> str:
        """The text in ``waits``."""
        return f"timer:{self.name}" if self.target is None else reason_of(self.target, self.name)

    def __str__(self) -> str:
        return spoken_reason(self.reason, self.job_id)


@runtime_checkable
class SignalTarget(Protocol):
    """What a signal can be sent to: the handle of a job or a flow."""

    @property
    def _signal_target(self) -> str:
        """The text that stands for it."""


def reason_of(target: str, name: str) -> str:
    """The reason of a job that waits for a signal of this name to this target."""
    return f"signal:{target}:{name}"


def job_target(job_id: int) -> str:
    """The target that is one job."""
    return f"job:{job_id}"


def flow_target(flow_id: int) -> str:
    """The target that is a whole chain, group or workflow."""
    return f"flow:{flow_id}"


def id_of_target(target: str) -> int | None:
    """The id of the job or the flow that a target is; None: it is a key."""
    kind, _, text = target.partition(":")
    return None if kind == "key" else int(text)


def id_of_token(token: str) -> int | None:
    """The id of the job that a callback's token names, which only the database can check; None: it names none."""
    body = token.partition(".")[0]
    try:
        said = b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        return int(said.partition(b":")[0])
    except ValueError:
        return None


def key_target(key: str) -> str:
    """The target that is a key, a text for which any number of jobs may wait.

    Raises:
        InvalidOption: it is empty or too long, or PostgreSQL cannot hold it.
    """
    if not isinstance(key, str) or not 1 <= len(key) <= LONGEST_KEY:
        raise InvalidOption(
            f"key={key!r:.200}: use a string of 1 to {LONGEST_KEY} characters; hash what is longer"
        )
    return f"key:{check_text('key', key)}"


def check_signal(name: str) -> str:
    """Check a signal's or a timer's name, and return it; what raises is as for tasks' names."""
    return check_name("name", name)


def spoken_reason(reason: str, job_id: int) -> str:
    """What a blocked job waits for, for people; the reason as it is where it is neither a signal nor a timer."""
    kind, _, rest = reason.partition(":")
    if kind == "timer" and rest:
        return f"timer {rest!r}"
    target, _, name = rest.rpartition(":")
    if kind != "signal" or not target:
        return repr(reason[:LONGEST_NAMED])
    whose = target.partition(":")
    return f"signal {name!r}" + (
        "" if target == job_target(job_id) else f" to {whose[0]} {whose[2][:LONGEST_NAMED]!r}"
    )
