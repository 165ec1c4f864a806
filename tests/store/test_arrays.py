"""Arrays that are written by hand arrive as they were."""

import psycopg
import pytest

from pgqueue.store.arrays import texts, truths

HOSTILE = [
    "",
    "a",
    "NULL",
    'say "no"',
    "back\\slash",
    '\\"',
    "{1,2}",
    ",",
    " ",
    "\n",
    "\x01",
    "ü",
    '{"n":"5"}',
    "\\",
]


@pytest.mark.parametrize("values", [[], ["a"], [""], HOSTILE, [None], ["a", None, *HOSTILE]])
def test_texts_arrive_as_they_are(dsn: str, values: list[str | None]) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select %s::text[]", (texts(values),)).fetchone() == (values,)


@pytest.mark.parametrize("values", [["a\0b"], ["a", "\0"], ["\0", None]])
def test_a_text_that_postgresql_cannot_hold_is_refused_and_does_not_become_two(
    dsn: str, values: list[str | None]
) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.DataError, match="NUL"):
        connection.execute("select %s::text[]", (texts(values),))


@pytest.mark.parametrize("values", [[], [True], [True, False, True]])
def test_truths_arrive_as_they_are(dsn: str, values: list[bool]) -> None:
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select %s::boolean[]", (truths(values),)).fetchone() == (values,)
