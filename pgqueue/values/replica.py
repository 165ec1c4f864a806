"""How far a replica is behind its primary."""

import msgspec


class ReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a replica stands.

    Attributes:
        answers: whether it answers looks; False: the primary does.
        error: why it does not.
        behind: how old what it shows may be, in seconds; 0: it has all that the primary had written; None: not known.
        bytes: how much of the primary's log it has not replayed; None: the primary did not answer, or it is no replica.
    """

    answers: bool
    error: str | None = None
    behind: float | None = None
    bytes: int | None = None

    def __str__(self) -> str:
        if not self.answers:
            return f"the replica does not answer ({self.error}): the primary does"
        if self.behind is None:
            return "from a replica; how far it is behind is not known"
        return f"from a replica, {self.behind:,.1f} s behind"


def status(*, replays: bool, bytes_left: int | None, age: float | None) -> ReplicaStatus:
    """What the two servers said, as one answer.

    Args:
        replays: whether the server that is asked as the replica is one.
        bytes_left: how much it has to replay; None: the primary did not say what it has written.
        age: how long ago the last transaction that it has replayed was committed, in seconds; None: it has replayed none.
    """
    if not replays:
        return ReplicaStatus(answers=True, behind=0.0)
    behind = 0.0 if bytes_left == 0 else age
    return ReplicaStatus(answers=True, behind=behind, bytes=bytes_left)
