"""What an attempt may note of its job: names of steps, and how far the job is, with its JSON.

How results and checkpoints become JSON is decided in :mod:`pgqueue.values.payloads.signature`, and how notes are encoded in
:mod:`pgqueue.values.payloads.codec`. Of progress only the message is encoded: the numbers can be read and summed up by SQL.
"""

from datetime import datetime
from typing import Any

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.jobs.job import Claim
from pgqueue.values.jobs.options import LONGEST_NAME, check_text
from pgqueue.values.payloads.codec import Codec, encoded_note
from pgqueue.values.payloads.storable import storable_text

LONGEST_WORDS = 500
"""Characters of a progress message; the rest is cut off."""
LARGEST_NUMBER = 10**15
"""Every program reads whole numbers up to this one exactly."""


class Progress(msgspec.Struct, frozen=True):
    """How far a job is, as its task last reported it.

    Attributes:
        done: how much is done.
        total: of how much; None: that is not known.
        message: what the task said; None: nothing.
        at: when it was recorded, by the database's clock.
    """

    done: int | float
    total: int | float | None
    message: str | None
    at: datetime

    @property
    def share(self) -> float | None:
        """The part that is done, from 0 to 1; None: the total is not known."""
        if self.total is None:
            return None
        return 1.0 if self.done >= self.total else max(0.0, self.done / self.total)


class ProgressReport(msgspec.Struct, frozen=True):
    """How far an attempt says that its job is: ``done``, ``total`` and ``message`` as in :class:`Progress`."""

    done: int | float
    total: int | float | None = None
    message: Any = None


class StoredReport(msgspec.Struct, frozen=True):
    """A report as it is to be stored.

    Attributes:
        claim: the attempt that reported.
        value: the report as JSON.
    """

    claim: Claim
    value: str


def checked_report(done: float, total: float | None, message: str | None) -> ProgressReport:
    """A report of an attempt. What cannot be stored of the message is replaced, so that no job fails because of its words.

    Raises:
        InvalidOption: a value is no number, or out of its range; or the message is no string.
    """
    _check_number("done", done)
    if total is not None:
        _check_number("total", total)
    if message is None:
        return ProgressReport(done, total)
    if not isinstance(message, str):
        raise InvalidOption(f"progress(message={message!r:.80}): use a string")
    return ProgressReport(done, total, storable_text(message[:LONGEST_WORDS]))


def encoded_report(codec: Codec | None, claim: Claim, report: ProgressReport) -> str:
    """A report as it is to be stored.

    Raises:
        PayloadNotEncodable: the codec failed.
    """
    if report.message is not None:
        message = encoded_note(codec, claim, msgspec.json.encode(report.message))
        report = msgspec.structs.replace(report, message=msgspec.Raw(message))
    return msgspec.json.encode(report).decode()


def report_of(text: str) -> ProgressReport | None:
    """A stored report, its message as it is stored; None: another program wrote it, and it cannot be read."""
    try:
        return msgspec.json.decode(text, type=ProgressReport)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def check_step(name: str) -> None:
    """Refuse what cannot be the name of a step.

    Raises:
        InvalidOption: it is no string of 1 to 200 characters, or PostgreSQL cannot hold it.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidOption(f"step {name!r:.80}: name it with a string of 1 to {LONGEST_NAME} characters")
    check_text("step", name)


def _check_number(what: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"progress({what}={value!r:.80}): use a number")
    if not 0 <= value <= LARGEST_NUMBER:  # neither NaN nor infinity is
        raise InvalidOption(
            f"progress({what}={_show_value(value)}): use a number from 0 to {LARGEST_NUMBER:,}"
        )


def _show_value(value: float) -> str:
    try:
        return f"{value!r:.80}"
    except ValueError:  # Python shows no whole number of more than 4,300 digits
        return "<a number of thousands of digits>"
