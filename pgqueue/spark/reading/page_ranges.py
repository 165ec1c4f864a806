"""Divides a table's rows among the tasks of a read, so that together they read each row once.

====================  ===============================================================================================
what                  how
====================  ===============================================================================================
a day of the history  by ranges of its pages; rows of jobs that had ended when the read was planned
the history's rest    one statement: rows that are in no day's partition when they are read
dead jobs, live jobs  one statement, because their rows come and go; in a snapshot, by ranges of their pages
workers               one statement
====================  ===============================================================================================
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from psycopg import sql

from pgqueue.spark.reading.fetching import Fetch, KeptPieces
from pgqueue.spark.reading.options import BatchOptions
from pgqueue.store.pipeline import extract
from pgqueue.store.pipeline import extract_where as where
from pgqueue.store.pipeline.extract import Piece, Planner
from pgqueue.store.pipeline.extract_where import DEAD, HISTORY

SOURCES = {HISTORY: "history", DEAD: "dead"}
JOBS = "jobs"


@dataclass(frozen=True)
class PageRange:
    """Pages of a piece: from the first up to, not including, another; or to the end."""

    piece: Piece
    first: int
    before: int | None


class Dealer:
    """Divides a read into tasks."""

    def __init__(
        self,
        planner: Planner,
        options: BatchOptions,
        columns: Sequence[str],
    ) -> None:
        """Look at the database, and fix which rows are read.

        Raises:
            DatabaseError: the expression of the options is none of PostgreSQL over the table's columns.
            PipelineError: the transaction numbers of ended jobs are not valid in this database.
        """
        self._planner = planner
        self._options = options
        self._table = options.source.table
        self._columns = columns
        self._conditions = [
            *where.only(options.source.only),
            *where.between_days(self._table, options.first, options.last),
        ]
        state = planner.run(extract.look())
        if HISTORY in self._table.of and options.snapshot is None:
            planner.run(extract.check_numbers(state))
        self._state = state
        self._pieces = planner.run(extract.pieces(self._table))
        if options.where is not None:  # an error is raised here, and not by each task
            planner.explain(self._statement([]))

    def tasks(self) -> list[tuple[Fetch, ...]]:
        """What each task fetches; empty: there is nothing to read."""
        dealt = [piece for piece in self._pieces if piece.pages and self._in_pages(piece)]
        pages = self._options.pages
        if self._options.partitions:
            pages = max(1, -(-sum(piece.pages for piece in dealt) // self._options.partitions))
        shares = [tuple(map(self._stretch, share)) for share in shares_of(dealt, pages)]
        return [*shares, *((fetch,) for fetch in self._wholes())]

    def _in_pages(self, piece: Piece) -> bool:
        if piece.table == HISTORY:
            return piece.day is not None and self._wants(piece.day)
        return self._options.snapshot is not None and piece.table in {DEAD, JOBS}

    def _wants(self, day: date) -> bool:
        return (self._options.first or day) <= day <= (self._options.last or day)

    def _wholes(self) -> Iterator[Fetch]:
        for name in self._table.of:
            pieces = [piece for piece in self._pieces if piece.table == name]
            if name == HISTORY:
                days = [piece.day for piece in pieces if piece.day]
                if any(piece.pages for piece in pieces if piece.day is None):
                    yield self._fetch([*self._from(name), where.on_no_day(self._table, days), *self._final()])
            elif self._options.snapshot is None and name in {DEAD, JOBS}:
                yield self._fetch([*self._from(name), *(self._final() if len(self._table.of) > 1 else ())])
        if not {HISTORY, DEAD, JOBS} & set(self._table.of):
            yield self._fetch([])

    def _stretch(self, stretch: PageRange) -> Fetch:
        piece = stretch.piece
        conditions = [
            *self._from(piece.table),
            *([where.on_day(self._table, piece.day)] if piece.day else ()),
            where.in_pages(piece.oid, stretch.first, stretch.before),
            *(self._final() if piece.table == HISTORY else ()),
        ]
        return self._fetch(conditions, kept_as_is(self._planner, [piece]))

    def _from(self, table: str) -> Iterator[sql.Composable]:
        if len(self._table.of) > 1 and table in SOURCES:
            yield where.from_source(SOURCES[table])

    def _final(self) -> Iterator[sql.Composable]:
        """The condition for jobs that had ended when the read was planned; a snapshot needs none."""
        if self._options.snapshot is None and self._state.running is None:
            yield where.ended_before(self._state.horizon, ())
        elif self._options.snapshot is None:
            yield where.ended_before(self._state.next, self._state.running or ())

    def _fetch(self, conditions: Iterable[sql.Composable], kept: KeptPieces | None = None) -> Fetch:
        before: tuple[str, ...] = ()
        if self._options.snapshot is not None:
            before = (extract.ISOLATED, self._planner.text(extract.in_snapshot(self._options.snapshot)))
        return Fetch(self._planner.text(self._statement(conditions)), before, kept)

    def _statement(self, conditions: Iterable[sql.Composable]) -> sql.Composed:
        return where.statement(
            self._table,
            self._columns,
            [*self._conditions, *conditions],
            self._planner.catalogue,
            expression=self._options.where,
        )


def kept_as_is(planner: Planner, pieces: Sequence[Piece]) -> KeptPieces:
    """Pieces whose file must not change, because tasks read ranges of their pages."""
    return KeptPieces(
        planner.kept(pieces),
        {piece.oid: piece.file for piece in pieces},
        {piece.oid: piece.name for piece in pieces},
    )


def kept_at_all(planner: Planner, pieces: Sequence[Piece]) -> KeptPieces:
    """Pieces that must still exist; their file may change."""
    return KeptPieces(
        planner.kept(pieces),
        dict.fromkeys((piece.oid for piece in pieces), None),
        {piece.oid: piece.name for piece in pieces},
    )


def shares_of(pieces: Iterable[Piece], pages: int) -> list[list[PageRange]]:
    """Divide pages into shares, in order. The last stretch of a piece has no end, because the piece may have grown.

    Args:
        pieces: what is read.
        pages: pages in a share.
    """
    shares: list[list[PageRange]] = [[]]
    room = pages
    for piece in pieces:
        first = 0
        while piece.pages - first > room:
            shares[-1].append(PageRange(piece, first, first + room))
            shares.append([])
            first, room = first + room, pages
        shares[-1].append(PageRange(piece, first, None))
        room -= piece.pages - first
        if room == 0:
            shares.append([])
            room = pages
    return [share for share in shares if share]
