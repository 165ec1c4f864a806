"""Which names become labels, and how many of them: names of tasks and queues are data, and each label is a time series.

The first :data:`MOST` are told apart; all later ones are counted together as :data:`OTHER`.
"""

from typing import Final, Generic, TypeVar

V = TypeVar("V")

MOST: Final = 200
LONGEST: Final = 200
OTHER: Final = "(other)"


def label(text: str) -> str:
    """A name as a label: text that UTF-8 can hold, of at most 200 characters. Quotes and line ends are escaped by the library."""
    return text[:LONGEST].replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


class BoundedLabels(dict[tuple[str, ...], V], Generic[V]):
    """Values by labels: at most ``most`` of them, and one for all others."""

    def __init__(self, width: int, *, most: int = MOST) -> None:
        """``width``: how many labels a value has. ``most``: after this many values all others are counted as one."""
        super().__init__()
        self._other = (OTHER,) * width
        self._most = most

    def key(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """Under which labels a value of these is held."""
        return labels if labels in self or len(self) < self._most else self._other
