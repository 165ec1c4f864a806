"""Decides how many jobs one answer to a claim may hold, by the length of the last jobs' arguments.

An answer is in the memory of the server, the driver and the worker at the same time: 500 jobs with 1 MB of arguments
each take more than 1 GB. The server also writes to disk what is longer than its ``work_mem``. The database does not
know the length of arguments without reading them, so the last answers decide the size of the next: at once smaller
after long arguments, and at most twice as large after short ones.
"""

from collections.abc import Sequence
from operator import attrgetter

from pgqueue.values.jobs.job import Claim

LARGEST_ANSWER = 1_000_000
"""The most characters of arguments that an answer should hold: more take no less time for each job, and more memory."""
_ARGS = attrgetter("args")
FIRST = 100
"""Jobs in the first answer."""


class Portions:
    """Decides the size of answers of one worker or take."""

    def __init__(self) -> None:
        self._length = LARGEST_ANSWER / FIRST

    @property
    def most(self) -> int:
        """How many jobs the next answer may hold."""
        return max(1, int(LARGEST_ANSWER / self._length))

    def learn(self, claims: Sequence[Claim]) -> None:
        """Adjust the size after an answer."""
        if claims:
            length = sum(map(len, map(_ARGS, claims))) / len(claims)
            self._length = max(1.0, length, self._length / 2)
