"""Plans of the lake: find closed days, read what a day holds, and drop exported days.

A day is closed some time after its end. Transactions that were in progress then may still add rows to it. Rows are told
apart by the number of the transaction in which their jobs ended (``ended_in``), never by the clock: all below
:attr:`TransactionHorizon.xmin` are final, and later rows have higher numbers.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from pgqueue.store import audit
from pgqueue.store.plan import Row, Statement, Steps, plan

HISTORY, DEAD = "history", "dead"
MARGIN = timedelta(minutes=1)
"""How long after its end a day is closed: a statement reads the clock some time before it writes."""


class Origin(msgspec.Struct, frozen=True):
    """The owner of a history.

    Attributes:
        system: the server's system identifier.
        database: the database's oid.
        schema: the schema in it.
    """

    system: str
    database: int
    schema: str

    def __str__(self) -> str:
        return f"schema {self.schema} of database {self.database} on server {self.system}"


class Checksum(msgspec.Struct, frozen=True):
    """Some rows of a table.

    Attributes:
        rows: the number of rows.
        checksum: the sum of 60 bits of each row's MD5, in any order; as text, because it exceeds 64 bits. None: they were
            counted only.
    """

    rows: int = 0
    checksum: str | None = None

    def __add__(self, other: "Checksum") -> "Checksum":
        if self.checksum is None or other.checksum is None:
            return Checksum(self.rows + other.rows)
        return Checksum(self.rows + other.rows, str(int(self.checksum) + int(other.checksum)))


NOTHING = Checksum(0, "0")


class HiddenValues(msgspec.Struct, frozen=True):
    """What a lake does not hold as the database does.

    Attributes:
        left_out: columns of ended jobs that are null in it.
        hashed: columns that hold the SHA-256 of the key and their text.
        key: the secret key; empty: nothing is hashed.
    """

    left_out: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()
    key: str = ""


NOTHING_HIDDEN = HiddenValues()
NO_DEAD = (1, 0)
"""The bounds of a day without dead jobs."""


class DayCounts(msgspec.Struct, frozen=True):
    """The number of a day's rows of some transactions.

    Attributes:
        history: the rows of the history.
        dead: the dead jobs that are still in ``dead_jobs``.
        queues: the number of rows of each queue, dead jobs included.
        highest: the highest transaction number of a row; None: there are no rows.
    """

    history: int
    dead: int
    queues: Mapping[str, int]
    highest: int | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.history + self.dead


class Contents(msgspec.Struct, frozen=True):
    """A day's rows, with checksums.

    Attributes:
        history: the rows of the history, of some transactions.
        dead: the dead jobs that are still in ``dead_jobs``.
        versions: a sum that is another one as soon as a row of the history is updated, or the table is rewritten.
    """

    history: Checksum
    dead: Checksum
    versions: str


class TransactionHorizon(msgspec.Struct, frozen=True):
    """The transaction numbers below which rows are final.

    Attributes:
        at: the database's time.
        xmin: the lowest number of a transaction in progress; transactions below it add no more rows.
        xmax: higher than the number of every ended transaction; visible rows have lower numbers.
    """

    at: datetime
    xmin: int
    xmax: int


class DatabaseDay(msgspec.Struct, frozen=True):
    """A day of which the database has, or may have, rows.

    Attributes:
        day: the UTC day.
        stands: whether the history has rows of it.
        waiting: how many final rows, dead jobs included, are not in the lake.
    """

    day: date
    stands: bool
    waiting: int


class VerifiedDay(msgspec.Struct, frozen=True):
    """A day that the database has recorded as verified in a lake.

    Attributes:
        day: the UTC day.
        below: the rows of transactions below this number are in the lake.
        pruned_below: the rows of transactions below this number were dropped from the history; 0: none.
        lake: the lake's place.
    """

    day: date
    below: int
    pruned_below: int
    lake: str


class Session(msgspec.Struct, frozen=True):
    """A session, or a prepared transaction, at the database server.

    Attributes:
        pid: the server process; None: a prepared transaction, which has none.
        application: its application name.
        owner: its role, or its address.
        database: its database.
        age: the age of its transaction or connection in seconds; None: not in a transaction.
    """

    pid: int | None
    application: str
    owner: str | None
    database: str | None
    age: float | None

    def __str__(self) -> str:
        """Describe the session for a message, with the pid by which a user can end it."""
        who = self.application or "nameless"
        where = "" if self.database is None else f" in database {self.database}"
        since = "" if self.age is None else f", for {timedelta(seconds=round(self.age))}"
        pid = "" if self.pid is None else f"pid {self.pid}, "
        return f"{pid}{who} ({self.owner}{where}{since})"


def first_open_day(at: datetime, margin: timedelta) -> date:
    """The first UTC day that is not closed at an instant: it ended less than ``margin`` before, or not at all."""
    return (at - margin).astimezone(UTC).date()


@plan
def origin(schema: str) -> Steps[Origin]:
    """The identity of this database, independent of its name in the DSN; ``schema`` is pgqueue's."""
    ((system, database),) = yield Statement("pipeline/lake_origin", {})
    return Origin(system, database, schema)


