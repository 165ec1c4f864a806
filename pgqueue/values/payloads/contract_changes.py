"""What changes from one contract of a task to the next, and whether it breaks jobs in flight or readers of jobs.

The rule is that the new contract takes all that the old one allowed, and has all arguments and fields that it had: then a worker of
the new release runs the jobs that wait, and queries find their columns. A new argument has a default, a type is the same or wider.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import msgspec

from pgqueue.values.payloads.contract import TaskContract
from pgqueue.values.payloads.schema import KINDS

What: TypeAlias = Literal["removed", "added", "required", "narrowed", "widened"]
RESULT: Final = "result"
MOST: Final = 5_000
"""Pairs of parts that are compared for one task. Of a larger schema the rest is taken to be the same."""
DEEPEST: Final = 50
"""Parts in parts that are compared."""
NAMED: Final = 3
"""Parts in parts that words name."""
SHOWN: Final = 4
"""Values of an enumeration, or types of a union, that words name."""
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_HIGHEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "multipleOf", "contentEncoding")
_TYPED = ("type", "anyOf", "enum", "const")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractChange:
    """One change of a task's contract.

    Attributes:
        task: the task.
        argument: the parameter; None: it is the result that changed.
        place: where in it, such as ``lines[].sku``; the argument itself, or ``result``.
        what: ``removed``; ``added``; ``required``, where it had a default; ``narrowed`` or otherwise changed; ``widened``.
        was: the type before, in words; None: there was none.
        now: the type now; None: there is none.
        breaks: whether it breaks jobs in flight or readers of jobs.
        jobs: how many live jobs have arguments in the old form; None: not counted.
    """

    task: str
    argument: str | None
    place: str
    what: What
    was: str | None
    now: str | None
    breaks: bool
    jobs: int | None = None


@dataclass(frozen=True, slots=True)
class _Difference:
    """Two parts of schemas, of which the second does not take what the first allows; or what is to be said of one."""

    place: str
    was: object
    now: object


def contract_changes(old: TaskContract, new: TaskContract) -> list[ContractChange]:
    """The changes from one contract of a task to another, arguments first.

    What the old contract does not say has not changed.
    """
    if old.hash == new.hash:
        return []
    before, after = _read(old.arguments), _read(new.arguments)
    found = [*_of_arguments(new.task, before, after)] if before.get("properties") is not None else []
    if old.result is not None:
        found += _of_result(new.task, _read(old.result), None if new.result is None else _read(new.result))
    return found


def type_in_words(schema: object, parts: Mapping[str, Any], *, depth: int = 0) -> str:
    """A part of a schema, in a few words; ``depth``: in how many parts that were named it is."""
    found = _resolved(schema, parts)
    if depth > NAMED or not any(name in found for name in _TYPED):
        return "any value" if depth <= NAMED else "more"
    if "anyOf" in found:
        options = [type_in_words(one, parts, depth=depth + 1) for one in _options(found, parts)[: 2 * SHOWN]]
        return " or ".join(dict.fromkeys(options)) or "no value"
    if (values := _values(found)) is not None:
        shown = [msgspec.json.encode(one).decode() for one in values[:SHOWN]]
        return " or ".join(shown) + (f" or {len(values) - SHOWN} more" if len(values) > SHOWN else "")
    return _one_in_words(found, parts, depth)


def _one_in_words(schema: Mapping[str, Any], parts: Mapping[str, Any], depth: int) -> str:
    kind = str(schema.get("type"))
    if kind == "array" and "items" in schema and "prefixItems" not in schema:
        return f"array of {type_in_words(schema['items'], parts, depth=depth + 1)}"
    if kind == "object" and (title := schema.get("title")):
        return f"object {title}"
    bounds = [
        f"{name} {schema[name]}" for name in (*_LEAST, *_HIGHEST, "pattern", "multipleOf") if name in schema
    ]
    about = ", ".join(
        [*map(str, filter(None, (schema.get("format"), schema.get("contentEncoding")))), *bounds]
    )
    return f"{kind} ({about})" if about else kind


def _of_arguments(task: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ContractChange]:
    compare = _Comparison(_parts(before), _parts(after))
    old, new = _properties(before), _properties(after)
    if not new and not after:
        return  # nothing is said of the arguments now, so any fit
    for name, of in old.items():
        was = type_in_words(of, compare.before)
        if name not in new:
            yield _change(task, name, "removed", was, None, breaks=True)
            continue
        now = type_in_words(new[name], compare.after)
        difference = compare.narrowed(of, new[name], name)
        if difference is not None:
            said = compare.in_words(difference)
            yield _change(task, name, "narrowed", *said, breaks=True, place=difference.place)
        elif was != now:
            yield _change(task, name, "widened", was, now, breaks=False)
        if name in _required(after) and name not in _required(before):
            yield _change(task, name, "required", f"{was}, with a default", f"{now}, without", breaks=True)
    for name, of in new.items():
        if name not in old:
            now = type_in_words(of, compare.after)
            yield _change(task, name, "added", None, now, breaks=name in _required(after))


def _of_result(
    task: str, before: Mapping[str, Any], after: Mapping[str, Any] | None
) -> Iterator[ContractChange]:
    was = type_in_words(before, _parts(before))
    if after is None:
        yield _change(task, None, "removed", was, None, breaks=True)
        return
    now = type_in_words(after, _parts(after))
    compare = _Comparison(_parts(before), _parts(after))
    difference = compare.narrowed(before, after, RESULT)
    if difference is not None:
        said = compare.in_words(difference)
        yield _change(task, None, "narrowed", *said, breaks=True, place=difference.place)
    elif was != now:
        yield _change(task, None, "widened", was, now, breaks=False)


def _change(
    task: str,
    argument: str | None,
    what: What,
    was: str | None,
    now: str | None,
    *,
    breaks: bool,
    place: str | None = None,
) -> ContractChange:
    return ContractChange(
        task=task,
        argument=argument,
        place=place or argument or RESULT,
        what=what,
        was=was,
        now=now,
        breaks=breaks,
    )


@dataclass(slots=True)
class _Comparison:
    """A comparison of two schemas; it ends, whatever they are, since each pair of parts is compared once.

    Attributes:
        before: what the old one refers to, by name.
        after: what the new one refers to.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    _met: set[tuple[str, str]] = field(default_factory=set)
    _left: int = MOST
    _depth: int = 0

    def in_words(self, found: _Difference) -> tuple[str, str]:
        """What was, and what is."""
        was, now = (
            one if isinstance(one, str) else type_in_words(one, parts)
            for one, parts in ((found.was, self.before), (found.now, self.after))
        )
        return was, now

    def narrowed(self, old: object, new: object, place: str) -> _Difference | None:
        """Where the new schema does not take what the old one allows; None: it takes all."""
        pair = _reference(old), _reference(new)
        self._left -= 1
        if self._left < 0 or self._depth > DEEPEST or (all(pair) and pair in self._met):
            return None
        if all(pair):
            self._met.add(pair)
        self._depth += 1
        try:
            return self._narrowed(old, new, place)
        finally:
            self._depth -= 1

    def _narrowed(self, old: object, new: object, place: str) -> _Difference | None:
        was, now = _resolved(old, self.before), _resolved(new, self.after)
        if not any(name in now for name in _TYPED):
            return None
        whole = _Difference(place, was, now)
        if not any(name in was for name in _TYPED):
            return whole
        choices = _options(now, self.after)
        for one in _options(was, self.before):
            reasons = [self._one_narrowed(one, choice, place) for choice in choices]
            if None not in reasons:
                alike = [
                    reason
                    for reason, choice in zip(reasons, choices, strict=True)
                    if choice.get("type") == one.get("type")
                ]
                inner = alike[0] if len(alike) == 1 else None
                return inner if inner is not None and inner.place != place else whole
        return None

    def _one_narrowed(self, old: Mapping[str, Any], new: Mapping[str, Any], place: str) -> _Difference | None:
        here = _Difference(place, old, new)
        allowed, taken = _values(old), _values(new)
        if allowed is not None:
            takes_all = all(_takes(new, taken, value) for value in allowed)
            return None if takes_all else here
        if taken is not None or not _is_same_type(old, new) or _is_bounded(old, new):
            return here
        match new.get("type"):
            case "array":
                return self._items_narrowed(old, new, here)
            case "object":
                return self._object_narrowed(old, new, here)
        return None

    def _items_narrowed(
        self, old: Mapping[str, Any], new: Mapping[str, Any], here: _Difference
    ) -> _Difference | None:
        first, second = old.get("prefixItems"), new.get("prefixItems")
        if isinstance(second, list):
            if not isinstance(first, list) or len(first) != len(second):
                return here
            pairs = [(one, other) for one, other in zip(first, second, strict=True)]
        else:
            olds = first if isinstance(first, list) else [old.get("items", {})]
            pairs = [(one, new.get("items", {})) for one in olds]
        found = (self.narrowed(one, other, f"{here.place}[]") for one, other in pairs)
        return next(filter(None, found), None)

    def _object_narrowed(
        self, old: Mapping[str, Any], new: Mapping[str, Any], here: _Difference
    ) -> _Difference | None:
        first, second = _properties(old), _properties(new)
        if bool(first) != bool(second):
            return here
        for name, of in first.items():
            place = f"{here.place}.{name}"
            if name not in second:
                return _Difference(place, of, "removed")
            found = self.narrowed(of, second[name], place)
            if found is not None:
                return found
        for name in _required(new):
            if name in second and name not in _required(old):
                return _Difference(f"{here.place}.{name}", "may be absent", "required")
        return (
            self.narrowed(_values_of_map(old), _values_of_map(new), f"{here.place}.*") if not first else None
        )


