"""A table that is sorted, filtered and paged by the address: of queues or workers, of which there may be hundreds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from pgqueue.dashboard.page import Visit
from pgqueue.errors import InvalidOption

AT_ONCE: Final = 100
"""Rows on a page."""
T = TypeVar("T")


class Table(Generic[T]):
    """Rows of a page, and what its template shows of them.

    Attributes:
        rows: those of this page, in their order.
        found: how many match in all.
        known: how many there are.
        name: a part of the rows' names, which was typed; "": all.
        state: the state that was chosen; "": any.
        states: the states to choose from.
        sort: by which column they are sorted.
        page: which page, from 1.
        pages: how many there are.
    """

    def __init__(
        self,
        visit: Visit,
        rows: Sequence[T],
        *,
        name: Callable[[T], str],
        states: Mapping[str, Callable[[T], bool]],
        sorts: Mapping[str, Callable[[T], Any]],
    ) -> None:
        """Read the address: ``like``, ``state``, ``sort`` and ``page``.

        Args:
            visit: whose request it is.
            rows: all there are.
            name: the name of a row.
            states: whether a row is in a state.
            sorts: by what rows are sorted, by the name of the column; the first is taken where none is named.

        Raises:
            InvalidOption: there is no such column or state.
        """
        self.name, self.state = visit.text("like") or "", visit.text("state") or ""
        self.sort = visit.text("sort") or next(iter(sorts))
        self.states = [*states]
        self._visit = visit
        for given, known, word in ((self.state, states, "state"), (self.sort, sorts, "sort")):
            if given and given not in known:
                raise InvalidOption(f"{word}={given!r:.40}: there are {', '.join(known)}")
        found = [
            row
            for row in rows
            if self.name.lower() in name(row).lower() and (not self.state or states[self.state](row))
        ]
        found.sort(key=sorts[self.sort])
        self.known, self.found = len(rows), len(found)
        self.pages = max(1, -(-len(found) // AT_ONCE))
        self.page = min(max(visit.number("page") or 1, 1), self.pages)
        self.all = found
        self.rows = found[(self.page - 1) * AT_ONCE : self.page * AT_ONCE]

    @property
    def is_many(self) -> bool:
        """Whether sorting and filtering help."""
        return self.known > FEW or bool(self.name or self.state)

    def sorted_by(self, column: str) -> str:
        """The address of the same rows sorted by a column."""
        return self._visit.here(sort=column, page=None)

    def at(self, page: int) -> str:
        """The address of another page."""
        return self._visit.here(page=page)


FEW: Final = 8
"""Rows that are seen at a glance."""
