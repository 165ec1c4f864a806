"""In which forms a text shows a secret: quoted, encoded, cut; and the text without them.

An error quotes what it complains about: with ``repr``, as JSON, as base64 in a header, in a URL, or cut to a length. Each
text is read once, however many secrets there are.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterator
from functools import cached_property
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "•••"
SHORTEST: Final = 4
"""Characters of a secret from which on it is searched for; shorter texts occur by chance."""
PART: Final = 16
"""Characters of a part of a secret that is hidden wherever it stands: errors are cut to a length, and secrets with them."""
MOST_SECRETS: Final = 100
MOST_CHARACTERS: Final = 10_000
"""Of all secrets of a job. If it has more, its texts are hidden, since to search them would take long."""
MAYBE_CUT: Final = 500
"""Characters of a text from which on it may be one that was cut; pgqueue.values.jobs.error_text and sql/insight/errors cut."""
_LEFT_OUT: Final = re.compile(r" … \([0-9,]{1,20} characters\) … ")
"""What stands in an error's text for what was cut out of it."""
_URL_SAFE: Final = str.maketrans("+/", "-_")


class SecretForms:
    """Hides the secrets of one job in its texts."""

    def __init__(self, secrets: Collection[str] = ()) -> None:
        """``secrets``: texts; what is shorter than :data:`SHORTEST` is left out."""
        self._secrets = secrets
        self._too_many = len(secrets) > MOST_SECRETS or sum(map(len, secrets)) > MOST_CHARACTERS

    def hide(self, text: str) -> str:
        """The text without the secrets."""
        if self._too_many:
            return HIDDEN
        if not self._forms:
            return text
        if len(text) < MAYBE_CUT:
            return self._hide_whole(text)
        kept, left_out = _LEFT_OUT.split(text), [*_LEFT_OUT.findall(text), ""]
        return "".join(
            f"{self._hide_ends(self._hide_whole(one))}{mark}"
            for one, mark in zip(kept, left_out, strict=True)
        )

    @cached_property
    def _forms(self) -> list[str]:
        """Made for the first text: most jobs of a list have none."""
        forms = {form for one in self._secrets for form in _forms_of(one)}
        return sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True)

    @cached_property
    def _parts(self) -> set[str]:
        return {form[at : at + PART] for form in self._forms for at in range(len(form) - PART + 1)}

    def _hide_whole(self, text: str) -> str:
        text = "".join(self._without_parts(text))
        for form in self._forms:
            if len(form) < PART:
                text = text.replace(form, HIDDEN)
        return text

    def _without_parts(self, text: str) -> Iterator[str]:
        """The text with one mark in place of parts of secrets that touch or overlap."""
        end = 0  # of what was hidden last
        for at in range(len(text) - PART + 1 if self._parts else 0):
            if text[at : at + PART] in self._parts:
                if at > end or not end:
                    yield text[end:at]
                    yield HIDDEN
                end = at + PART
        yield text[end:]

    def _hide_ends(self, text: str) -> str:
        """The text without the part of a secret with which it begins or ends, as it does where it was cut."""
        head = max((_overlap(form[-PART:], text[:PART]) for form in self._forms), default=0)
        tail = max((_overlap(text[-PART:], form[:PART]) for form in self._forms), default=0)
        return f"{HIDDEN * bool(head)}{text[head : len(text) - tail]}{HIDDEN * bool(tail)}"


def _overlap(left: str, right: str) -> int:
    """How many characters of the end of one text are the begin of the other; 0: fewer than :data:`SHORTEST`."""
    longest = range(min(len(left), len(right)), SHORTEST - 1, -1)
    return next((length for length in longest if left.endswith(right[:length])), 0)


def _forms_of(secret: str) -> Iterator[str]:
    data = secret.encode(errors="surrogatepass")
    yield from _quoted(_quoted({secret}))  # what quotes it may be quoted itself
    yield repr(data)[2:-1]
    yield data.hex()
    yield html.escape(secret)
    for url in (quote(data), quote(data, safe=""), quote_plus(data)):
        yield url
        yield re.sub("%..", lambda found: found[0].lower(), url)
    # base64 of three bytes is four characters: what stands before the secret shifts it.
    for before in range(3):
        bits = 8 * (before + len(data))
        encoded = b64encode(bytes(before) + data).decode()[-(-8 * before // 6) : bits // 6]
        yield encoded
        yield encoded.translate(_URL_SAFE)


def _quoted(texts: set[str]) -> set[str]:
    return (
        texts
        | {
            form
            for one in texts
            for form in (
                repr(one)[1:-1],
                repr(f"{one}'\"")[1:-4],  # in a text that has both kinds of quotes
                ascii(one)[1:-1],
                json.dumps(one)[1:-1],
                json.dumps(one, ensure_ascii=False)[1:-1],
            )
        }
    )
