"""What people do not see: a secret in every form in which an error quotes it, in time that grows as the text does."""

import base64
import html
import json
import secrets
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from pgqueue.values.jobs.error_text import describe
from pgqueue.values.jobs.job import AttemptError, Job
from pgqueue.values.redaction import LONGEST_NAME, Redaction
from pgqueue.values.secret_forms import HIDDEN, MOST_CHARACTERS, MOST_SECRETS, SecretForms

SECRETS = (
    "correct-horse-battery",
    "pa'ss",
    'pa"ss',
    """p'a"s's""",
    "back\\slash",
    "line\nend",
    "wörd-日本",
    "a/b+c d&e=f",
    "ends in \\",
    "\N{GRINNING FACE}\u202e\u2066kind",
)
SHOWN: dict[str, Callable[[str], str]] = {
    "plain": str,
    "repr": repr,
    "repr of a dict": lambda secret: repr({0: [secret]}),
    "repr among quotes": lambda secret: repr(f"\"'{secret}'\""),
    "ascii": ascii,
    "json": json.dumps,
    "json in unicode": lambda secret: json.dumps({0: secret}, ensure_ascii=False),
    "json in json": lambda secret: json.dumps(json.dumps({0: secret})),
    "repr of json": lambda secret: repr(json.dumps(secret)),
    "bytes": lambda secret: repr(secret.encode()),
    "hex": lambda secret: secret.encode().hex(),
    "html": html.escape,
    "url": quote,
    "path": lambda secret: quote(secret, safe=""),
    "form": quote_plus,
    "small url": lambda secret: quote(secret, safe="").lower(),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "basic": lambda secret: base64.b64encode(f"ann:{secret}".encode()).decode(),
    "basic of bob": lambda secret: base64.b64encode(f"bobby:{secret}".encode()).decode(),
    "base64 of a url": lambda secret: base64.urlsafe_b64encode(f"ann_b:{secret}".encode()).decode(),
}


@pytest.mark.parametrize("form", SHOWN)
@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_hidden_in_every_form(secret: str, form: str) -> None:
    shown = SHOWN[form](secret)
    if form == "small url" and secret.lower() != secret:
        pytest.skip("a URL has its letters as they are")
    hidden = SecretForms({secret}).hide(f"before {shown} after")
    assert hidden.startswith("before ")
    assert hidden.endswith(" after")
    assert HIDDEN in hidden
    left = hidden.removeprefix("before ").removesuffix(" after").replace(HIDDEN, "")
    if form.startswith("bas"):  # what stands beside the secret shares a character with it
        assert len(left) <= len(shown) - len(secret)
    else:
        assert not set(left) & set("rseackidnw日本öß")


@pytest.mark.parametrize("length", [20, 300, 3_000])
@pytest.mark.parametrize("before", [0, 980, 990, 1_980, 1_990])
def test_what_is_left_of_a_secret_where_an_error_is_cut_is_hidden(length: int, before: int) -> None:
    secret = "".join(secrets.choice("QWXYZÄÖÜ") for _ in range(length))
    with pytest.raises(ValueError, match=r"-*") as caught:
        raise ValueError(f"{'-' * before}{secret}{'-' * before}")
    kept = describe(caught.value, 1)
    forms = SecretForms({secret})
    for text in (kept.message, kept.traceback or "", kept.message[:500]):
        hidden = forms.hide(text)
        assert not any(secret[at : at + 4] in hidden for at in range(length - 3))


def test_a_text_that_is_whole_keeps_words_that_begin_as_a_secret() -> None:
    assert SecretForms({"user@example.com"}).hide("there is no such user") == "there is no such user"


def test_more_secrets_than_can_be_searched_for_hide_the_whole_text() -> None:
    assert SecretForms({"x" * (MOST_CHARACTERS + 1)}).hide("any text") == HIDDEN
    assert SecretForms({f"secret {one}" for one in range(MOST_SECRETS + 1)}).hide("any text") == HIDDEN


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=abc x", "password=••• x"),
        ("{'password': 'a b c', 'x': 1}", "{'password': •••, 'x': 1}"),
        ('{"api_key": "a\\"b", "y": 2}', '{"api_key": •••, "y": 2}'),
        (r"{\"password\": \"abc\"}", r"{\"password\": •••}"),
        ("url=http://h?token=abc&x=1", "url=http://h?token=•••&x=1"),
        ("my-api-key = 5; z", "my-api-key = •••; z"),
        ("(token=a)(b=c)", "(token=•••)(b=c)"),
        ("smtp.password.old='x y' k", "smtp.password.old=••• k"),
        ("password='a\\\nb' c", "password=••• c"),
        ("token='never closed, x", "token=••• closed, x"),
        ("token=", "token="),
        ("the password of ann: 5", "the password of ann: 5"),
        ("a=b:c", "a=b:c"),
    ],
)
def test_what_follows_the_name_of_a_secret_is_hidden(text: str, shown: str) -> None:
    assert Redaction().text(text) == shown


