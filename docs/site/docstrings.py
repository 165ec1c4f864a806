"""Docstrings as the site shows them: what the house writes for readers of the code becomes what readers of the site need.

References become links. An awaited method is shown with its blocking twin, which takes and returns the same. A default that is a
constant is shown as its value, and a class whose fields need no words names them.
"""

import re
from typing import Any

from griffe import Alias, Attribute, Class, ExprName, Extension, Function, GriffeLoader, Module, Object

_ROLE = re.compile(r":(?:meth|class|func|mod|attr|data|exc):`[~!]?([\w.]+)`")
_ALONE = re.compile(r"^ *::$", re.MULTILINE)
_LITERAL = re.compile(r"::$", re.MULTILINE)
_TWIN = re.compile(r"^As :(?:meth|func):`(\w+)`, (?:awaited|for ``async with``)\.$")


class Docstrings(Extension):
    """Changes all docstrings of a package, once all of its modules are known."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **kwargs: Any) -> None:  # noqa: ANN401, ARG002
        """Called by griffe."""
        _change(pkg)


def _change(of: Object) -> None:
    if isinstance(of, Module | Class):
        _join_twins(of)
    for member in list(of.members.values()):
        if not isinstance(member, Alias):
            _change(member)
    if isinstance(of, Function):
        _show_defaults(of)
    if of.docstring is not None:
        if isinstance(of, Class):
            of.docstring.value += _fields(of)
        text = _LITERAL.sub(":", _ALONE.sub("", of.docstring.value))
        of.docstring.value = _ROLE.sub(lambda role: _reference(role[1], of), text)


def _join_twins(of: Module | Class) -> None:
    for name, member in list(of.members.items()):
        words = "" if member.is_alias or member.docstring is None else member.docstring.value
        if (twin := _TWIN.match(words)) and name == f"a{twin[1]}" and twin[1] in of.members:
            shown = of.members[twin[1]].docstring
            assert shown is not None
            if f"`{name}`" not in shown.value:
                first, _, rest = shown.value.partition("\n")
                shown.value = f"{first}\n\nAwaited: ``{name}``.\n{rest}"
            del of.members[name]


def _show_defaults(of: Function) -> None:
    for parameter in of.parameters:
        if isinstance(parameter.default, ExprName) and parameter.default.name.isupper():
            try:
                constant = of.modules_collection[parameter.default.canonical_path]
            except KeyError:
                continue
            parameter.default = getattr(constant, "value", None) or parameter.default


def _fields(of: Class) -> str:
    """The fields of a class that has no words for them; the values of an enumeration."""
    assert of.docstring is not None
    bare = [
        one
        for one in of.members.values()
        if isinstance(one, Attribute) and one.docstring is None and not one.name.startswith("_")
    ]
    if not bare or "Attributes:" in of.docstring.value or "property" in bare[0].labels:
        return ""
    if any("Enum" in str(base) for base in of.bases):
        return (
            "\n\nIts values: "
            + ", ".join(f"``{str(one.value).strip(chr(39) + chr(34))}``" for one in bare)
            + "."
        )
    return "\n\nIts fields: " + ", ".join(f"``{one.name}``" for one in bare) + "."


def _reference(target: str, of: Object) -> str:
    path = target if target.startswith("pgqueue.") else _resolved(target, of)
    label = target.rpartition(".")[2] if target.startswith("pgqueue.") else target
    return f'<autoref optional identifier="{path}"><code>{label}</code></autoref>' if path else f"`{label}`"


def _resolved(target: str, of: Object) -> str | None:
    """The whole name of what a docstring names, looked for from the inside to the outside."""
    around: Object | None = of
    while around is not None:
        try:
            return str(around[target].canonical_path)
        except KeyError:
            around = around.parent
        except Exception:  # noqa: BLE001 - the name is that of another package
            return None
    return None
