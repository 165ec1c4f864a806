"""Types that people put into arguments and results, with values of them: those that arrive, and those that are refused."""

# mypy: disable-error-code="call-arg,arg-type"
# (it does not know pydantic's aliases and conversions)

import dataclasses
import enum
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
from django.utils.safestring import SafeString
from markupsafe import Markup
from pydantic import AliasChoices, ConfigDict, Field, Json, SecretStr
from typing_extensions import TypedDict

LONDON = ZoneInfo("Europe/London")


class Aliased(pydantic.BaseModel):
    user_name: str | None = Field(None, alias="userName")


class Required(pydantic.BaseModel):
    user_id: int = Field(alias="userId")


class Validated(pydantic.BaseModel):
    user_id: int = Field(0, validation_alias=AliasChoices("userId", "uid"))


class Serialized(pydantic.BaseModel):
    user_id: int = Field(0, serialization_alias="userId")


class ByAlias(pydantic.BaseModel):
    model_config = ConfigDict(serialize_by_alias=True, extra="forbid")
    user_id: int = Field(0, validation_alias="uid", serialization_alias="userId")


class Computed(pydantic.BaseModel):
    model_config = ConfigDict(extra="forbid")
    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class WithJson(pydantic.BaseModel):
    filters: Json[list[int]]


