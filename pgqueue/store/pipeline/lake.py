"""Plans of the lake: which days are closed, what a day holds, and dropping what is safely out.

A day is closed when every transaction has ended that was in progress after its end: none is left that could add to it.
Rows are told apart by the number of the transaction in which their jobs ended (``ended_in``), never by the clock: all
below :attr:`Horizon.xmin` are final, so whatever comes later has a number from there on.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

import msgspec

from pgqueue.store.plan import Row, Statement, Steps, plan

HISTORY, DEAD = "history", "dead"
MARGIN = timedelta(minutes=1)
"""How long after its end a day is closed: it may take a statement a moment from reading the clock to writing."""


class Origin(msgspec.Struct, frozen=True):
    """Whose history it is.

    Attributes:
        system: the server's system identifier.
        database: the database's oid.
        schema: the schema in it.
    """

    system: str
    database: int
    schema: str

    def __str__(self) -> str:
        """In words."""
        return f"schema {self.schema} of database {self.database} on server {self.system}"


class Share(msgspec.Struct, frozen=True):
    """Some rows of a table.

    Attributes:
        rows: how many.
        checksum: the sum of 60 bits of each row's MD5, in any order; as text, for it outgrows 64 bits.
    """

    rows: int = 0
    checksum: str = "0"

    def __add__(self, other: "Share") -> "Share":
        """These rows and those."""
        return Share(self.rows + other.rows, str(int(self.checksum) + int(other.checksum)))


NOTHING = Share()


class Contents(msgspec.Struct, frozen=True):
    """What a day holds of some transactions.

    Attributes:
        history: the rows of the history.
        dead: the dead jobs that still stand.
        queues: the rows of each queue, dead jobs included.
        highest: the highest number of a transaction; None: there are no rows.
    """

    history: Share
    dead: Share
    queues: Mapping[str, int]
    highest: int | None

    @property
    def rows(self) -> int:
        """How many there are."""
        return self.history.rows + self.dead.rows


class Horizon(msgspec.Struct, frozen=True):
    """How far everything is final.

    Attributes:
        at: the database's time.
        xmin: the lowest number of a transaction in progress; the rows of all below are there, or never will be.
        xmax: above the numbers of all that have ended; the rows that can be seen have lower ones.
    """

    at: datetime
    xmin: int
    xmax: int


class DayThere(msgspec.Struct, frozen=True):
    """A day of which the database has, or may have, rows.

    Attributes:
        day: the UTC day.
        stands: whether the history has any.
        waiting: how many final rows, dead jobs included, are not in the lake.
    """

    day: date
    stands: bool
    waiting: int


class Known(msgspec.Struct, frozen=True):
    """A day that the database knows to be verified in a lake.

    Attributes:
        day: the UTC day.
        below: the rows of transactions below this number are in the lake.
        pruned_below: the rows of transactions below this one are gone from the history; 0: none.
        lake: where that lake is.
    """

    day: date
    below: int
    pruned_below: int
    lake: str


class Session(msgspec.Struct, frozen=True):
    """Somebody at the database.

    Attributes:
        pid: of the server's process; None: a prepared transaction, which has none.
        application: what it calls itself.
        owner: the role, or where it comes from.
        database: which database it works in.
        age: for how many seconds; None: not in a transaction.
    """

    pid: int | None
    application: str
    owner: str | None
    database: str | None
    age: float | None

    def __str__(self) -> str:
        """In words, with what it takes to end it."""
        who = self.application or "nameless"
        where = "" if self.database is None else f" in database {self.database}"
        since = "" if self.age is None else f", for {timedelta(seconds=round(self.age))}"
        pid = "" if self.pid is None else f"pid {self.pid}, "
        return f"{pid}{who} ({self.owner}{where}{since})"


def first_open_day(at: datetime, margin: timedelta) -> date:
    """The first UTC day that is not over, or not for so long, at an instant."""
    return (at - margin).astimezone(UTC).date()


@plan
def origin(schema: str) -> Steps[Origin]:
    """Which database this is, whatever name leads to it; ``schema`` is ours."""
    ((system, database),) = yield Statement("pipeline/lake_origin", {})
    return Origin(system, database, schema)


@plan
def horizon(*, now: datetime | None = None) -> Steps[Horizon]:
    """How far everything is final; ``now`` in place of the database's clock."""
    (row,) = yield Statement("pipeline/lake_horizon", {"now": now})
    return Horizon(*row)


