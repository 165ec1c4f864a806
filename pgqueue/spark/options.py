"""The options of reads and writes as Spark passes them: text by name, read and checked first.

Spark ignores the case of names. An unknown option is refused, and the message suggests a known name. It does not show the
value, which may be a DSN with a password.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import date
from typing import TypeVar

from pgqueue.errors import InvalidOption
from pgqueue.values.hints import remedy

V = TypeVar("V")
TRUTHS = {"true": True, "false": False}
TRUE_OR_FALSE = "true or false"


class Options:
    """Options by name, without regard to case."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}

    def check_known(self, known: Collection[str], *, elsewhere: Collection[str] = (), why: str = "") -> None:
        """Check that every option is known.

        Args:
            known: the names that are used here.
            elsewhere: names that are used only elsewhere.
            why: says where, for the message.

        Raises:
            InvalidOption: an option is unknown, or is not used here.
        """
        for name in self._given.keys() - {one.lower() for one in known}:
            written = next((one for one in elsewhere if one.lower() == name), None)
            if written is not None:
                raise InvalidOption(f"option {written!r} {why}")
            raise InvalidOption(f"there is no option {name!r}: {remedy(name, known)}")

    def get(self, name: str) -> str | None:
        """An option's text; None: it was not given."""
        return self._given.get(name.lower())

    def read(self, name: str, read: Callable[[str], V], form: str) -> V | None:
        """An option's value; None: it was not given.

        Args:
            name: the option.
            read: makes the value of the text, or raises ValueError.
            form: what to write, for the message.

        Raises:
            InvalidOption: it cannot be read.
        """
        written = self.get(name)
        if written is None:
            return None
        try:
            return read(written)
        except ValueError:
            raise InvalidOption(f"option {name!r} is {written!r}: write {form}") from None


def truth(written: str) -> bool:
    """True or false, in any case."""
    if written.strip().lower() not in TRUTHS:
        raise ValueError(written)
    return TRUTHS[written.strip().lower()]


def count(written: str) -> int:
    """A whole number above zero."""
    number = int(written)
    if number < 1:
        raise ValueError(written)
    return number


def day(written: str) -> date:
    """A UTC day such as 2026-11-20."""
    return date.fromisoformat(written.strip())
