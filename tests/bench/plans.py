"""What a plan costs that is a value, beside a bare generator: µs for one enqueue on a connection that answers at once.

Run it with ``python tests/bench/plans.py``.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from timeit import timeit
from typing import Any

from pgqueue.store.jobs.enqueue import enqueue
from pgqueue.store.plan import Row, Step, run
from pgqueue.values.jobs.job import NewJob

ROUNDS = 1_000
TIMES = 500
JOB = NewJob(task="bill", args=b"{}", queue="default", priority=0, max_attempts=25)


class Answers:
    """A connection that answers every step with one row."""

    def execute(self, step: Step, /) -> Sequence[Row]:  # noqa: ARG002 - every step has the same answer
        """Answer."""
        return [(1,)]

    def transaction(self) -> nullcontext[None]:
        """Nothing is begun."""
        return nullcontext()


def main() -> None:
    """Print the best of many short rounds, which other work on the machine disturbs least."""
    connection, make = Answers(), enqueue(JOB).kind.make
    kinds: dict[str, Callable[[], Any]] = {
        "generator": lambda: _drive(make(JOB), connection),
        "plan": lambda: run(enqueue(JOB), connection),
    }
    best = dict.fromkeys(kinds, float("inf"))
    for _ in range(ROUNDS):
        for name, once in kinds.items():
            best[name] = min(best[name], timeit(once, number=TIMES) / TIMES * 1e6)
    print(", ".join(f"{name} {least:.2f} µs" for name, least in best.items()))  # noqa: T201 - its purpose
    print(f"a plan costs {best['plan'] - best['generator']:.2f} µs more")  # noqa: T201 - its purpose


def _drive(plan: Any, connection: Answers) -> Any:
    """As plans were driven when they were generators."""
    try:
        step = next(plan)
        while True:
            step = plan.send(connection.execute(step))
    except StopIteration as end:
        return end.value


if __name__ == "__main__":
    main()