class Strict(pydantic.BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    at: datetime
    key: UUID
    tags: set[str]


class Base64(pydantic.BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Extra(pydantic.BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str = Field("", alias="Name")


class Either(pydantic.BaseModel):
    at: date | str


class Animal(pydantic.BaseModel):
    name: str


class Dog(Animal):
    breed: str


class Puppy(Animal):
    def bark(self) -> str:
        return self.name


class Zoo(pydantic.BaseModel):
    animals: list[Animal]


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = Field("cat", alias="kindOf")
    lives: int = 9


class Fish(pydantic.BaseModel):
    kind: Literal["fish"] = Field("fish", alias="kindOf")


class Owner(pydantic.BaseModel):
    pet: Cat | Fish = Field(discriminator="kind")


class Numbers(pydantic.RootModel[list[int]]):
    pass


class Login(pydantic.BaseModel):
    token: SecretStr = SecretStr("")


class OpenLogin(Login):
    @pydantic.field_serializer("token", when_used="json")
    def _open(self, token: SecretStr) -> str:
        return token.get_secret_value()


class Excluded(pydantic.BaseModel):
    name: str
    password: str = Field("", exclude=True)


class Prefixed(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name", mode="before")
    @classmethod
    def _prefix(cls, name: str) -> str:
        return f"p-{name}"


class Stripped(pydantic.BaseModel):
    name: str

    @pydantic.field_validator("name", mode="before")
    @classmethod
    def _strip(cls, name: str) -> str:
        return name.strip()


class Swapped(pydantic.BaseModel):
    one: int = Field(alias="two")
    two: int = Field(alias="one")


class Raw(pydantic.BaseModel):
    data: bytes


class Private(pydantic.BaseModel):
    name: str
    _seen: object = pydantic.PrivateAttr(default_factory=object)


@pydantic.dataclasses.dataclass
class Checked:
    name: str
    at: datetime


@dataclasses.dataclass
class Point:
    x: int
    y: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass
class Point3(Point):
    z: int = 0


@dataclasses.dataclass(eq=False)
class Uncompared:
    x: int
    at: datetime


@dataclasses.dataclass
class Holder:
    more: dict[str, Any]


@dataclasses.dataclass
class Hidden:
    x: int
    _y: int = 0


@attrs.define
class Box:
    size: int


@attrs.define
class PrivateBox:
    size: int
    _left: int = 0


@attrs.define
class Crate(Box):
    weight: int = 0


class Line(msgspec.Struct):
    sku: UUID = msgspec.field(name="SKU")
    price: Decimal = Decimal(0)


class LongLine(Line):
    note: str = ""


class Buy(msgspec.Struct, tag=True):
    n: int


class Sell(msgspec.Struct, tag=True):
    n: int


class Where(TypedDict):
    city: str


class Pair(NamedTuple):
    one: int
    two: date


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Right(enum.IntFlag):
    READ = 1
    WRITE = 2


class Name(str):
    __slots__ = ()


class Count(int):
    pass


class Ratio(float):
    pass


class Moment(datetime):
    pass


class Money(Decimal):
    pass


WORD = "s3cret"
KEY = UUID(int=7)
AT = datetime(2031, 5, 4, 12, 30, tzinfo=UTC)
TWICE = datetime(2031, 10, 26, 1, 30, tzinfo=LONDON, fold=1)
"""In the hour that comes twice."""

ARRIVING: list[tuple[Any, object]] = [
    (str, SafeString("<b>")), (str, Markup("<b>")), (str, Name("ann")), (int, Count(3)), (float, Ratio(0.5)),
    (Any, SafeString("<b>")), (object, {"a": [1]}), (dict[str, str], {Markup("k"): Markup("v")}), (list[str], [SafeString("a")]), (Name, Name("ann")),
    (Count, Count(3)), (Ratio, Ratio(2)), (datetime, Moment(2031, 5, 4, tzinfo=UTC)), (Decimal, Money("1.10")),
    (Aliased, Aliased(userName="ann")), (Required, Required(userId=3)), (Validated, Validated(uid=3)),
    (Serialized, Serialized(user_id=3)), (ByAlias, ByAlias(uid=3)), (Computed, Computed(side=3)),
    (WithJson, WithJson(filters="[1, 2]")), (Strict, Strict(day=AT.date(), at=AT, key=KEY, tags={"a"})),
    (Base64, Base64(data=b"\xff\x00")), (Extra, Extra(Name="a", other=[1])), (Zoo, Zoo(animals=[Animal(name="rex")])),
    (Owner, Owner(pet=Fish())), (Owner, Owner(pet=Cat(lives=3))), (Numbers, Numbers([1, 2])), (OpenLogin, OpenLogin(token=WORD)),
    (Login, Login()), (Excluded, Excluded(name="ann")), (Stripped, Stripped(name=" a ")), (list[Required], [Required(userId=3)]),
    (dict[str, Aliased], {"a": Aliased(userName="ann")}), (Aliased | None, Aliased(userName="ann")),
    (Point, Point(1, 2)), (Point3, Point3(1, 2, 3)), (Checked, Checked("a", AT)), (Holder, Holder({"a": [1]})), (Box, Box(3)), (Hidden, Hidden(1, 2)),
    (Line, Line(KEY, Decimal("1.10"))), (Buy | Sell, Sell(3)), (Where, {"city": "Rome"}), (Pair, Pair(1, AT.date())),
    (Colour, Colour.RED), (Level, Level.HIGH), (Right, Right.READ | Right.WRITE), (Literal["a"], "a"),
    (datetime, AT), (datetime, TWICE), (datetime, AT.astimezone(timezone(timedelta(hours=5)))), (date, AT.date()),
    (time, time(1, 2, 3, tzinfo=UTC)), (timedelta, timedelta(days=-1, microseconds=1)), (UUID, KEY), (Decimal, Decimal("1.10")),
    (Decimal, Decimal("NaN")), (bytes, b"\xff\x00"), (set[str], {"a", "b"}), (frozenset[int], frozenset({1})),
    (tuple[int, str], (1, "a")), (dict[UUID, date], {KEY: AT.date()}), (dict[str, int], OrderedDict(a=1)),
    (dict[int, str], {1: "a"}), (Annotated[int, msgspec.Meta(ge=1)], 3), (dict[str, Any], {"a": {"b": [None, 1.5]}}),
]  # fmt: skip
"""Annotations, and values that arrive as they were sent."""

ODD_ZONE = datetime(2031, 5, 4, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=15)))
"""An instant whose offset JSON cuts to minutes."""
REFUSED: list[tuple[Any, object, str]] = [
    (Login, Login(token=WORD), "`value.token` is a SecretStr, and would arrive with another value: the JSON of a secret"),
    (Excluded, Excluded(name="ann", password=WORD), "`value.password` is a str, and would arrive with another value"),
    (Prefixed, Prefixed(name="x"), "`value.name` is a str, and would arrive with another value"),
    (Animal, Dog(name="rex", breed="pug"), "`value.breed` is a str, and would not arrive: `value` would arrive as an Animal, which"),
    (Zoo, Zoo(animals=[Dog(name="rex", breed="pug")]), "`value.animals[0].breed` is a str, and would not arrive"),
    (list[Animal], [Animal(name="a"), Dog(name="rex", breed="pug")], "`value[1].breed` is a str, and would not arrive"),
    (dict[str, Login], {"a": Login(token=WORD)}, "`value['a'].token` is a SecretStr"),
    (Swapped, Swapped(one=1, two=2), "`value.one` is an int, and would arrive with another value"),
    (Raw, Raw(data=b"\xff"), "invalid utf-8"),
    (Point, Point3(1, 2, 3), "`value.z` is an int, and would not arrive"),
    (Box, Crate(1, 2), "`value.weight` is an int, and would not arrive"),
    (Line, LongLine(KEY, note="a"), "`value.note` is a str, and would not arrive"),
    (PrivateBox, PrivateBox(1, left=3), "`value._left` is an int, and would arrive with another value"),
    (Where, {"city": "Rome", "zip": "00100"}, "`value['zip']` is a str, and would not arrive"),
    (dict[str, Any], {1: "a", "1": "b"}, "would not arrive"),
    (dict[datetime, int], {ODD_ZONE: 1}, "is a datetime, and would arrive with another value"),
    (set[datetime], {ODD_ZONE}, "is a datetime, and would arrive with another value"),
    (Extra, Extra(n=float("nan")), "is a float, and would arrive as None"),
]  # fmt: skip
"""Annotations, values that do not arrive, and what the refusal says of them."""

CHANGING: list[tuple[Any, object, str]] = [
    (Animal, Puppy(name="rex"), "`value` is a Puppy, .* arrives as a Animal"),
    (Holder, Holder({"at": [AT]}), r"`value.more\['at'\]\[0\]` is a datetime, .* arrives as a str"),
    (object, AT, "`value` is a datetime, .* arrives as a str"),
    (Any, AT, "`value` is a datetime, .* arrives as a str"),
    (dict[str, str], Animal(name="rex"), "`value` is a Animal, .* arrives as a dict"),
    (Either, Either(at="2031-05-04"), r"`value.at` is a str, .* arrives as a date"),
]
"""Annotations, values that arrive as another type, and the warning."""
