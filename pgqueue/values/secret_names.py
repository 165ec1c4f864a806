"""Which fields hold a secret: those in whose names one of a queue's patterns is found."""

import re
from collections.abc import Iterable
from typing import Final

from pgqueue.errors import InvalidOption

SECRETS: Final = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_?key",
    "private_?key",
    "credential",
    "authorization",
    "cookie",
    "session_?id",
    "card_?number",
    "cvv",
    "iban",
    "ssn",
)
"""The patterns of a queue that is given none: regular expressions, searched for in the names of fields. Capitals and hyphens make no
difference."""


def secret_name(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """One regular expression of all patterns; None: there are none.

    Raises:
        InvalidOption: one is no regular expression.
    """
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    try:
        return re.compile(joined, re.IGNORECASE) if joined else None
    except re.error as error:
        raise InvalidOption(f"redact: {error.pattern!r:.200} is no regular expression: {error}") from error


def check_secrets(patterns: Iterable[str]) -> tuple[str, ...]:
    """The patterns, checked.

    Raises:
        InvalidOption: one is no regular expression.
    """
    given = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    if isinstance(patterns, str) or not all(isinstance(one, str) for one in given):
        raise InvalidOption(f'redact={patterns!r:.200}: give several strings, such as (*SECRETS, "pin")')
    for one in given:
        secret_name([one])  # so that the message has this pattern alone
    secret_name(given)
    return given
