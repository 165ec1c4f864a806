"""For a name that nobody knows: the known one that was probably meant."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one; None: none is like it."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: a hint at the nearest name, or nothing."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def remedy(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: take the nearest, or one of those there are."""
    names = list(known)
    found = nearest(name, names)
    return f"use {', '.join(names)}" if found is None else f"did you mean {found!r}?"