def _takes(new: Mapping[str, Any], values: list[Any] | None, value: object) -> bool:
    if values is not None:
        return value in values
    kind = KINDS.get(type(value), "object")
    return new.get("type") == kind or (kind == "integer" and new.get("type") == "number")


def _is_same_type(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    was, now = old.get("type"), new.get("type")
    if (was, now) == ("integer", "number"):
        return True
    return was == now and new.get("format") in {None, old.get("format")}


def _is_bounded(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the new schema has a bound that values of the old one need not keep."""
    for name in (*_LEAST, *_HIGHEST):
        was, now = old.get(name), new.get(name)
        if not isinstance(now, int | float):
            continue
        if not isinstance(was, int | float) or (now > was if name in _LEAST else now < was):
            return True
    return any(name in new and new[name] != old.get(name) for name in _EXACT)


def _options(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The forms that a value may have, each part of the schema taken once."""
    found: list[Mapping[str, Any]] = []
    left: list[object] = [schema]
    met: set[str] = set()
    while left:
        one = left.pop(0)
        name = _reference(one)
        resolved = _resolved(one, parts)
        if name and name in met:
            continue
        met.add(name)
        if isinstance(options := resolved.get("anyOf"), list):
            left += options
        else:
            found.append(resolved)
    return found


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values if isinstance(values, list) else None


def _values_of_map(schema: Mapping[str, Any]) -> object:
    said = schema.get("additionalProperties", {})
    return said if isinstance(said, dict) else {}


def _reference(schema: object) -> str:
    return str(schema.get("$ref", "")) if isinstance(schema, dict) else ""


def _resolved(schema: object, parts: Mapping[str, Any]) -> Mapping[str, Any]:
    for _ in range(20):
        name = _reference(schema).rpartition("/")[2]
        if not name:
            break
        schema = parts.get(name)
    return schema if isinstance(schema, dict) else {}


def _parts(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = schema.get("$defs")
    return parts if isinstance(parts, dict) else {}


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _required(schema: Mapping[str, Any]) -> list[str]:
    found = schema.get("required")
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def _read(schema: str) -> Mapping[str, Any]:
    try:
        found = msgspec.json.decode(schema)
    except (msgspec.DecodeError, RecursionError):  # a stored one may be anything
        return {}
    return found if isinstance(found, dict) else {}
