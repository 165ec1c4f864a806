"""Arguments to test with, and how they travel: stored, and read back as a worker would."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic

from pgqueue.values.payloads.signature import Signature


class Injected:
    """Stands for the context."""


CONTEXT = Injected()


def there_and_back(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function with arguments that have been stored, as a worker would."""
    signature = Signature(function, Injected)
    stored = json.dumps(json.loads(signature.encode(args, kwargs)))
    found, named = signature.decode(stored, CONTEXT)
    return function(*found, **named)


def encoded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return json.loads(Signature(function, Injected).encode(args, kwargs))


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    since: date
    tags: list[str] = field(default_factory=list)


class Line(msgspec.Struct):
    sku: UUID
    price: Decimal


class Options(TypedDict):
    gift: bool


class Customer(pydantic.BaseModel):
    name: str
    address: Address


WHEN = datetime(2031, 5, 4, 12, 30, tzinfo=UTC)
