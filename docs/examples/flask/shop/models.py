"""What the shop keeps."""

from sqlalchemy.orm import Mapped, mapped_column

from shop.extensions import db


class Order(db.Model):
    """An order; it has a receipt once a worker has written one."""

    id: Mapped[int] = mapped_column(primary_key=True)
    pieces: Mapped[int]
    pence: Mapped[int]
    receipt: Mapped[str | None]