@plan
def horizon(*, now: datetime | None = None) -> Steps[TransactionHorizon]:
    """The transaction numbers below which rows are final; ``now`` replaces the database's clock."""
    (row,) = yield Statement("pipeline/lake_horizon", {"now": now})
    return TransactionHorizon(*row)


@plan
def barrier() -> Steps[int]:
    """A number above those of all transactions in progress; must be run in its own transaction."""
    ((number,),) = yield Statement("pipeline/lake_barrier", {})
    return int(number)


@plan
def in_the_way(below: int) -> Steps[list[Session]]:
    """The transactions in progress with a number below this one, as far as this role may see them."""
    return _sessions((yield Statement("pipeline/lake_in_the_way", {"below": below})))


@plan
def readers() -> Steps[list[Session]]:
    """The sessions that have the history's tables open now."""
    return _sessions((yield Statement("pipeline/lake_readers", {})))


@plan
def there(known: Mapping[date, int], below: int) -> Steps[list[DatabaseDay]]:
    """The days of which the database has rows, oldest first.

    Args:
        known: the days in the lake, each with the first transaction that is not in it.
        below: count only final rows: those of transactions below this number.
    """
    params = {"days": list(known), "belows": list(known.values()), "below": below}
    return [DatabaseDay(*row) for row in (yield Statement("pipeline/lake_there", params))]


@plan
def counts(day: date, *, since: int = 0, below: int) -> Steps[DayCounts]:
    """The number of a day's rows of the transactions from ``since`` to below ``below``."""
    rows = yield Statement("pipeline/lake_counts", {"day": day, "since": since, "below": below})
    tables = {HISTORY: 0, DEAD: 0}
    queues: dict[str, int] = {}
    for table, queue, count, _ in rows:
        tables[table] += count
        queues[queue] = queues.get(queue, 0) + count
    highest = max((row[3] for row in rows), default=None)
    return DayCounts(tables[HISTORY], tables[DEAD], queues, highest)


@plan
def dead_bounds() -> Steps[dict[date, tuple[int, int]]]:
    """The lowest and the highest transaction number of the dead jobs of each day that has some."""
    return {row[0]: (row[1], row[2]) for row in (yield Statement("pipeline/lake_dead", {}))}


@plan
def contents(
    day: date, *, since: int = 0, below: int, dead: tuple[int, int], hidden: HiddenValues = NOTHING_HIDDEN
) -> Steps[Contents]:
    """A day's rows: of the history those of transactions from ``since`` to below ``below``, and dead jobs below ``below``.

    Reads every row for the checksum, which is that of the rows as the lake holds them.

    Args:
        day: the UTC day.
        since: a transaction number.
        below: a transaction number.
        dead: the bounds of the day's dead jobs, from :func:`dead_bounds`, or :data:`NO_DEAD`.
        hidden: what the lake does not hold.
    """
    params = {"day": day, "since": since, "below": below, "dead_from": dead[0], "dead_to": dead[1]}
    masks = {"left_out": list(hidden.left_out), "hashed": list(hidden.hashed), "key": hidden.key}
    rows = yield Statement("pipeline/lake_checksum", params | masks)
    found = {row[0]: row for row in rows}
    shares = {table: Checksum(row[1], row[2]) for table, row in found.items()}
    versions = found[HISTORY][3] if HISTORY in found else "0"
    return Contents(shares.get(HISTORY, NOTHING), shares.get(DEAD, NOTHING), versions)


