"""How often ``compare`` names a task that has not changed, and how often one that has: ``python tests/bench/comparison.py``.

Run times are log-normal with sigma 0.6, or Pareto with shape 1.5, whose tail is far heavier than the rule assumes.
"""

import random
from collections.abc import Callable

from pgqueue.values.insight.comparison import compare_windows
from pgqueue.values.insight.series import Figures, Spread
from pgqueue.values.insight.sketch import count_times, quantiles

TASKS = 1_000
SIZES = (20, 50, 200, 1_000)
GROWN = (1.0, 1.3, 1.5, 2.0)


def figures(
    chance: random.Random, draw: Callable[[random.Random], float], runs: int, grown: float
) -> Figures:
    """What a window has of a task, whose run times have grown by a factor."""
    sketch: dict[int, int] = {}
    count_times(sketch, sorted(grown * draw(chance) for _ in range(runs)))
    return Figures(started=runs, succeeded=runs, run=Spread(runs, *quantiles(sketch, (0.5, 0.95, 0.99))))


def main() -> None:
    """Print the share of tasks that are named ``slower``, by attempts in each window and by growth."""
    chance = random.Random(7)  # noqa: S311 - made-up times
    draws: dict[str, Callable[[random.Random], float]] = {
        "log-normal": lambda of: 0.2 * of.lognormvariate(0, 0.6),
        "Pareto": lambda of: 0.1 * of.paretovariate(1.5),
    }
    for name, draw in draws.items():
        for runs in SIZES:
            named = []
            for grown in GROWN:
                before: dict[str | None, Figures] = {
                    str(n): figures(chance, draw, runs, 1.0) for n in range(TASKS)
                }
                after: dict[str | None, Figures] = {
                    str(n): figures(chance, draw, runs, grown) for n in range(TASKS)
                }
                slower = sum("slower" in line.changes for line in compare_windows(before, after))
                named.append(f"x{grown}: {slower / TASKS:.1%}")
            print(f"{name}, {runs:,} attempts: {', '.join(named)}")  # noqa: T201


if __name__ == "__main__":
    main()
