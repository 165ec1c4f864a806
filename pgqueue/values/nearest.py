"""For an unknown name: the known one that was probably meant."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to this one; None: none is similar."""
    import difflib  # noqa: PLC0415 - for mistakes only

    found = difflib.get_close_matches(name, list(known), n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message: a hint at the nearest name, or empty."""
    found = nearest(name, known)
    return "" if found is None else f"; did you mean {found!r}?"


def remedy(name: str, known: Iterable[str]) -> str:
    """What to do about an unknown name: use the nearest name, or one of the known ones."""
    names = list(known)
    found = nearest(name, names)
    return f"use {', '.join(names)}" if found is None else f"did you mean {found!r}?"