@plan
def versions(day: date, *, since: int) -> Steps[tuple[int, str]]:
    """How many rows of a day the history has of transactions from ``since`` on, and the sum of their versions."""
    ((rows, found),) = yield Statement("pipeline/lake_versions", {"day": day, "since": since})
    return rows, found


@plan
def unfit(day: date, limit: int = 3) -> Steps[list[tuple[int, str]]]:
    """Rows of a day with an instant that is infinite, or outside the years 1 to 9999: the job's id, and the column.

    Args:
        day: the UTC day.
        limit: at most how many.
    """
    rows = yield Statement("pipeline/lake_unfit", {"day": day, "limit": limit})
    return [(row[0], row[1]) for row in rows]


@plan
def deploys() -> Steps[list[tuple[datetime, str]]]:
    """The deploys: time and version."""
    return [(row[0], row[1]) for row in (yield Statement("insight/deploys", {}))]


@plan
def verified_days() -> Steps[dict[date, VerifiedDay]]:
    """The days that are verified in a lake."""
    return {row[0]: VerifiedDay(*row) for row in (yield Statement("pipeline/lake_known", {}))}


@plan
def note_verified(day: date, *, history: Checksum, dead: Checksum, below: int, lake: str) -> Steps[None]:
    """Record that a day is verified in a lake: from now on its history may be dropped."""
    params = {
        "day": day,
        "history_rows": history.rows,
        "dead_rows": dead.rows,
        "checksum": history.checksum,
        "below": below,
        "lake": lake,
    }
    yield Statement("pipeline/lake_verified", params, returns=False)


@plan
def leave(lake: str, *, by: str | None) -> Steps[tuple[int, int]]:
    """Forget which days are verified in a lake; returns how many there were, and how many other lakes have."""
    ((days, others),) = yield Statement("pipeline/lake_leave", {"lake": lake})
    if days:
        yield from audit.note("lake left", lake, by=by, days=days)
    return int(days), int(others)


@plan
def lock() -> Steps[bool]:
    """Take the lake's lock until the connection ends; False: another session holds it."""
    ((alone,),) = yield Statement("pipeline/lake_lock", {})
    return bool(alone)


@plan
def holder() -> Steps[list[Session]]:
    """The session that is writing to the lake; an empty list if it has just ended."""
    return [
        Session(row[0], row[1], row[2], None, row[3]) for row in (yield Statement("pipeline/lake_holder", {}))
    ]


@plan
def gather(day: date) -> Steps[bool]:
    """Move a day's rows from the default partition to their own; False: the tables were in use."""
    ((done,),) = yield Statement("pipeline/lake_gather", {"day": day})
    return bool(done)


@plan
def hold(day: date) -> Steps[bool | None]:
    """Lock a day of the history against writes until the transaction ends; False: it is in use; None: it is gone."""
    ((held,),) = yield Statement("pipeline/lake_hold", {"day": day})
    return None if held is None else bool(held)


@plan
def drop(day: date) -> Steps[bool]:
    """Drop a day of the history, and record it; False: the tables were in use."""
    ((dropped,),) = yield Statement("pipeline/lake_drop", {"day": day})
    return bool(dropped)


@plan
def in_live_flows(ids: Collection[int]) -> Steps[set[int]]:
    """Which of these jobs belong to a flow that has not ended."""
    rows = yield Statement("pipeline/lake_in_flows", {"ids": list(ids)})
    return {row[0] for row in rows}


@plan
def erase(day: date, ended: Collection[tuple[int, int]], texts: Collection[str]) -> Steps[int]:
    """Delete jobs that ended on a day, and what is kept of them elsewhere; returns how many there were.

    Args:
        day: the UTC day.
        ended: their ids, and the transactions in which they ended.
        texts: what they were chosen by, such as a key; it is removed from the names of their flows and from the audit.
    """
    params = {
        "day": day,
        "ids": [one[0] for one in ended],
        "ended_in": [one[1] for one in ended],
        "texts": list(texts),
    }
    ((erased,),) = yield Statement("pipeline/lake_erase", params)
    return int(erased)


@plan
def pass_key(job_id: int) -> Steps[None]:
    """Remove the unique key of a job that is about to end in this transaction, so that the next step can use it."""
    yield Statement("pipeline/lake_pass_key", {"id": job_id}, returns=False)


def _sessions(rows: Sequence[Row]) -> list[Session]:
    return [Session(*row) for row in rows]