def test_a_name_of_several_words_is_one() -> None:
    redaction = Redaction(["card[ _]number", "first-name"])
    assert redaction.text("'card number': 4111, first-name: Ann") == "'card number': •••, first-name: •••"


def test_the_value_of_a_name_that_is_too_long_to_search_is_hidden() -> None:
    assert Redaction().value({"x" * (LONGEST_NAME + 1): 1, "x" * LONGEST_NAME: 1}) == {
        "x" * (LONGEST_NAME + 1): HIDDEN,
        "x" * LONGEST_NAME: 1,
    }


class Counted(str):
    """A text that counts the characters that are taken from it."""

    __slots__ = ()
    taken = 0

    def __getitem__(self, part: Any) -> str:
        found = Counted(super().__getitem__(part))
        Counted.taken += len(found)
        return found

    def rstrip(self, *args: Any) -> str:
        return Counted(super().rstrip(*args))


WORST: dict[str, Callable[[int], str]] = {
    "hex": lambda length: "0123456789abcdef" * (length // 16),
    "secrets": lambda length: "token" * (length // 5),
    "assignments": lambda length: "a=" * (length // 2),
    "secret assignments": lambda length: "token=" * (length // 6),
    "open quotes": lambda length: "token=\"'" * (length // 8),
    "escapes": lambda length: 'token="\\' * (length // 8),
    "spaces": lambda length: "token" + " " * length + "=",
    "words": lambda length: "token " * (length // 6) + "=",
    "signs": lambda length: ":" * length,
    "base64": lambda length: "abcd+/" * (length // 6) + "==",
    "jwt": lambda length: "eyJhbGciOiJI.UzI1-NiIsInR5_" * (length // 27),
}


@pytest.mark.parametrize("kind", WORST)
def test_to_hide_secrets_takes_work_that_grows_as_the_text(kind: str) -> None:
    forms = SecretForms({"correct-horse-battery", "1234", "a" * 40})

    def work(length: int) -> int:
        calls, Counted.taken = 0, 0

        def count(*_: object) -> None:
            nonlocal calls
            calls += 1

        text = Counted(WORST[kind](length))
        sys.setprofile(count)
        try:
            forms.hide(text)
            Redaction().text(text)
        finally:
            sys.setprofile(None)
        return calls + Counted.taken

    small, large = work(4_000), work(64_000)
    assert large < 17 * small, (small, large)


def test_a_job_of_a_megabyte_is_hidden_whatever_it_holds() -> None:
    for kind, text in WORST.items():
        given: Any = dict.fromkeys(Job.__struct_fields__)
        given["args"] = {"text": text(1_000_000), "password": "correct-horse"}
        given["errors"] = (AttemptError(1, "E", "correct-horse " + text(2_000), text(8_000)),) * 10
        job = Job(**given)
        hidden = Redaction().job(job)
        assert hidden.args["password"] == HIDDEN, kind
        assert "correct" not in hidden.errors[0].message, kind


@pytest.mark.parametrize(
    ("entered", "kept"),
    [
        ({"user": "ann", "password": HIDDEN}, {"user": "ann", "password": "abcdef"}),
        ({"user": "bob", "password": HIDDEN, "more": 1}, {"user": "bob", "password": "abcdef", "more": 1}),
        ({"password": "new"}, {"password": "new"}),
        ({"token": HIDDEN}, {"token": HIDDEN}),
    ],
)
def test_what_a_person_left_hidden_is_as_it_was(entered: Any, kept: Any) -> None:
    assert Redaction().restored(entered, {"user": "ann", "password": "abcdef"}) == kept


def test_what_is_hidden_in_a_list_or_a_text_is_restored_where_it_stands() -> None:
    stored = {"all": [{"token": 1}, {"token": 2}], "said": "token=abc x"}
    shown = Redaction().value(stored)
    assert shown == {"all": [{"token": HIDDEN}, {"token": HIDDEN}], "said": f"token={HIDDEN} x"}
    assert Redaction().restored(shown | {"new": 1}, stored) == stored | {"new": 1}
    two = {"all": [{"token": 5}, {"token": HIDDEN}], "said": "no"}
    assert Redaction().restored(two, stored) == {"all": [{"token": 5}, {"token": 2}], "said": "no"}


def test_a_job_whose_arguments_were_left_out_shows_no_error() -> None:
    given: Any = dict.fromkeys(Job.__struct_fields__)
    given["args"], given["errors"] = {"$not_kept": 20_000}, (AttemptError(1, "E", "said hunter22", "trace"),)
    hidden = Redaction().job(Job(**given))
    assert (hidden.errors[0].message, hidden.errors[0].traceback) == (HIDDEN, HIDDEN)
    assert Redaction(()).job(Job(**given)).errors[0].message == "said hunter22"
