"""What a type checker makes of ``pgqueue.tables`` and of SQLAlchemy's objects as connections. Checked by mypy, never run.

Every ignored line is wrong on purpose: should it stop being an error, mypy reports an unused ignore.
"""

from typing import assert_type

from sqlalchemy import MetaData, Table, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session

from pgqueue import JobHandle, PgQueue
from pgqueue.tables import Tables, tables

queue = PgQueue()


class Base(DeclarativeBase): ...


class Job(Base):
    __table__ = tables().all_jobs
    id: Mapped[int]
    state: Mapped[str]


@queue.task
def bill(order_id: int) -> str:
    return f"bill {order_id}"


def the_tables() -> None:
    assert_type(tables(), Tables)
    assert_type(tables("jobs").metadata, MetaData)
    assert_type(tables().jobs, Table)

    tables(1)  # type: ignore[arg-type]
    tables().job  # type: ignore[attr-defined]  # noqa: B018
    tables().jobs = tables().all_jobs  # type: ignore[misc]


def a_mapped_class(session: Session) -> None:
    job = session.scalars(select(Job).where(Job.state == "ready")).one()
    assert_type(job.id, int)
    assert_type(job.state, str)


def blocking(session: Session) -> None:
    assert_type(bill.using(connection=session).enqueue(1), JobHandle[str])
    bill.using(connection=session).enqueue("1")  # type: ignore[arg-type]


async def awaited(session: AsyncSession) -> None:
    assert_type(await bill.using(connection=session).aenqueue(1), JobHandle[str])
    await bill.using(connection=session).aenqueue("1")  # type: ignore[arg-type]
