"""Jobs that ended lately, in steps of seconds, as the history tells it. Frozen values."""

from datetime import datetime

import msgspec

from pgqueue.values.insight.series import Spread


class EndedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that ended in one step.

    Attributes:
        at: when the step begins.
        succeeded: jobs that succeeded.
        cancelled: jobs that were cancelled.
        dead: jobs that died.
        wait: how long those of them in the history had been due when their last attempt was claimed; None: there was none.
        run: how long their last attempts ran; None: there was none.
    """

    at: datetime
    succeeded: int = 0
    cancelled: int = 0
    dead: int = 0
    wait: Spread | None = None
    run: Spread | None = None


class EndedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that ended lately. Jobs whose records are not kept are not counted.

    Attributes:
        since: when the first step begins.
        until: when the last step ends; it may not be over.
        step: the length of a step in seconds.
        points: one for each step from the first on of which all jobs were read.
        complete: every step was read: else more jobs ended than are read.
    """

    since: datetime
    until: datetime
    step: float
    points: tuple[EndedPoint, ...]
    complete: bool
