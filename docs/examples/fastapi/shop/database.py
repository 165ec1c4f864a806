"""The database, and the transaction of a request."""

import os
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends
from sqlalchemy import UniqueConstraint
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

engine = create_async_engine(os.environ["DATABASE_URL"])  # postgresql+psycopg://… or postgresql+asyncpg://…


class Base(DeclarativeBase):
    """Of all models."""


class Order(Base):
    """An order; it has a receipt once a worker has written one."""

    __tablename__ = "orders"
    __table_args__ = (UniqueConstraint("reference", deferrable=True, initially="DEFERRED"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    reference: Mapped[str]
    pieces: Mapped[int]
    pence: Mapped[int]
    receipt: Mapped[str | None]


async def begin() -> AsyncIterator[AsyncSession]:
    """A session in a transaction: committed when the path function has returned, rolled back when it raised."""
    async with AsyncSession(engine, expire_on_commit=False) as session, session.begin():
        yield session


Transaction = Annotated[AsyncSession, Depends(begin, scope="function")]  # ends before the response is sent
