"""What happens when two live jobs would share a unique key."""

from dataclasses import dataclass
from typing import Literal, get_args

from pgqueue.errors import Duration, InvalidOption, as_limit

Collision = Literal["reject", "replace", "reschedule"]
Until = Literal["ended", "started"]


@dataclass(frozen=True, slots=True)
class Unique:
    """The policy behind a ``unique_key``.

    Attributes:
        collision: what an enqueue does when the key is taken. ``reject``: nothing. ``replace``: a job that
            still waits takes over the new arguments, queue, priority and time. ``reschedule``: it takes over
            the new time only. A job that already runs is never changed; the enqueue is then rejected.
        until: how long a job holds its key: until it has ``ended``, or until its first attempt ``started``.
        period: keep the key taken for this long after the enqueue, even if the job ends sooner; seconds, or a
            timedelta, and a timedelta once it is here.

    Raises:
        InvalidOption: one of them is not as described.
    """

    collision: Collision = "reject"
    until: Until = "ended"
    period: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range."""
        for name, value, known in (
            ("collision", self.collision, get_args(Collision)),
            ("until", self.until, get_args(Until)),
        ):
            if value not in known:
                raise InvalidOption(f"Unique({name}={value!r}): use one of {', '.join(map(repr, known))}")
        object.__setattr__(self, "period", as_limit("Unique: period", self.period))
