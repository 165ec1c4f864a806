"""How nodes of a workflow are named, and what it means that one waits for others."""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, TypeAlias, Union

from pgqueue.errors import InvalidOption
from pgqueue.values.flow import EdgeRule, Parts
from pgqueue.values.job import NewJob
from pgqueue.values.options import one_of

IfFailed = Literal["cancel", "continue", "wait"]
After: TypeAlias = Union[str, "Node", Iterable[Union[str, "Node"]], Mapping[Union[str, "Node"], IfFailed]]
IF_FAILED = ("cancel", "continue", "wait")


class CanBePart(Protocol):
    """What can be a part of a flow: a call of a task, or a flow."""

    def as_part(self) -> NewJob | Parts:
        """It as it is stored, each job checked and encoded as any other that is enqueued."""


class Node:
    """A node of a workflow, to name in ``after``.

    Attributes:
        name: what it is called.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Made by :meth:`Workflow.add`."""
        self.name = name

    def __repr__(self) -> str:
        """Like ``<Node 'extract'>``."""
        return f"<Node {self.name!r}>"


def rules_of(after: object, rule: EdgeRule) -> dict[str, EdgeRule]:
    """The nodes that ``after`` names, and what happens if each fails; ``rule``, where it does not say it.

    Raises:
        InvalidOption: it names something else.
    """
    if isinstance(after, Mapping):
        return {_name(one): EdgeRule(one_of("after", how, IF_FAILED)) for one, how in after.items()}
    if isinstance(after, str | Node):
        after = [after]
    if not isinstance(after, Iterable):
        raise InvalidOption(f"after={after!r:.80}: give names of nodes")
    return {_name(one): rule for one in after}


def _name(given: object) -> str:
    if isinstance(given, Node):
        return given.name
    if isinstance(given, str):
        return given
    raise InvalidOption(f"after: {given!r:.80} is no node; give its name, or what add() returned")
