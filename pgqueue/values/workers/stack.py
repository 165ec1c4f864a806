"""Where a running job is in its code, as its worker says it. A pure value."""

from datetime import datetime

import msgspec

LONGEST = 20_000
"""Characters of a stack that are kept, from its innermost call outwards."""


class Stack(msgspec.Struct, frozen=True):
    """What became of a question for the stack of a job.

    Attributes:
        job_id: of which job.
        worker: which worker was asked: its host and process, or its id.
        asked_at: when.
        answered_at: when the worker answered; None: it has not.
        text: a line for each call, the innermost last, and its source line; or why there is none.
    """

    job_id: int
    worker: str
    asked_at: datetime
    answered_at: datetime | None = None
    text: str | None = None

    @property
    def said(self) -> str:
        """The stack, or why there is none."""
        if self.text is not None:
            return self.text
        return f"worker {self.worker} has not answered. It answers with its next heartbeat, within a third of its lease"
