"""What ``pipeline.toml`` may say, and what is refused before anything starts."""

from datetime import timedelta
from pathlib import Path

import pytest
from docs.pages import DOCS, blocks

from pgqueue.errors import ConfigurationError
from pgqueue.spark.config import Config, Cost, Slo, load, parse

WHOLE = """
lake = "s3://bucket/lake"
tenant = "$.shop['the id'].ids[0]"

[cost]
per_run_second = 0.00002
currency = "EUR"

[[slo]]
queue = "mail"
wait = "30s"
objective = 0.99

[[slo]]
queue = "mail"
task = "send"
wait = "1.5m"
run = "250ms"
objective = 0.5
"""


def test_everything_that_may_be_said_is_read() -> None:
    assert parse(WHOLE) == Config(
        lake="s3://bucket/lake",
        tenant="$.shop['the id'].ids[0]",
        cost=Cost(per_run_second=0.00002, currency="EUR"),
        slos=(
            Slo(queue="mail", wait=timedelta(seconds=30), objective=0.99),
            Slo(
                queue="mail",
                task="send",
                wait=timedelta(seconds=90),
                run=timedelta(milliseconds=250),
                objective=0.5,
            ),
        ),
    )


def test_the_file_that_the_docs_show_can_be_read() -> None:
    (shown,) = [block.code for block in blocks(DOCS / "pipeline" / "rollups.md") if block.language == "toml"]
    assert [slo.task for slo in parse(shown).slos] == [None, "send_digest"]


def test_nothing_need_be_said() -> None:
    assert parse("") == load(None) == Config()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("lake = ", "this is no TOML: "),
        ('lakes = "x"', "unknown key 'lakes'; did you mean 'lake'?"),
        ('zzz = "x"', "unknown key 'zzz'; use lake, tenant, cost, slo"),
        ("lake = 3", "lake = 3: use a string"),
        ('lake = ""', "lake = '': use a string that is not empty"),
        ('tenant = "tenant"', "tenant = 'tenant': use a JSON path"),
        ('tenant = "$"', "tenant = '$': use a JSON path"),
        ('tenant = "$.a-b"', "tenant = '$.a-b': use a JSON path"),
        ("cost = 3", "cost: 3 is no table"),
        ('[export]\nhash = ["errors"]', "'errors' cannot be in it; use unique_key, args, result, meta"),
        ('[export]\nleave_out = "args"', "export: leave_out = 'args': use a list of columns"),
        ('[export]\nleave_out = ["args"]\nhash = ["args"]', "export: args is in leave_out and in hash"),
        ("[cost]\nper_second = 1", "cost: unknown key 'per_second'; did you mean 'per_run_second'?"),
        ("[cost]", "cost: per_run_second is missing; give a number"),
        ("[cost]\nper_run_second = -1", "cost: per_run_second = -1: use a price of zero or more"),
        ("[cost]\nper_run_second = inf", "cost: per_run_second = inf: use a price"),
        ("[cost]\nper_run_second = true", "cost: per_run_second = True: use a number"),
        ('[slo]\nqueue = "a"', "slo: write [[slo]], with two brackets"),
        ('[[slo]]\nqueue = "a"\nobjektive = 1', "slo 1: unknown key 'objektive'; did you mean 'objective'?"),
        ('[[slo]]\nwait = "1s"\nobjective = 0.9', "slo 1: queue is missing"),
        ('[[slo]]\nqueue = "a"\nwait = "1s"', "slo 1: objective is missing"),
        ('[[slo]]\nqueue = "a"\nobjective = 0.9', "slo 1: wait and run are both missing"),
        (
            '[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 1',
            "objective = 1: use a share above 0 and below 1",
        ),
        (
            '[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 0',
            "objective = 0: use a share above 0 and below 1",
        ),
        ('[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = 99', "objective = 99: use a share"),
        ('[[slo]]\nqueue = "a"\nwait = "1s"\nobjective = nan', "objective = nan: use a share"),
        (
            '[[slo]]\nqueue = "a"\nwait = "soon"\nobjective = 0.9',
            "slo 1: wait = 'soon': use a length of time",
        ),
        (
            '[[slo]]\nqueue = "a"\nwait = 30\nobjective = 0.9',
            "wait = 30: use a length of time such as '250ms'",
        ),
        ('[[slo]]\nqueue = "a"\nrun = "0s"\nobjective = 0.9', "run = '0s': use a length of time"),
        (f'[[slo]]\nqueue = "a"\nrun = "{"9" * 30}d"\nobjective = 0.9', "that is too long"),
        (
            '[[slo]]\nqueue = "a"\ntask = "t"\nwait = "1s"\nobjective = 0.9\n' * 2,
            "slo 1 and slo 2 are both about queue 'a', task 't'; keep one of them",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(said: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        parse(said)
    assert words in str(refused.value)


def test_a_refusal_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('lakes = "x"')
    with pytest.raises(ConfigurationError, match=r"pipeline\.toml: unknown key 'lakes'"):
        load(file)
    with pytest.raises(ConfigurationError, match=r"absent\.toml' cannot be read"):
        load(tmp_path / "absent.toml")
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(file)


def test_the_fingerprint_changes_with_what_figures_depend_on_and_with_nothing_else() -> None:
    base = parse(WHOLE).fingerprint()
    others = ('"s3://bucket/lake"', '"elsewhere"'), ('"EUR"', '"USD"')
    assert {parse(WHOLE.replace(*other)).fingerprint() for other in others} == {base}
    matters = ("0.99", "0.98"), ('"30s"', '"31s"'), ("0.00002", "0.00003"), ("['the id']", ".id")
    assert len({base, *(parse(WHOLE.replace(*other)).fingerprint() for other in matters)}) == 5
