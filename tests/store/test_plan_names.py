"""A plan is named by its module and function: the tables of names in shards and in memory name plans that there are."""

import ast
from collections import Counter
from pathlib import Path

import pgqueue
from pgqueue.store.shards.merge_answers import MERGED
from pgqueue.store.shards.routes import KEYED, OF_PATTERNS, ROUTES
from pgqueue.testing.memory import ANSWERED, TIMED


def _plans() -> Counter[str]:
    return Counter(
        f"{file.stem}.{node.name}"
        for file in Path(pgqueue.__file__).parent.rglob("*.py")
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(one).partition("(")[0] == "plan" for one in node.decorator_list)
    )


def test_no_two_plans_have_one_name() -> None:
    assert [name for name, number in _plans().items() if number > 1] == []


def test_shards_and_memory_answer_plans_that_there_are() -> None:
    answered = {
        f"{module}.{name}"
        for modules in ANSWERED.values()
        for module, names in modules.items()
        for name in names.split()
    }
    named = {*ROUTES, *MERGED, *KEYED, *OF_PATTERNS, TIMED, *answered}
    assert named - set(_plans()) == set()
