"""What a person types into the box above a list of jobs: an id, or terms that all have to match.

- ``42`` or ``#42``: the job of this id, alone.
- ``task:send_receipt``, ``queue:mail``, ``run:prices``, ``key:nightly``, ``state:dead``, ``error:ValueError``, ``after:2h``, ``until:15m``.
- ``order_id=7``: an argument; several have to be there together. A JSON object alone is all the arguments that are looked for.
- A word without ``:`` and ``=``: a part of the task's name. Several words stand there in this order.

A value with spaces stands in quotes: ``note="two words"``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from pgqueue.errors import InvalidOption
from pgqueue.values.hints import remedy

FIELDS: Final = ("task", "queue", "run", "key", "state", "error", "after", "until")
"""Terms, in the order in which the box shows them."""
LONGEST_JSON: Final = 10_000
_ID: Final = re.compile(r"(?:#|id:)?([0-9]{1,19})")
_CLOSED: Final = re.compile(r'(?:[^"]|"(?:[^"\\]|\\.)*+")*+', re.DOTALL)
_TERM: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*+")++', re.DOTALL)
_PAIR: Final = re.compile(r"([\w.-]++)([:=])(.*+)", re.DOTALL)
_ARGUMENT: Final = re.compile(r"([\w.-]+)\s*=\s*(.+)", re.DOTALL)


def read_box(text: str) -> Mapping[str, list[str]]:
    """What is typed, as parameters of an address; ``id`` alone is one job.

    Raises:
        InvalidOption: a term makes no sense.
    """
    text = text.strip()
    if text.startswith("{"):
        return {"args": [text]}
    terms = _terms(text)
    if len(terms) == 1 and (found := _ID.fullmatch(terms[0])):
        return {"id": [found[1]]}
    given: dict[str, list[str]] = {}
    arguments: dict[str, Any] = {}
    words = []
    for term in terms:
        pair = _PAIR.fullmatch(term)
        if pair is None:
            words.append(_unquoted(term))
        elif pair[2] == "=":
            arguments[pair[1]] = _json_or_text(_present(term, pair[3]))
        else:
            _add(given, pair[1], _unquoted(_present(term, pair[3])))
    if arguments:
        given["args"] = [msgspec.json.encode(arguments).decode()]
    if words:
        _add(given, "task", "*".join(["", *(word.strip("*") for word in words), ""]))
    return given


def box_text(given: Mapping[str, Sequence[str]]) -> str:
    """Parameters of an address as the box shows them."""
    terms = [f"{name}:{_quoted(value)}" for name in FIELDS for value in given.get(name, ())]
    return " ".join([*terms, *map(_argument_text, given.get("args", ()))])


def read_arguments(text: str) -> dict[str, Any] | None:
    """Arguments as ``order_id=7`` or as a JSON object; None: it is neither."""
    pair = _ARGUMENT.fullmatch(text)
    if pair is not None and not text.startswith("{"):
        return {pair[1]: _json_or_text(pair[2].strip())}
    found = _json_or_text(text)
    return found if isinstance(found, dict) else None


def _terms(text: str) -> list[str]:
    # Asked first: each quote of a text that is not closed would be looked for to the end.
    if not _CLOSED.fullmatch(text):
        raise InvalidOption("a quote is not closed")
    return _TERM.findall(text)


def _add(given: dict[str, list[str]], name: str, value: str) -> None:
    if name == "id":
        raise InvalidOption("id: an id stands alone, without other terms")
    if name not in FIELDS:
        known = [*FIELDS, "id"]
        raise InvalidOption(
            f"{name}: there is no such term; {remedy(name, known)} An argument is written order_id=7, a text with a colon in quotes"
        )
    if name in given and name != "state":
        raise InvalidOption(f"{name}: it is given twice; a word without a colon is a part of the task's name")
    given.setdefault(name, []).append(value)


def _present(term: str, value: str) -> str:
    if not value:
        raise InvalidOption(f"{term} has nothing behind it")
    return value


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode() if re.search(r'[\s"]', text) else text


def _unquoted(text: str) -> str:
    if not (len(text) > 1 and text[0] == text[-1] == '"'):
        return text
    found = _json_or_text(text)
    return found if isinstance(found, str) else text


def _argument_text(text: str) -> str:
    found = read_arguments(text)
    if not found or not all(re.fullmatch(r"[\w.-]+", name) for name in found):
        return text
    return " ".join(f"{name}={_value_text(value)}" for name, value in found.items())


def _value_text(value: object) -> str:
    is_plain = isinstance(value, str) and value and _json_or_text(value) == value
    return _quoted(str(value)) if is_plain else msgspec.json.encode(value).decode()


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text
