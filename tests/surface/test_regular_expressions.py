"""No regular expression of the package goes back over a text: one that does costs the square of a text that a user may write."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # what re itself parses patterns with
from typing import Any

import pytest

import pgqueue

SEARCHES = {"search", "sub", "subn", "finditer", "findall", "split"}
"""Each tries the pattern at every character, so a long begin that fails is read again and again."""
LONG = 100
REPEATS = {_constants.MAX_REPEAT, _constants.MIN_REPEAT}
PACKAGE = Path(pgqueue.__file__).parent


def searched(source: str) -> Iterator[str]:
    """The patterns of a file that are searched for; what is put into one stands as ``x``."""
    tree = ast.parse(source)
    named = dict(_named(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES:
            owner = node.func.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)
            if name == "re" and (direct := _text(node.args[0])) is not None:
                yield direct
            elif name in named:
                yield named[name]


def _named(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            calls = [
                one for one in ast.walk(node.value or node) if isinstance(one, ast.Call) and _compiles(one)
            ]
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = target.id if isinstance(target, ast.Name) else getattr(target, "attr", None)
            for call in calls:
                if name and (text := _text(call.args[0])) is not None:
                    yield name, text


def _compiles(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "compile"


def _text(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(data)):
            return data.decode()
        case ast.JoinedStr(values=values):
            return "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in values)
    return None


def goes_back(pattern: str) -> bool:
    """Whether it begins with a long repeat after which it can fail, where nothing says at which characters it begins."""
    return _goes_back([*_parser.parse(pattern)])


def _goes_back(items: Sequence[tuple[Any, Any]]) -> bool:
    if not items:
        return False
    (kind, what), *rest = items
    if kind in REPEATS:
        least, most, body = what
        return (most > LONG and bool(rest or least > 1)) or _goes_back([*body, *rest])
    if kind is _constants.SUBPATTERN:
        return _goes_back([*what[-1], *rest])
    if kind is _constants.BRANCH:
        return any(_goes_back([*one, *rest]) for one in what[1])
    return False


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [
        (r"[\w.-]*(?:password)=", True),
        (r"\s*;", True),
        (r"[0-9]{10001}", True),
        (r"a|[0-9]+x", True),
        (r"(?:a+)b", True),
        (r"(?<![\w.-])[\w.-]*+=", False),
        (r"[0-9]+", False),
        (r"=[a-z]*+;", False),
        (r"^\s*;", False),
    ],
)
def test_a_pattern_that_goes_back_is_found(pattern: str, *, bad: bool) -> None:
    assert goes_back(pattern) is bad
    assert [*searched(f"X = re.compile({pattern!r})\nX.sub('', text)")] == [pattern]
    assert [*searched(f"re.search({pattern!r}, text)")] == [pattern]
    assert not [*searched(f"X = re.compile({pattern!r})\nX.fullmatch(text)")]


def test_no_search_of_the_package_goes_back() -> None:
    found = [(str(file.relative_to(PACKAGE)), one) for file in FILES for one in searched(file.read_text())]
    assert len(found) > 20
    assert [(file, one) for file, one in found if goes_back(one)] == []
