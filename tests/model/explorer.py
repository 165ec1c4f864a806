"""Goes through all states that a protocol can reach, the nearest first, and tells the shortest way to one that is wrong."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass
class Explored(Generic[S]):
    """What was found.

    Attributes:
        came: from which state, and by which step, each state was reached first.
        steps: how many steps were looked at.
        wrong: the first state that is wrong, and what is wrong; None: no state is.
        back: from which states each state can be reached in one step.
        left: how many states were found, and their steps not looked at; 0: these are all states.
    """

    came: dict[S, tuple[S, str] | None] = field(default_factory=dict)
    steps: int = 0
    wrong: tuple[S, str] | None = None
    back: dict[S, list[S]] = field(default_factory=dict)
    left: int = 0

    def trace(self, state: S, said: str) -> str:
        """The shortest way to a state, a step a line, and what is to be said of the state."""
        lines: list[str] = []
        while (before := self.came[state]) is not None:
            state, step = before
            lines.append(step)
        lines.reverse()
        numbered = [f"{number:>2}. {line}" for number, line in enumerate(lines, 1)]
        return "\n".join([*numbered, f"=> {said}"])

    @property
    def counter_example(self) -> str | None:
        """The trace to the state that is wrong; None: no state is."""
        return None if self.wrong is None else self.trace(*self.wrong)

    def stuck(self, ends: Callable[[S], bool]) -> list[S]:
        """The states from which no step, and no number of steps, leads to an end."""
        reaching = {state for state in self.came if ends(state)}
        todo = deque(reaching)
        while todo:
            new = [one for one in self.back.get(todo.popleft(), []) if one not in reaching]
            reaching.update(new)
            todo.extend(new)
        return [state for state in self.came if state not in reaching]


def explore(
    start: S,
    steps: Callable[[S], Iterable[tuple[str, S]]],
    wrong: Callable[[S], Iterator[str]],
    *,
    most: float = inf,
) -> Explored[S]:
    """Reach all states from one on, or stop at the first wrong one.

    Args:
        start: the first state.
        steps: the steps from a state on: what happens, and the state after it.
        wrong: what is wrong with a state.
        most: at about how many states to stop.
    """
    found = Explored[S]()
    found.came[start] = None
    todo = deque([start])
    while todo and len(found.came) < most:
        state = todo.popleft()
        for step, after in steps(state):
            found.steps += 1
            found.back.setdefault(after, []).append(state)
            if after in found.came:
                continue
            found.came[after] = (state, step)
            said = next(wrong(after), None)
            if said is not None:
                found.wrong = (after, said)
                return found
            todo.append(after)
    found.left = len(todo)
    return found
