"""How many jobs one answer to a claim may hold, by how long the arguments of the last ones were.

An answer is in the memory of the server, the driver and the worker at the same time: 500 jobs with 1 MB of arguments
each are some GB. The database cannot tell how long arguments are without reading them, so the next answer is sized by
the last ones: at once smaller after long arguments, and at most twice as large after short ones.
"""

from collections.abc import Sequence
from operator import attrgetter

from pgqueue.values.job import Claim

LARGEST_ANSWER = 16_000_000
"""Characters of arguments that an answer is meant to hold at most."""
_ARGS = attrgetter("args")
FIRST = 100
"""Jobs in an answer before anything is known."""


class Portions:
    """Sizes the answers of one worker or take."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._length = LARGEST_ANSWER / FIRST

    @property
    def most(self) -> int:
        """How many jobs the next answer may hold."""
        return max(1, int(LARGEST_ANSWER / self._length))

    def learn(self, claims: Sequence[Claim]) -> None:
        """Take note of an answer."""
        if claims:
            length = sum(map(len, map(_ARGS, claims))) / len(claims)
            self._length = max(1.0, length, self._length / 2)