@plan
def barrier() -> Steps[int]:
    """A number above those of all transactions that are in progress now; to be run in a transaction of its own."""
    ((number,),) = yield Statement("pipeline/lake_barrier", {})
    return int(number)


@plan
def in_the_way(below: int) -> Steps[list[Session]]:
    """The transactions in progress whose number is below this one, as far as this role may see them."""
    return _sessions((yield Statement("pipeline/lake_in_the_way", {"below": below})))


@plan
def readers() -> Steps[list[Session]]:
    """Who has the history's tables open just now."""
    return _sessions((yield Statement("pipeline/lake_readers", {})))


@plan
def there(known: Mapping[date, int], below: int) -> Steps[list[DayThere]]:
    """The days of which there are rows, oldest first.

    Args:
        known: the days in the lake, each with the first transaction that is not.
        below: count final rows only: those of transactions below this number.
    """
    params = {"days": list(known), "belows": list(known.values()), "below": below}
    return [DayThere(*row) for row in (yield Statement("pipeline/lake_there", params))]


@plan
def contents(day: date, *, since: int = 0, below: int) -> Steps[Contents]:
    """What a day holds of the transactions from ``since`` to below ``below``; reads and digests every row."""
    rows = yield Statement("pipeline/lake_checksum", {"day": day, "since": since, "below": below})
    queues: dict[str, int] = {}
    for _, queue, count, _, _ in rows:
        queues[queue] = queues.get(queue, 0) + count
    highest = max((row[3] for row in rows), default=None)
    return Contents(_share(rows, HISTORY), _share(rows, DEAD), queues, highest)


@plan
def deploys() -> Steps[list[tuple[datetime, str]]]:
    """When which version went live."""
    return [(row[0], row[1]) for row in (yield Statement("pipeline/lake_deploys", {}))]


@plan
def known() -> Steps[dict[date, Known]]:
    """The days that are verified in a lake."""
    return {row[0]: Known(*row) for row in (yield Statement("pipeline/lake_known", {}))}


@plan
def note_verified(day: date, *, history: Share, dead: Share, below: int, lake: str) -> Steps[None]:
    """Note that a day is verified in a lake: from now on its history may be dropped."""
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
def lock() -> Steps[bool]:
    """Be the only one who writes to the lake for as long as the connection lasts; False: somebody else is."""
    ((alone,),) = yield Statement("pipeline/lake_lock", {})
    return bool(alone)


@plan
def holder() -> Steps[list[Session]]:
    """Who is writing to the lake; nobody, if that has just ended."""
    return [
        Session(row[0], row[1], row[2], None, row[3]) for row in (yield Statement("pipeline/lake_holder", {}))
    ]


@plan
def gather(day: date) -> Steps[bool]:
    """Give a day's rows a partition of their own, where they lie in the default one; False: it was in use."""
    ((done,),) = yield Statement("pipeline/lake_gather", {"day": day})
    return bool(done)


@plan
def hold(day: date) -> Steps[bool | None]:
    """Let nobody change a day of the history before the transaction ends; False: it is in use; None: it is gone."""
    ((held,),) = yield Statement("pipeline/lake_hold", {"day": day})
    return None if held is None else bool(held)


@plan
def drop(day: date) -> Steps[bool]:
    """Drop a day of the history, and note that it is gone; False: the tables were in use."""
    ((dropped,),) = yield Statement("pipeline/lake_drop", {"day": day})
    return bool(dropped)


@plan
def pass_key(job_id: int) -> Steps[None]:
    """Take the unique key from a job that is about to end in this transaction, so that the next step may have it."""
    yield Statement("pipeline/lake_pass_key", {"id": job_id}, returns=False)


def _share(rows: Sequence[Row], source: str) -> Share:
    return sum((Share(row[2], row[4]) for row in rows if row[0] == source), NOTHING)


def _sessions(rows: Sequence[Row]) -> list[Session]:
    return [Session(*row) for row in rows]
